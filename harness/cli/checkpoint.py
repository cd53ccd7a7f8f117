"""``meshsweep checkpoint``: verify, inspect and convert checkpoint folders; measure every way and mesh."""

from __future__ import annotations

import json
import shlex
import sys
from pathlib import Path

import click

from harness.cli.group import WholeGroup
from harness.cli.options import json_option, results_option, sweep_folder
from harness.cli.output import Output
from harness.errors import UsageError
from harness.layout import Layout, parse_layout
from harness.layout.legality import check_layout
from harness.spec import SweepPlan

FOLDER = click.argument("folder", type=click.Path(path_type=Path))


@click.group(cls=WholeGroup)
def checkpoint() -> None:
    """Checkpoint folders such as step1000-r2s4t1: a manifest with digests, safetensors files, no pickle."""


@checkpoint.command()
@FOLDER
@click.option("--quick", is_flag=True, help="Sizes and headers only; no tensor is read.")
@json_option
def verify(folder: Path, quick: bool, as_json: bool) -> int:
    """See whether a checkpoint is whole and unaltered; damage is named by file and tensor.

    Exit codes: 0 it is; 1 it is not, one line a damage; 2 it is no checkpoint.

    \b
    Example:
      meshsweep checkpoint verify checkpoints/step1000-r2s4t1
    """
    from harness.checkpoint.manifest import read_manifest
    from harness.checkpoint.verify import verify as find_damage

    manifest = read_manifest(folder)
    damage = find_damage(folder, manifest, quick)
    for one in damage:
        click.echo(one.text, err=as_json)
    if not damage:
        what = "sizes and headers of" if quick else "every byte of"
        click.echo(f"{folder}: {what} {len(manifest.files)} files as written", err=as_json)
    if as_json:
        click.echo(json.dumps({"folder": str(folder), "damage": [d.model_dump() for d in damage]}, indent=1))
    return int(bool(damage))


@checkpoint.command()
@FOLDER
@json_option
def inspect(folder: Path, as_json: bool) -> int:
    """Show what a checkpoint is made of: layout, model, bytes by kind, files and their writers.

    \b
    Example:
      meshsweep checkpoint inspect checkpoints/step1000-r2s4t1
    """
    from harness.checkpoint.inspect import inspect_text
    from harness.checkpoint.manifest import read_manifest
    from harness.checkpoint.measured import sizes_of
    from harness.checkpoint.names import MANIFEST

    manifest = read_manifest(folder)
    sizes = sizes_of(manifest, (folder / MANIFEST).stat().st_size)
    click.echo(inspect_text(manifest, sizes), err=as_json)
    if as_json:
        facts = manifest.model_dump(mode="json", exclude={"tensors", "values"})
        click.echo(json.dumps({**facts, "sizes": sizes.model_dump(), "total_bytes": sizes.total_bytes}, indent=1))
    return 0


@checkpoint.command()
@click.argument("source", type=click.Path(path_type=Path, exists=True))
@click.option(
    "--to", "target", required=True, metavar="MESH|safetensors|folder", help="A mesh such as s4t2, or a form."
)
@click.option("--out", type=Output(folder=None), required=True, help="File, or folder to put the checkpoint in.")
@click.option("--optimizer", is_flag=True, help="With --to safetensors: the optimizer's state, too.")
@click.option("--step", type=click.IntRange(0), default=0, show_default=True, help="With --to folder: the step.")
@json_option
def convert(source: Path, target: str, out: Path, optimizer: bool, step: int, as_json: bool) -> int:
    """Turn a checkpoint into another form without training.

    A restore works from any mesh onto any other without this; a checkpoint cut for its mesh is read in one run a rank.

    \b
    Examples:
      meshsweep checkpoint convert ckpt/step1000-r2s4t1 --to safetensors --out model.safetensors
      meshsweep checkpoint convert ckpt/step1000-r2s4t1 --to s4t2 --out ckpt
      meshsweep checkpoint convert model.safetensors --to folder --out ckpt --step 0
    """
    from harness.checkpoint import convert as forms
    from harness.checkpoint.manifest import read_manifest
    from harness.checkpoint.names import folder_name
    from harness.cli.tensor_dims import tp_dims
    from harness.layout import parse_mesh

    if target == "folder":
        written = out / folder_name(step, "r1s1t1")
        forms.from_safetensors(source, written, step)
    elif target == "safetensors":
        written = out
        forms.to_safetensors(source, read_manifest(source), out, optimizer)
    else:
        mesh = parse_mesh(target)
        manifest = read_manifest(source)
        written = out / folder_name(manifest.step, mesh.signature)
        forms.to_mesh(source, manifest, written, mesh, tp_dims(manifest, mesh))
    click.echo(f"wrote {written}", err=as_json)
    if as_json:
        click.echo(json.dumps({"written": str(written)}))
    return 0


@checkpoint.command()
@click.argument("sweep", required=False)
@click.option(
    "--layouts",
    "layout_texts",
    multiple=True,
    metavar="LIST",
    help="Layouts with their meshes, e.g. ddp:r4,hsdp_tp:r2s2t2; any world size. Default: all of the sweep.",
)
@click.option("--storage", type=click.Path(path_type=Path), help="Folder to write checkpoints in; default the sweep's.")
@click.option("--matrix/--no-matrix", default=True, show_default=True, help="Every pair of meshes.")
@click.option("--ways/--no-ways", default=True, show_default=True, help="Every way to save and to restore.")
@results_option
@json_option
def measure(
    sweep: str | None,
    layout_texts: tuple[str, ...],
    storage: Path | None,
    matrix: bool,
    ways: bool,
    results: Path,
    as_json: bool,
) -> int:
    """Measure every way to save and restore, and every pair of meshes, with a sweep's model on this machine.

    The result becomes part of the sweep (default: the newest), and its report is written anew. It takes several seconds
    a layout with tiny on CPUs, and with larger models as long as some twenty saves and restores of each; every part is
    announced with the time that is left. What is measured stays if it is interrupted.

    \b
    Examples:
      meshsweep checkpoint measure
      meshsweep checkpoint measure 20260102-030405-tiny-w4 --layouts ddp:r4,hsdp:r2s2,hsdp_tp:r2s2t2 --storage /scratch
    """
    from harness.cli.show import show_report
    from harness.execute.checkpoints import study
    from harness.store import SweepStore

    store = SweepStore.open(sweep_folder(results, sweep))
    plan = store.plan()
    name = store.folder.name
    try:
        study(
            _layouts(layout_texts, plan),
            plan.workload,
            plan.ranks.device,
            storage or store.folder,
            shlex.join(["meshsweep", *sys.argv[1:]]),
            ways=ways,
            matrix=matrix,
            settings=plan.settings,
            say=lambda line: click.echo(line, err=True),
            keep=store.add_checkpoint_study,
            earlier=store.checkpoint_study(),
        )
    except KeyboardInterrupt:
        # a sweep's own runs are what 'resume' makes, and they are done
        hint = f"parts that were measured are kept in sweep {name}; 'meshsweep report {name}' shows them, and the same "
        raise KeyboardInterrupt(f"interrupted; {hint}command again measures all parts anew") from None
    show_report(store, as_json)
    return 0


def _layouts(texts: tuple[str, ...], plan: SweepPlan) -> list[Layout]:
    """The layouts that are named, else those of the sweep, each strategy and mesh once.

    Raises:
        UsageError: a layout without its mesh, or one that is not legal for the sweep's model.
    """
    found = []
    for text in (t for listed in texts for t in listed.split(",") if t.strip()):
        request = parse_layout(text)
        if request.mesh is None:
            raise UsageError(f"layout {text!r} needs its mesh here, such as {request.strategy}:r2s2")
        found.append(Layout(strategy=request.strategy, mesh=request.mesh, options=request.options))
    for layout in found:
        check_layout(layout, plan.workload, layout.mesh.world_size)
    chosen = found or [layout for layout in plan.layouts if layout.strategy != "single"]
    return list({(layout.strategy, layout.mesh): layout for layout in reversed(chosen)}.values())[::-1]
