"""``meshsweep calibrate``: the links under every layout, and every layout's compute without them."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

import click

from harness.cli.cluster import cluster_options, look_at_nodes, slurm_options
from harness.cli.machine import MachineOptions, device_options
from harness.cli.options import WorkOptions, cross_node_tp_option, json_option, resolve, results_option, work_options
from harness.cli.values import Positive
from harness.errors import ExecutionError, UsageError
from harness.record import RunRecord
from harness.spec import Settings
from harness.store import SweepStore, write_atomic


@click.command()
@work_options
@device_options
@cluster_options
@cross_node_tp_option
@click.option("--run-timeout", type=Positive(), default=300.0, show_default=True, metavar="S", help="Limit of the run.")
@click.option("--name", help="The folder's name; default from date, model and world size.")
@results_option
@json_option
def calibrate(
    wanted: WorkOptions,
    machine: MachineOptions,
    allow_cross_node_tp: bool,
    run_timeout: float,
    name: str | None,
    results: Path,
    as_json: bool,
    **cluster: object,
) -> int:
    """Time all-gather, reduce-scatter, all-reduce and broadcast over the groups of every axis of every layout.

    Sizes go from 1 KiB to the largest message that a layout sends. Then time each layout's steps without any
    communication, all ranks busy at once. Kept in calibration.json of the sweep's folder, for 'meshsweep plan'.

    \b
    Examples:
      meshsweep calibrate
      meshsweep calibrate --ranks 8 --layouts hsdp:r2s4,tp
      meshsweep calibrate --cluster slurm --profile mysite --nodes 2
    """
    from harness.cli.progress import Lines
    from harness.cli.run import checked_name, rank_env
    from harness.sweep.drive import drive
    from harness.sweep.plan import make_plan

    if cluster["detach"]:
        raise UsageError("--detach does not go with 'meshsweep calibrate'; use 'meshsweep run --calibrate --detach'")
    slurm, topology = slurm_options(cluster), None
    name = checked_name(name) or f"{datetime.now(UTC):%Y%m%d-%H%M%S}-calibration"
    if slurm is not None:
        topology, slurm = look_at_nodes(results / name, slurm, wanted)
    work = resolve(wanted, machine, topology)
    plan = make_plan(
        topology=work.topology,
        ranks=work.ranks,
        workload=work.workload,
        requests=work.requests,
        settings=Settings(run_timeout_s=run_timeout),
        name=name,
        command=["meshsweep", *sys.argv[1:]],
        allow_cross_node_tp=allow_cross_node_tp,
        env=rank_env(work, machine.use_gpus, topology),
    )
    store = SweepStore.create(results, plan.model_copy(update={"slurm": slurm, "calibrate": "only"}))
    click.echo(f"sweep {plan.name} in {store.folder}", err=True)
    return show_calibration(store, drive(store, Lines()), as_json)


def show_calibration(store: SweepStore, records: Sequence[RunRecord], as_json: bool) -> int:
    """Print the table, keep the file.

    Raises:
        ExecutionError: nothing was measured; the message has the cause.
    """
    from harness.cli.tables import calibration_text, compute_text

    path = keep_calibration(store, records)
    calibration = next((r.calibration for r in reversed(records) if r.calibration), None)
    if calibration is None or path is None:
        failure = next((r.failure for r in reversed(records) if r.failure), None)
        cause = f"{failure.failure_class}: {failure.message} (log: {failure.log})" if failure else "no run ended"
        raise ExecutionError(f"the links were not measured: {cause}; see {store.folder}, and run it again")
    click.echo(calibration_text(calibration), err=as_json)
    if calibration.compute:
        click.echo("\n" + compute_text(calibration.compute), err=as_json)
    click.echo(f"\nfile: {path}", err=as_json)
    if as_json:
        click.echo(calibration.model_dump_json(indent=1))
    return 0


def keep_calibration(store: SweepStore, records: Sequence[RunRecord]) -> Path | None:
    """Write the newest calibration beside the sweep's plan; None if there is none."""
    from harness.calibration import FILE

    found = next((record.calibration for record in reversed(records) if record.calibration), None)
    if found is None:
        return None
    write_atomic(store.folder / FILE, found.model_dump_json(indent=1))
    return store.folder / FILE
