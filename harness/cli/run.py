"""``meshsweep run`` and ``meshsweep resume``."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shlex
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import click

from harness.cli.calibrate import keep_calibration
from harness.cli.cluster import (
    cluster_options,
    default_name,
    detach,
    probed,
    slurm_options,
    started_before_its_plan,
    without_plan,
)
from harness.cli.machine import MachineOptions, device_options
from harness.cli.options import (
    RESULTS,
    Work,
    WorkOptions,
    cross_node_tp_option,
    json_option,
    resolve,
    results_option,
    sweep_folder,
    work_options,
)
from harness.cli.settings import settings_options
from harness.cli.show import show_report
from harness.errors import UsageError
from harness.spec import Calibrate, Settings
from harness.store import SweepStore
from harness.sweep.plan import make_plan
from harness.sweep.prune import earlier_failures

if TYPE_CHECKING:
    from harness.compare import Comparison
    from harness.topology.model import Topology


@click.command()
@work_options
@device_options
@cluster_options
@cross_node_tp_option
@click.option(
    "--mesh",
    "contract_file",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Mesh contract (see 'meshsweep mesh'): only its shape is run, and every rank checks it.",
)
@settings_options
@click.option(
    "--seed",
    type=click.IntRange(0, 2**63 - 1),
    metavar="N",
    default=0,
    show_default=True,
    help="Of weights and of tokens.",
)
@click.option(
    "--design",
    type=click.Choice(["auto", "alternated", "blocks", "launches"]),
    default="auto",
    show_default=True,
    help="How layouts are timed side by side.",
)
@click.option("--exhaustive", is_flag=True, help="Time every layout in every round, also plainly slower ones.")
@click.option(
    "--no-prune", is_flag=True, help="Run also what cannot fit, by prediction or after an earlier out-of-memory."
)
@click.option("--calibrate", is_flag=True, help="Time the links under the layouts before all else.")
@click.option("--name", help="The sweep's name; default from date, model and world size.")
@results_option
@click.option("--dry-run", is_flag=True, help="Print what would run; write nothing.")
@json_option
def run(
    wanted: WorkOptions,
    machine: MachineOptions,
    allow_cross_node_tp: bool,
    contract_file: Path | None,
    settings: Settings,
    seed: int,
    design: Literal["auto", "alternated", "blocks", "launches"],
    exhaustive: bool,
    no_prune: bool,
    calibrate: bool,
    name: str | None,
    results: Path,
    dry_run: bool,
    as_json: bool,
    **cluster: object,
) -> int:
    """Measure layouts on this machine or on a Slurm cluster, from detection to report.

    \b
    Examples:
      meshsweep run
      meshsweep run --ranks 8 --layouts hsdp_tp:r2s2t2,fsdp --rounds 5
      meshsweep run --layouts hsdp:r2s2,hsdp:r2s2+order=dp_shard/dp_replicate/tp
      meshsweep run --model mypackage.models:build --batch 16 --seq-len 256
      meshsweep run --exhaustive --rounds 5
      meshsweep run --cluster slurm --profile mysite --nodes 2 --detach
    """
    from harness.cli.dry_run import Foreseen, show_jobs, show_plan
    from harness.mesh import read_contract

    contract = read_contract(contract_file) if contract_file else None
    if contract is not None:
        machine = replace(machine, order=contract.order)
    slurm, topology, foreseen = slurm_options(cluster), None, None
    name = checked_name(name)
    if slurm is not None or cluster["detach"]:
        name = name or default_name(wanted.model, slurm)
    if slurm is not None and name is not None:
        if dry_run:
            foreseen = Foreseen(results / name, slurm, wanted)
            topology = foreseen.topology
            if topology is None:
                return show_jobs(foreseen, None, as_json)
        elif cluster["detach"]:
            return _detached(name, results, as_json)
        else:
            with resumable(results, name):
                topology, slurm = probed(results / name, slurm, wanted)
    work = resolve(wanted, machine, topology)
    plan = make_plan(
        topology=work.topology,
        ranks=work.ranks,
        workload=work.workload,
        requests=work.requests,
        settings=settings,
        seed=seed,
        design=design,
        race=not exhaustive,
        memory_prune=not no_prune,
        earlier=() if no_prune else earlier_failures(results),
        name=name,
        command=["meshsweep", *sys.argv[1:]],
        allow_cross_node_tp=allow_cross_node_tp,
        contract=contract,
        env=rank_env(work, machine.use_gpus, topology),
    )
    calibrating: Calibrate = "first" if calibrate else "never"
    more = {"slurm": slurm, "debug_comms": bool(cluster["debug_comms"]), "calibrate": calibrating}
    plan = plan.model_copy(update=more)
    if dry_run:
        return show_jobs(foreseen, plan, as_json) if foreseen is not None else show_plan(plan, as_json)
    if cluster["detach"]:  # what cannot be planned is said here, not in a log
        return _detached(plan.name, results, as_json)
    return _drive(SweepStore.create(results, plan), as_json)


@click.command()
@click.argument("sweep", required=False)
@results_option
@json_option
def resume(sweep: str | None, results: Path, as_json: bool) -> int:
    """Run what is missing of a sweep (default: the newest), then report it.

    \b
    Example:
      meshsweep resume 20260102-030405-tiny-w4
    """
    early = without_plan(results, sweep)
    if early is not None and (started := started_before_its_plan(early)) is not None:
        with click.Context(run, info_name="run") as context:
            defaults = {option.name: option.get_default(context) for option in run.params}
            context.params = {**defaults, **started, "as_json": as_json}
            return int(context.invoke(run, **context.params))
    return _drive(SweepStore.open(sweep_folder(results, sweep)), as_json)


@click.command()
@click.argument("sweep", required=False)
@results_option
@json_option
def cancel(sweep: str | None, results: Path, as_json: bool) -> int:
    """End the jobs of a sweep (default: the newest); what they measured is kept.

    \b
    Examples:
      meshsweep cancel 20260102-030405-tiny-w4
      meshsweep cancel --json
    """
    from harness.sweep.drive import CANCEL
    from harness.sweep.drive import cancel as cancel_sweep

    if (early := without_plan(results, sweep)) is not None:
        from harness.execute.probe import cancel_probe

        (early / CANCEL).touch()
        job_id = cancel_probe(early / "probe")
        ended = f"its probe job {job_id}" if job_id else "nothing, no probe job ran"
        return _show_ended(early.name, ended, [job_id] if job_id else [], as_json)
    store = SweepStore.open(sweep_folder(results, sweep))
    jobs = cancel_sweep(store)
    ended = ", ".join(f"job {one}" for one in jobs) or "nothing, no job ran"
    return _show_ended(store.folder.name, ended, jobs, as_json)


def _show_ended(sweep: str, ended: str, jobs: Sequence[str], as_json: bool) -> int:
    click.echo(f"sweep {sweep}: ended {ended}", err=as_json)
    if as_json:
        click.echo(json.dumps({"sweep": sweep, "ended_jobs": jobs}))
    return 0


def _detached(name: str, results: Path, as_json: bool) -> int:
    log = detach(name, results, sys.argv[1:])
    click.echo(f"sweep {name} goes on in the background; its output: {log}", err=True)
    click.echo(json.dumps({"sweep": name, "log": str(log)}) if as_json else name)
    return 0


def rank_env(work: Work, use_gpus: str | None, probed_nodes: Topology | None) -> dict[str, str]:
    """Make CUDA number devices as the listings do, and show ranks only the chosen ones.

    Raises:
        UsageError: the devices chosen on a cluster cannot be had by one setting for all of its nodes.
    """
    env = {}
    if work.workload.model_path is not None:
        # a resumed sweep finds the model wherever it is resumed
        env["PYTHONPATH"] = os.pathsep.join(filter(None, (str(Path.cwd()), os.environ.get("PYTHONPATH"))))
    if work.ranks.device == "cpu":
        return env
    env |= {"CUDA_DEVICE_ORDER": "PCI_BUS_ID"}
    if use_gpus is None:
        return env
    chosen = [(node.host, [device.index for device in node.devices]) for node in work.topology.nodes]
    if probed_nodes is not None:
        given = {node.host: [device.index for device in node.devices] for node in probed_nodes.nodes}
        if all(given[host][: len(indices)] == indices for host, indices in chosen):
            # ranks take the first ones of what their job is given
            return env
        if len({tuple(indices) for _, indices in chosen}) > 1:
            raise UsageError("--use-gpus names other devices on each node; on a cluster name the same on all, or 0-N")
    env["CUDA_VISIBLE_DEVICES"] = ",".join(map(str, chosen[0][1]))
    return env


def checked_name(name: str | None) -> str | None:
    if name is not None and not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}", name):
        raise UsageError(f"--name {name!r}: use letters, digits, '.', '_' and '-', at most 100, no blank or slash")
    return name


def _drive(store: SweepStore, as_json: bool) -> int:
    from harness.cli.progress import watching
    from harness.sweep.drive import drive

    with resumable(store.folder.parent, store.folder.name), watching(store.plan(), store.folder) as observer:
        records = drive(store, observer)
    keep_calibration(store, records)
    return exit_code(show_report(store, as_json))


@contextlib.contextmanager
def resumable(results: Path, name: str) -> Iterator[None]:
    """Have an interruption say how the sweep goes on."""
    try:
        yield
    except KeyboardInterrupt:
        where = [] if results == Path(RESULTS) else ["--results", str(results)]
        command = shlex.join(["meshsweep", "resume", name, *where])
        raise KeyboardInterrupt(f"interrupted; what was measured is kept, '{command}' runs the rest") from None


def exit_code(comparison: Comparison) -> int:
    """0 when every candidate was measured or pruned, else 1."""
    return int(any(cell.outcome not in ("measured", "pruned") for cell in comparison.cells))
