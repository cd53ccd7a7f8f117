"""``meshsweep recommend``."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from harness.cli.options import json_option, results_option, sweep_folder
from harness.cli.output import check_output
from harness.cli.values import Positive
from harness.errors import StoreError, UnknownNameError, UsageError

if TYPE_CHECKING:
    from harness.recommend import Limits, Measured
    from harness.recommend.export import Target

KINDS = ("torchrun", "torchtitan", "torchtitan-toml", "accelerate", "deepspeed", "megatron", "vllm")


@click.command()
@click.argument("sweeps", nargs=-1, metavar="[SWEEP]...")
@click.option(
    "--objective",
    type=click.Choice(["speed", "per-gpu", "cost", "restore", "weighted"]),
    default="speed",
    show_default=True,
    help="What is to be best: tokens/s, tokens/s per GPU, cost of a token, time to restore, or a product of --weights.",
)
@click.option("--weights", metavar="TERMS", help="For weighted: exponents of speed, restore, save, memory, checkpoint.")
@click.option(
    "--price-per-gpu-hour",
    "price",
    type=Positive(),
    metavar="N",
    help="In any currency; without it cost is in GPU-hours.",
)
@click.option("--max-memory", metavar="SIZE", help="Memory of the fullest rank, such as 72GiB.")
@click.option("--max-restore", metavar="TIME", help="Time to restore a checkpoint, such as 5min.")
@click.option("--min-headroom", metavar="SHARE", help="Device memory that must stay free, such as 10%.")
@click.option(
    "--export",
    "exports",
    multiple=True,
    metavar="KIND[=FILE]",
    help=f"Write the winner as a ready file; repeatable. Kinds: {', '.join(KINDS)}.",
)
@results_option
@json_option
def recommend(
    sweeps: tuple[str, ...],
    objective: str,
    weights: str | None,
    price: float | None,
    max_memory: str | None,
    max_restore: str | None,
    min_headroom: str | None,
    exports: tuple[str, ...],
    results: Path,
    as_json: bool,
) -> int:
    """Choose a layout from a sweep (default: the newest) under constraints, and write it for a training tool.

    Several sweeps of one model, such as one a number of nodes, are chosen from together: which layout, and on how many
    GPUs.

    Exit code 1: no layout meets the constraints, or none was measured.

    \b
    Examples:
      meshsweep recommend
      meshsweep recommend --max-memory 72GiB --max-restore 5min --min-headroom 10%
      meshsweep recommend --objective cost --price-per-gpu-hour 2.50
      meshsweep recommend nodes1 nodes2 nodes4 --objective per-gpu
      meshsweep recommend --objective weighted --weights speed=1,restore=0.1
      meshsweep recommend --export torchrun --export accelerate=fsdp.yaml
    """
    from harness.recommend import make_objective, recommend_of
    from harness.recommend.cautions import cautions
    from harness.recommend.console import render
    from harness.recommend.export import Target

    wanted = make_objective(objective, weights, price)
    limits = _limits(max_memory, max_restore, min_headroom)
    files = _files(exports)
    measured = _measured([sweep_folder(results, sweep) for sweep in sweeps or (None,)])
    found = recommend_of(measured, wanted, limits)
    click.echo(render(found), err=as_json)
    doubts: tuple[str, ...] = ()
    if found.winner is None:
        files = {}
    else:
        plan = next(one.plan for one in measured if one.name == found.winner.sweeps[0])
        doubts = cautions(found, plan)
        _write(files, Target(found.winner.layout, plan, doubts), as_json)
    if as_json:
        written = {kind: str(path) for kind, path in files.items()}
        document = {**found.model_dump(mode="json"), "exports": written, "cautions": doubts}
        click.echo(json.dumps(document, indent=1))
    return 0 if found.winner else 1


def _measured(folders: Sequence[Path]) -> list[Measured]:
    """The sweeps, under their names, or their folders' where names are alike.

    Raises:
        UsageError: a sweep is given twice.
    """
    from harness.recommend import Measured
    from harness.store import SweepStore

    places = [folder.resolve() for folder in folders]
    twice = next((folder for at, folder in enumerate(folders) if places[at] in places[:at]), None)
    if twice is not None:
        raise UsageError(f"sweep {twice.name} is given twice; give each sweep once")
    stores = [SweepStore.open(folder) for folder in folders]
    plans = [store.plan() for store in stores]
    names = [plan.name for plan in plans]
    shown = [name if names.count(name) == 1 else str(folder) for name, folder in zip(names, folders, strict=True)]
    return [Measured(name, plan, store.records()) for name, plan, store in zip(shown, plans, stores, strict=True)]


def _limits(max_memory: str | None, max_restore: str | None, min_headroom: str | None) -> Limits:
    from harness.recommend import Limits
    from harness.recommend.quantities import parse_share, parse_size, parse_time

    return Limits(
        max_memory_bytes=None if max_memory is None else parse_size(max_memory),
        max_restore_s=None if max_restore is None else parse_time(max_restore),
        min_headroom=None if min_headroom is None else parse_share(min_headroom),
    )


def _files(texts: Sequence[str]) -> dict[str, Path]:
    """The file of each kind of ``--export``; none may exist, as it may hold a user's own settings.

    Raises:
        UsageError: a kind that is unknown or given twice, or a file that exists, is given twice or is among a sweep's.
    """
    from harness.recommend.export import EXPORTS

    files: dict[str, Path] = {}
    for text in texts:
        kind, _, name = text.partition("=")
        if kind not in EXPORTS:
            raise UnknownNameError("export", kind, EXPORTS)
        path = Path(name or EXPORTS[kind].file_name)
        check_output(path, "--export")
        if path.exists():
            raise UsageError(f"{path} exists; move it away, or write --export {kind}=OTHER_FILE")
        if kind in files:
            raise UsageError(f"--export {kind} is given twice; give each kind once")
        if path.resolve() in [other.resolve() for other in files.values()]:
            raise UsageError(f"two exports go to {path}; write --export {kind}=OTHER_FILE")
        files[kind] = path
    return files


def _write(files: Mapping[str, Path], target: Target, as_json: bool) -> None:
    """Write all files or none; say on stderr why they may be wrong for the user's training."""
    from harness.recommend.export import export
    from harness.store import write_atomic

    made = {kind: export(kind, target) for kind in files}
    written: list[Path] = []
    try:
        for kind, path in files.items():
            write_atomic(path, made[kind].text)
            written.append(path)
    except StoreError:
        for path in written:
            path.unlink(missing_ok=True)
        raise
    for kind, path in files.items():
        click.echo(f"\n{kind}: {path}", err=as_json)
        for lost in made[kind].lost:
            click.echo(f"  not expressed: {lost}", err=as_json)
    if files and target.caution:
        click.echo(f"\nwarning: {target.caution.removeprefix('CAUTION: ')}", err=True)
