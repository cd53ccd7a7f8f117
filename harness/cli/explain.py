"""``meshsweep explain``: why one layout is faster, smaller or heavier than another."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

import click

from harness.cli.options import json_option, results_option, sweep_folder
from harness.errors import UnknownNameError, UsageError

if TYPE_CHECKING:
    from harness.compare import CellResult, Comparison


@click.command()
@click.argument("sweep")
@click.argument("cell")
@click.argument("other", metavar="[CELL]", required=False)
@results_option
@json_option
def explain(sweep: str, cell: str, other: str | None, results: Path, as_json: bool) -> int:
    """Say why one layout of a sweep is faster, smaller or heavier than another, and draw it.

    Without a second CELL it is held against the fastest layout.

    \b
    Example:
      meshsweep explain 20260102-030405-tiny-w4 fsdp:s4 hsdp:r2s2
    """
    from harness.compare import compare
    from harness.report.explain import explain as explained
    from harness.report.explain_plot import draw_explanation
    from harness.report.picture_file import to_png
    from harness.store import SweepStore, write_atomic

    store = SweepStore.open(sweep_folder(results, sweep))
    comparison = compare(store.plan(), store.records())
    cells = [find_cell(comparison, cell)]
    against = find_cell(comparison, other) if other else comparison.best
    if against is not None and against != cells[0]:
        cells.append(against)
    explanation = explained(comparison, cells)
    words = "-".join(re.sub(r"[^A-Za-z0-9]+", "-", one.label).strip("-") for one in cells)
    picture = store.report_folder / f"explain-{words}.png"
    write_atomic(picture, to_png(draw_explanation(comparison, cells)))
    click.echo(explanation.text, err=as_json)
    click.echo(f"\npicture: {picture}", err=as_json)
    if as_json:
        click.echo(explanation.model_dump_json(indent=1))
    return 0


def find_cell(comparison: Comparison, name: str) -> CellResult:
    """A cell by its label, its text or, where only one has it, its strategy.

    Raises:
        UsageError: no cell or several have that name.
    """
    found = [c for c in comparison.cells if name in (c.label, c.layout.text)]
    found = found or [c for c in comparison.cells if name == c.layout.strategy]
    if not found:
        raise UnknownNameError("cell", name, [c.layout.text for c in comparison.cells])
    if len(found) > 1:
        names = ", ".join(c.layout.text for c in found)
        raise UsageError(f"cell {name!r} could be any of {names}; name one of them")
    return found[0]
