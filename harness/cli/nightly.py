"""``meshsweep nightly``."""

from __future__ import annotations

import contextlib
import json
import re
import shlex
import sys
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import click

from harness.cli.compare import outcome_options
from harness.cli.options import json_option, results_option
from harness.errors import StoreError

if TYPE_CHECKING:
    from harness.compare import Comparison
    from harness.history.nights import History


@click.command()
@click.argument("suite_name", metavar="SUITE", default="nightly")
@click.option("--profile", metavar="NAME", help="Site profile: run on Slurm; without it on this machine.")
@click.option("--baseline", metavar="SWEEP", help="Compare with this sweep; default the suite's first.")
@click.option("--weeks", type=click.IntRange(1), default=4, show_default=True, help="How far back the weeks before go.")
@outcome_options
@results_option
@json_option
@click.pass_context
def nightly(
    context: click.Context,
    suite_name: str,
    profile: str | None,
    baseline: str | None,
    weeks: int,
    markdown: Path | None,
    junit: Path | None,
    results: Path,
    as_json: bool,
) -> int:
    """Run a suite, compare it with its baseline and with the newest of each of the last weeks, print a summary.

    Exit codes: 0 clean; 1 a cell is slower than before; 2 broken: the sweep, or a cell that was measured before.

    \b
    Examples:
      meshsweep nightly nightly
      meshsweep nightly slurm/suites/nightly.toml --profile virtual --baseline nightly-20260102-030405
    """
    from harness.compare.change import Rule, compare_sweeps
    from harness.nightly.prune import prune_logs
    from harness.nightly.suite import read_suite
    from harness.nightly.summary import exit_code, recent, summary
    from harness.report.changes import change_markdown
    from harness.report.changes import junit as to_junit
    from harness.report.history import history_markdown
    from harness.store import SweepStore, write_atomic

    suite = read_suite(suite_name)
    if baseline is not None:
        SweepStore.open(results / baseline)
    earlier = _earlier(results, suite.name)
    sweep = suite.sweep_name()
    arguments = suite.arguments(sweep, results)
    if profile is not None:
        arguments += ["--cluster", "slurm", "--profile", profile]
    click.echo(f"meshsweep {shlex.join(arguments)}", err=True)
    # a run's own report goes where its progress goes; stdout is for the summary
    with contextlib.redirect_stdout(sys.stderr):
        context.find_root().command.main(args=arguments, prog_name="meshsweep", standalone_mode=False)
    tonight = _comparison(results / sweep)
    chosen = _chosen(results, earlier, baseline, weeks)
    rule = Rule(alpha=suite.alpha, slower=suite.slower)
    changes = [compare_sweeps(_comparison(folder), tonight, rule) for folder in chosen]
    code = exit_code(tonight, changes)
    prune_logs([*earlier, results / sweep], suite.keep_logs_days, suite.keep_logs_count)
    if junit is not None:
        write_atomic(junit, to_junit(changes))
    past = _history(results, suite.name)
    text = summary(tonight, changes, code, past)
    parts = [*map(change_markdown, changes), *([history_markdown(past, recent(past))] if past else [])]
    in_markdown = "\n".join([f"## {text.splitlines()[0]}", "", *parts])
    if markdown is not None and str(markdown) != "-":
        write_atomic(markdown, in_markdown)
    click.echo(in_markdown if str(markdown) == "-" else text, err=as_json)
    if as_json:
        document = {"sweep": sweep, "exit_code": code, "verdicts": [v.model_dump(mode="json") for v in changes]}
        document["history"] = past and past.model_dump(mode="json")
        click.echo(json.dumps(document, indent=1))
    return code


def _history(results: Path, suite: str) -> History | None:
    """Trends of the suite's nights; None, with a word on stderr, if one of them cannot be read."""
    from harness.history.cache import read_tables
    from harness.history.nights import history

    try:
        return history(read_tables(results, columns=("sweep",)).cells, f"{suite}-")
    except StoreError as error:
        click.echo(f"meshsweep: no history: {error}", err=True)
        return None


def _comparison(folder: Path) -> Comparison:
    from harness.compare import compare
    from harness.store import SweepStore

    store = SweepStore.open(folder)
    return compare(store.plan(), store.records())


def _earlier(results: Path, suite: str) -> list[Path]:
    """The suite's sweeps so far, oldest first; the names that ``Suite.sweep_name`` gives sort by time."""
    from harness.store import sweeps

    return [folder for folder in sweeps(results) if re.fullmatch(rf"{re.escape(suite)}-\d{{8}}-\d{{6}}", folder.name)]


def _chosen(results: Path, earlier: Sequence[Path], baseline: str | None, weeks: int) -> list[Path]:
    """The baseline (default: the suite's first sweep), and the newest sweep of each of the last weeks."""
    first = [results / baseline] if baseline is not None else list(earlier[:1])
    now = datetime.now(UTC)
    by_week: dict[int, Path] = {}
    for folder in earlier:
        made = datetime.strptime(folder.name[-15:], "%Y%m%d-%H%M%S").replace(tzinfo=UTC)
        week = (now - made) // timedelta(weeks=1)
        if week < weeks:
            by_week[week] = folder
    return list(dict.fromkeys([*first, *(by_week[week] for week in sorted(by_week))]))
