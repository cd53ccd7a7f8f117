"""``status --watch``: the table of a sweep, drawn again as the sweep goes on."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from harness.cli.tables import left_text, status_rows
from harness.errors import MeshsweepError
from harness.execute.jobs import Running, running_jobs
from harness.launch.folder import read_launch
from harness.launch.progress import read
from harness.record import RunRecord
from harness.slurm import commands
from harness.spec import SweepPlan
from harness.store import SweepStore
from harness.sweep.steps import next_launches

EVERY_S = 1.0
LATE_S = 5.0
LEAST_ROWS = 3
LEAST_COLUMNS = 12
SETTLED = ("measured", "stopped early", "diverged")


def watch(store: SweepStore, every_s: float = EVERY_S, *, err: bool = False) -> None:
    """Draw on stdout (``err``: stderr) until the sweep is complete, nobody runs it, or Ctrl-C; looks only."""
    plan = store.plan()
    console = Console(stderr=err)
    asked = _Asked(store, plan, every_s)
    # a screen of its own: what is drawn in place cannot be drawn over when the window becomes narrower
    whole = console.is_terminal and not console.is_dumb_terminal
    with commands.SILENCE.unsaid(), Live(console=console, screen=whole, auto_refresh=False, transient=True) as live:
        while True:
            records = store.records()
            living = asked.jobs()
            live.update(picture(store, plan, records, living, asked.late(), console.size), refresh=True)
            idle = living == [] and (not next_launches(plan, records, 0) or not store.driven)
            if idle and not running_jobs(store, plan):
                return
            time.sleep(every_s)


class _Asked:
    """A sweep's jobs, asked for again and again in a thread of its own: Slurm may take a minute to answer."""

    def __init__(self, store: SweepStore, plan: SweepPlan, every_s: float) -> None:
        self._store, self._plan, self._every_s = store, plan, every_s
        self._jobs: list[Running] | None = None
        self._error: MeshsweepError | None = None
        self._since: float | None = None
        threading.Thread(target=self._ask, daemon=True).start()

    def _ask(self) -> None:
        try:
            while True:
                self._since = time.monotonic()
                self._jobs = running_jobs(self._store, self._plan)
                self._since = None
                time.sleep(self._every_s)
        except MeshsweepError as error:
            self._error = error

    def jobs(self) -> list[Running] | None:
        """As they were last seen; None before the first answer."""
        if self._error is not None:
            raise self._error
        return self._jobs

    def late(self) -> float | None:
        """For how many seconds an answer is late; None if it is not."""
        since = self._since
        waited_s = 0.0 if since is None else time.monotonic() - since
        return waited_s if waited_s > LATE_S else None


def picture(
    store: SweepStore,
    plan: SweepPlan,
    records: tuple[RunRecord, ...],
    living: list[Running] | None,
    late_s: float | None,
    size: tuple[int, int],
) -> Group:
    """Everything in a window of ``size`` (columns, lines): of what finds no room, it is said what it is."""
    width, height = size
    jobs = [(job, launch_id) for job in living or () for launch_id in job.launches]
    # the folder, a header and what is left out of each table, blank lines, the end
    room = max(2 * LEAST_ROWS, height - (9 if jobs else 6))
    cells = status_rows(plan, records)
    job_rows = min(len(jobs), max(LEAST_ROWS, room - len(cells)))
    shown, hidden = _most_telling(cells, room - job_rows)
    parts: list[RenderableType] = [_line(str(store.folder)), _cells(plan, shown, width)]
    if hidden:
        parts.append(_line(f"and {_counted(row['state'] for row in hidden)}"))
    if jobs:
        parts += [_line(_jobs_heard(jobs, late_s)), _jobs(store, jobs[:job_rows], width)]
    if len(jobs) > job_rows:
        parts.append(_line(f"and {_counted(_word(job) for job, _ in jobs[job_rows:])}"))
    left = next_launches(plan, records, 0)
    end = f"{len(records)} records; {left_text(plan, left) if left else 'complete'}"
    return Group(*parts, _line(""), _line(end))


def _jobs_heard(jobs: Sequence[tuple[Running, str]], late_s: float | None) -> str:
    """How far what is said of the jobs can be trusted; nothing where it can."""
    if any(_word(job) == "unknown" for job, _ in jobs):
        return "Slurm does not answer; jobs go on meanwhile"
    return "" if late_s is None else f"Slurm does not answer; jobs as they were {late_s:.0f} s ago"


def _word(job: Running) -> str:
    return job.state.partition(":")[0]


def _line(text: str) -> Text:
    return Text(text, no_wrap=True, overflow="ellipsis")


def _most_telling(cells: list[dict[str, Any]], count: int) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """At most ``count`` cells in their order, those with something left to do before others; and those left out."""
    if len(cells) <= count:
        return cells, []
    by_need = sorted(range(len(cells)), key=lambda at: (cells[at]["state"] in SETTLED, at))
    kept = set(by_need[: max(1, count)])
    return [cells[at] for at in sorted(kept)], [cells[at] for at in sorted(set(by_need) - kept)]


def _counted(states: Iterable[str]) -> str:
    return ", ".join(f"{count} {state}" for state, count in Counter(states).items())


def _table(rows: dict[str, list[str]], elastic: str, width: int) -> Table:
    """Columns by name; when they are too wide together, the elastic one is cut."""
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    taken = sum(2 + max(map(len, (name, *column))) for name, column in rows.items() if name != elastic)
    for name in rows:
        most = max(LEAST_COLUMNS, width - taken) if name == elastic else None
        table.add_column(name, no_wrap=True, overflow="ellipsis", max_width=most)
    for row in zip(*rows.values(), strict=True):
        table.add_row(*map(Text, row))
    return table


def _cells(plan: SweepPlan, cells: Sequence[dict[str, Any]], width: int) -> Table:
    columns = {
        "layout": [cell["layout"] for cell in cells],
        "state": [cell["state"] for cell in cells],
        "verified": ["yes" if cell["verified"] else "no" for cell in cells],
        "rounds": [f"{cell['rounds']}/{plan.most_rounds}" for cell in cells],
    }
    return _table(columns, "layout", width)


def _jobs(store: SweepStore, jobs: Sequence[tuple[Running, str]], width: int) -> Table:
    columns = {
        "job": [job.job_id for job, _ in jobs],
        "state": [_word(job) for job, _ in jobs],
        "at": [_cut(_position(store, launch_id), width // 3) for _, launch_id in jobs],
        "launch": [launch_id for _, launch_id in jobs],
    }
    return _table(columns, "launch", width)


def _cut(text: str, width: int) -> str:
    return text if len(text) <= width else f"{text[: width - 1]}…"


def _position(store: SweepStore, launch_id: str) -> str:
    """Where the rank that is farthest behind is."""
    folder = store.launch_folder(launch_id)
    launch = read_launch(folder)
    positions = read(folder, launch.ranks.per_node)
    if not positions:
        return ""
    slowest = min(positions)
    alone = len(launch.runs) == 1
    return slowest.phase if alone else f"{slowest.phase}: {launch.runs[slowest.run].layout.label}"
