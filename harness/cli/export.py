"""``meshsweep export`` and ``meshsweep benchmarks``."""

from __future__ import annotations

import json
from pathlib import Path

import click

from harness.cli.options import json_option, results_option, sweep_folder
from harness.cli.output import Output, check_output

BENCHMARKS = "pytest-benchmark"
FORMATS = (BENCHMARKS, "tensorboard", "wandb", "mlflow")


@click.command()
@click.argument("sweep", required=False)
@click.option("--to", "form", type=click.Choice(FORMATS), required=True, help="Whose form.")
@click.option(
    "--output", type=Output(folder=None), metavar="PATH", help="File or folder; default in the sweep's report."
)
@results_option
@json_option
def export(sweep: str | None, form: str, output: Path | None, results: Path, as_json: bool) -> int:
    """Give a sweep's measured cells (default: the newest sweep) to another tool.

    wandb and mlflow follow their own settings (WANDB_MODE, MLFLOW_TRACKING_URI) and else write under --output.

    \b
    Examples:
      meshsweep export --to pytest-benchmark --output steps.json
      meshsweep export 20260102-030405-tiny-w4 --to tensorboard --output runs
    """
    from harness.compare import compare
    from harness.interchange.pytest_benchmark import to_benchmarks
    from harness.interchange.trackers import TRACKERS, tracked_runs
    from harness.store import SweepStore, write_atomic

    if output is not None:
        check_output(output, "--output", folder=form != BENCHMARKS)
    store = SweepStore.open(sweep_folder(results, sweep))
    comparison = compare(store.plan(), store.records())
    path = output or store.report_folder / ("benchmarks.json" if form == BENCHMARKS else form)
    if form == BENCHMARKS:
        document = to_benchmarks(comparison)
        write_atomic(path, json.dumps(document, indent=1))
        cells = len(document["benchmarks"])
    else:
        runs = tracked_runs(comparison)
        TRACKERS[form](runs, path)
        cells = len(runs)
    click.echo(f"{cells} cells of {comparison.plan.name} to {path}", err=as_json)
    if as_json:
        click.echo(json.dumps({"sweep": comparison.plan.name, "form": form, "cells": cells, "output": str(path)}))
    return 0


@click.command()
@click.argument("files", nargs=-1, required=True, type=click.Path(path_type=Path), metavar="FILE...")
@click.option("--markdown", is_flag=True, help="Print GitHub-flavoured Markdown.")
@json_option
def benchmarks(files: tuple[Path, ...], markdown: bool, as_json: bool) -> int:
    """Report files of pytest-benchmark, such as those of ``make bench``: fastest first, several side by side.

    \b
    Example:
      meshsweep benchmarks .benchmarks/*/0001_*.json
    """
    from harness.interchange.pytest_benchmark import read_benchmarks
    from harness.report.benchmarks import benchmarks_markdown, benchmarks_text

    found = [(path.name, read_benchmarks(path)) for path in files]
    click.echo(benchmarks_markdown(found) if markdown else benchmarks_text(found), err=as_json)
    if as_json:
        click.echo(json.dumps([{"file": name, **one.model_dump()} for name, read in found for one in read], indent=1))
    return 0
