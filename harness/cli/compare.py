"""``meshsweep compare``."""

from __future__ import annotations

from pathlib import Path

import click

from harness.cli.machine import Decorated
from harness.cli.options import json_option, results_option, sweep_folder
from harness.cli.output import Output
from harness.cli.values import NumberRange

LEAST_ALPHA = 0.001  # probabilities are drawn 2000 times, which tells no smaller one


def outcome_options(command: Decorated) -> Decorated:
    """--markdown --junit."""
    for option in (
        click.option("--junit", type=Output(), metavar="FILE", help="Write JUnit XML, a case a cell."),
        click.option(
            "--markdown",
            type=Output(allow_dash=True),
            metavar="FILE",
            help="Write GitHub-flavoured Markdown; - prints it instead of the table.",
        ),
    ):
        command = option(command)
    return command


@click.command()
@click.argument("before", metavar="A")
@click.argument("after", metavar="B")
@click.option(
    "--alpha",
    type=NumberRange(LEAST_ALPHA, 1, max_open=True),
    default=0.025,
    show_default=True,
    help="False-alarm rate: how often unchanged sweeps may show any cell as changed.",
)
@click.option(
    "--slower",
    type=NumberRange(0, 1, max_open=True),
    default=0.02,
    show_default=True,
    help="Least share of its speed that a cell must have lost to be called slower.",
)
@click.option("--across", metavar="LIST", default="", help="Fields that may differ, e.g. torch,driver; they are named.")
@outcome_options
@results_option
@json_option
def compare(
    before: str,
    after: str,
    alpha: float,
    slower: float,
    across: str,
    markdown: Path | None,
    junit: Path | None,
    results: Path,
    as_json: bool,
) -> int:
    """Say what changed from sweep A to sweep B, cell by cell: faster, slower, tie, too few samples, incomparable.

    Sweeps of another machine, torch or workload are not compared unless --across names every field that differs.
    Exit codes: 0 clean; 1 a cell is slower; 2 a cell that A measured broke, nothing could be compared, or wrong use.

    \b
    Examples:
      meshsweep compare before-upgrade after-upgrade --across torch
      meshsweep compare main pr --results /shared/results --junit changes.xml --markdown - >> "$GITHUB_STEP_SUMMARY"
    """
    from harness.compare import compare as compare_cells
    from harness.compare.change import Rule, compare_sweeps
    from harness.report.changes import change_markdown, change_text
    from harness.report.changes import junit as to_junit
    from harness.store import SweepStore, write_atomic

    first, second = (SweepStore.open(sweep_folder(results, name)) for name in (before, after))
    rule = Rule(alpha=alpha, slower=slower, across=tuple(name.strip() for name in across.split(",") if name.strip()))
    found = compare_sweeps(
        compare_cells(first.plan(), first.records()), compare_cells(second.plan(), second.records()), rule
    )
    if junit is not None:
        write_atomic(junit, to_junit([found]))
    if markdown is not None and str(markdown) != "-":
        write_atomic(markdown, change_markdown(found))
    click.echo(change_markdown(found) if str(markdown) == "-" else change_text(found), err=as_json)
    if as_json:
        click.echo(found.model_dump_json(indent=1))
    return found.exit_code
