"""``meshsweep history``."""

from __future__ import annotations

from pathlib import Path

import click

from harness.cli.options import json_option, results_option
from harness.cli.output import Output
from harness.errors import UsageError


@click.command()
@click.argument("suite", default="")
@click.option(
    "--cell", "cells", multiple=True, metavar="LABEL", help="Show this cell only; may be given several times."
)
@click.option("--since", metavar="DATE", help="Tell of changes from this day on, e.g. 2026-01-09; default all.")
@click.option(
    "--picture",
    type=Output(),
    metavar="FILE",
    help="Where to draw it, .png or .svg; default history.png in the results folder.",
)
@click.option("--markdown", is_flag=True, help="Print GitHub-flavoured Markdown.")
@results_option
@json_option
def history(
    suite: str,
    cells: tuple[str, ...],
    since: str | None,
    picture: Path | None,
    markdown: bool,
    results: Path,
    as_json: bool,
) -> int:
    """Show how fast each cell was night by night, where its level changed, and which layout stopped beating which.

    SUITE: take sweeps whose names begin with it; default all. Of these, sweeps of the work that most of them did.

    \b
    Examples:
      meshsweep history
      meshsweep history nightly- --cell "fsdp s4" --picture fsdp.svg
    """
    from harness.history.cache import read_tables
    from harness.history.nights import history as trends
    from harness.report.history import history_markdown, history_text
    from harness.report.history_plot import history_bytes
    from harness.store import write_atomic

    path = picture or results / "history.png"
    if path.suffix not in (".png", ".svg"):
        raise UsageError(f"--picture {path} has no known ending; choose one of: .png, .svg")
    found = trends(read_tables(results, columns=("sweep",)).cells, suite, cells)
    first = next((n for n, night in enumerate(found.nights) if f"{night.created_at:%Y-%m-%d}" >= (since or "")), None)
    show = history_markdown if markdown else history_text
    click.echo(show(found, len(found.nights) if first is None else first), err=as_json)
    if found.cells:
        write_atomic(path, history_bytes(found, path.suffix))
    click.echo(f"\npicture: {path if found.cells else 'none, as no cell was timed'}", err=True)
    if as_json:
        click.echo(found.model_dump_json(indent=1))
    return 0
