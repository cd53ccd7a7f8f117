"""The commands that only look: ``topology``, ``layouts``, ``status``, ``report``."""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from harness.cli.cluster import starting, waiting_text, without_plan
from harness.cli.machine import MachineOptions, files_option, gap_notes, machine_options
from harness.cli.options import (
    WorkOptions,
    cross_node_tp_option,
    json_option,
    resolve,
    results_option,
    sweep_folder,
    work_options,
)
from harness.cli.output import Output
from harness.errors import UsageError
from harness.topology.model import Topology

if TYPE_CHECKING:
    from harness.compare import Comparison
    from harness.store import SweepStore


@click.command()
@files_option("Read saved outputs instead.")
@click.option("--source", default="auto", show_default=True, help="Which reader asks this machine.")
@click.option("--measure", is_flag=True, help="Time the links inside this machine too, for a few seconds.")
@json_option
def topology(files: tuple[Path, ...], source: str, measure: bool, as_json: bool) -> int:
    """Show the devices, links and islands of this machine, or of saved tool outputs.

    \b
    Examples:
      meshsweep topology
      meshsweep topology --measure
      meshsweep topology --from topo.txt --json
    """
    from harness.cli.tables import topology_text
    from harness.topology.detect import detect, read_files
    from harness.topology.json_form import json_object

    if measure and files:
        raise UsageError("--measure times this machine's links, not those of saved files; take one of the two out")
    found = read_files(files) if files else detect(source)
    if measure and isinstance(found, Topology):
        found = _with_speeds(found)
    form = json_object(found)
    click.echo(topology_text(form), err=as_json)
    if as_json:
        click.echo(json.dumps(form, indent=1))
    return 0


def _with_speeds(topology: Topology) -> Topology:
    from harness.execute.link_speed import inside

    speeds = inside(topology)
    return topology.model_copy(update={"measured": speeds.inside, "warnings": (*topology.warnings, *speeds.faults)})


def _planned(folder: Path, as_json: bool) -> bool:
    """Wait until a sweep has its plan, saying what it waits for; False where none will come, or on Ctrl-C."""
    said, plan = "", folder / "sweep.json"
    with contextlib.suppress(KeyboardInterrupt):
        while starting(folder) and not plan.exists():
            if (text := waiting_text(folder)) != said:
                click.echo(text, err=as_json)
                said = text
            time.sleep(1.0)
    return plan.exists()


def _without_cells(sweep: str, as_json: bool) -> int:
    if as_json:
        click.echo(json.dumps({"sweep": sweep, "cells": []}, indent=1))
    return 0


@click.command()
@work_options
@machine_options
@cross_node_tp_option
@json_option
def layouts(
    wanted: WorkOptions,
    machine: MachineOptions,
    allow_cross_node_tp: bool,
    as_json: bool,
) -> int:
    """Show every layout that is legal for a model, where it lies on the machine, and the others with their rule.

    \b
    Examples:
      meshsweep layouts --model 8b --ranks 4
      meshsweep layouts --model 70b --nodes 16 --gpus-per-node 8 --batch 128
      meshsweep layouts --from topo.txt --use-gpus 0-3 --order tp,dp_shard,dp_replicate
    """
    from harness.cli.tables import placements_json, placements_text
    from harness.layout.candidates import candidates

    work = resolve(wanted, machine)
    found = candidates(
        work.requests,
        work.workload,
        work.ranks.world_size,
        work.topology,
        allow_cross_node_tp=allow_cross_node_tp,
    )
    if machine.use_gpus is None:
        found = found._replace(notes=found.notes + gap_notes(work.topology))
    click.echo(placements_text(found), err=as_json)
    if as_json:
        click.echo(json.dumps(placements_json(found), indent=1))
    return 0


@click.command()
@click.argument("sweep", required=False)
@results_option
@click.option("--watch", "go_on", is_flag=True, help="Draw it again until the sweep is complete or nobody runs it.")
@json_option
def status(sweep: str | None, results: Path, go_on: bool, as_json: bool) -> int:
    """Show how far a sweep (default: the newest) has come, cell by cell.

    \b
    Examples:
      meshsweep status
      meshsweep status 20260102-030405-tiny-w4 --watch
    """
    from harness.cli.tables import status_rows, status_text
    from harness.store import SweepStore

    early = without_plan(results, sweep)
    if early is not None:
        if not (go_on and _planned(early, as_json)):
            click.echo(waiting_text(early), err=as_json)
            return _without_cells(early.name, as_json)
        sweep = str(early)
    store = SweepStore.open(sweep_folder(results, sweep))
    if go_on:
        from harness.cli.watch import watch

        # who has seen enough ends the watching, not the sweep
        with contextlib.suppress(KeyboardInterrupt):
            watch(store, err=as_json)
    plan, records = store.plan(), store.records()
    click.echo(status_text(plan, records, store.folder), err=as_json)
    if as_json:
        click.echo(json.dumps({"sweep": plan.name, "cells": status_rows(plan, records)}, indent=1))
    return 0


@click.command()
@click.argument("sweeps", nargs=-1, metavar="[SWEEP]...")
@results_option
@click.option(
    "--output",
    type=Output(folder=True),
    metavar="FOLDER",
    help="Where to write; default the sweep's own report folder, for several sweeps RESULTS/side-by-side.",
)
@json_option
def report(sweeps: tuple[str, ...], results: Path, output: Path | None, as_json: bool) -> int:
    """Compare a sweep's cells (default: the newest sweep) and write the report; several sweeps side by side.

    The folder holds report.html (one file, opens anywhere), report.md for a pull request, cells and samples as CSV,
    cells as Parquet, comparison.json, and each picture as PNG and SVG.

    \b
    Examples:
      meshsweep report
      meshsweep report 20260102-030405-tiny-w4
      meshsweep report tiny-w4 tiny-w8 --output scaling
    """
    from harness.store import SweepStore

    stores = [SweepStore.open(sweep_folder(results, sweep)) for sweep in sweeps or (None,)]
    if len(stores) == 1:
        show_report(stores[0], as_json, output)
    else:
        _show_reports(stores, output or results / "side-by-side", as_json)
    return 0


def compared(store: SweepStore) -> Comparison:
    """A sweep's comparison, with its study of checkpoints if there is one."""
    from harness.compare import compare

    comparison = compare(store.plan(), store.records())
    study = store.checkpoint_study()
    return comparison if study is None else comparison.model_copy(update={"checkpoint_study": study})


def show_report(store: SweepStore, as_json: bool, folder: Path | None = None) -> Comparison:
    """Compare a sweep's records, write its report, print the ranking and the report's path."""
    from harness.report import render, write_report

    comparison = compared(store)
    files = write_report(comparison, folder or store.report_folder)
    click.echo(render(comparison), err=as_json)
    click.echo(f"\nreport: {files.html}", err=as_json)
    if as_json:
        click.echo(comparison.model_dump_json(indent=1))
    return comparison


def _show_reports(stores: Sequence[SweepStore], folder: Path, as_json: bool) -> None:
    from harness.compare import sentence
    from harness.report import write_reports

    comparisons = [compared(store) for store in stores]
    files = write_reports(comparisons, folder)
    for comparison in comparisons:
        click.echo(f"{comparison.plan.name}: {sentence(comparison)}", err=as_json)
    click.echo(f"\nreport: {files.html}", err=as_json)
    if as_json:
        click.echo(json.dumps([c.model_dump(mode="json") for c in comparisons], indent=1))
