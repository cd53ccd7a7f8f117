"""``meshsweep score``: predictions beside a table of published runs."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from harness.cli.options import json_option
from harness.errors import UsageError

if TYPE_CHECKING:
    from harness.score.score import Score


@click.command()
@click.argument("table", type=click.Path(path_type=Path), metavar="FILE.csv")
@click.option(
    "--bandwidth",
    "bandwidth_file",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Measured bandwidth over node counts of the rows' cluster: CSV with collective, nodes, mean_or_median_GBps.",
)
@json_option
def score(table: Path, bandwidth_file: Path | None, as_json: bool) -> int:
    """Predict every row of a table of published training runs and show how far off the predictions are.

    \b
    Examples:
      meshsweep score published.csv
      meshsweep score published.csv --bandwidth curve.csv --json
    """
    from harness.predict.network import read_curve
    from harness.score.score import score as score_table
    from harness.score.table import read_table

    if not table.is_file():
        raise UsageError(f"{table} is no file; give a CSV table of published runs, see docs/prediction.md")
    if bandwidth_file is not None and not bandwidth_file.is_file():
        raise UsageError(f"--bandwidth {bandwidth_file} is no file; give a CSV table of bandwidths, or leave it out")
    rows, left = read_table(table, read_curve(bandwidth_file) if bandwidth_file else None)
    found = score_table(str(table), rows, left)
    click.echo(score_text(found), err=as_json)
    if as_json:
        click.echo(found.model_dump_json(indent=1))
    return 0


def score_text(found: Score) -> str:
    """Errors by source, then what was left out and why."""
    from tabulate import tabulate

    rows = [
        {
            "source": one.source,
            "rows": f"{one.rows} ({one.calibration_rows} calibration)",
            "speed rows": one.speed_rows,
            "speed error": _percent(one.speed_error),
            "on evaluation": _percent(one.speed_error_evaluation),
            "bias": _percent(one.speed_bias, sign=True),
            "order right": f"{one.pairs_right}/{one.pairs}" if one.pairs else "-",
            "memory rows": f"{one.memory_rows} {one.memory_kind}" if one.memory_rows else "-",
            "memory error": _percent(one.memory_error),
            "false fits": one.false_fits,
            "false does not fit": one.false_does_not_fit,
        }
        for one in found.sources
    ]
    pairs, right = sum(one.pairs for one in found.sources), sum(one.pairs_right for one in found.sources)
    lines = [
        tabulate(rows, headers="keys", disable_numparse=True),
        "",
        "errors: median of absolute relative errors; order: pairs of layouts of one work that differ by over 10%",
        f"order over all: {right} of {pairs}" + (f", {right / pairs:.1%}" if pairs else ""),
        f"split: {found.split_rule}",
    ]
    for source, reasons in found.left_out.items():
        lines += [f"left out of {source}: {count} {reason}" for reason, count in reasons.items()]
    return "\n".join(lines)


def _percent(value: float | None, *, sign: bool = False) -> str:
    from harness.compare.wording import signed

    return "-" if value is None else f"{signed(100 * value)}%" if sign else f"{value:.1%}"
