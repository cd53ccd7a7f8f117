"""``status --watch``: the table of a sweep, drawn again as the sweep goes on."""

from __future__ import annotations

import time

from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from harness.cli.tables import status_rows
from harness.execute.jobs import Running, running_jobs
from harness.launch.folder import read_launch
from harness.launch.progress import read
from harness.record import RunRecord
from harness.spec import SweepPlan
from harness.store import SweepStore
from harness.sweep.steps import next_launches

EVERY_S = 1.0


def watch(store: SweepStore, every_s: float = EVERY_S, *, err: bool = False) -> None:
    """Draw on stdout (``err``: stderr) until the sweep is complete or nobody runs it; looks only, changes nothing."""
    plan = store.plan()
    with Live(console=Console(stderr=err), refresh_per_second=4) as live:
        while True:
            records = store.records()
            living = running_jobs(store, plan)
            live.update(_picture(store, plan, records, living))
            if not living and (not next_launches(plan, records, 0) or not store.driven):
                return
            time.sleep(every_s)


def _picture(store: SweepStore, plan: SweepPlan, records: tuple[RunRecord, ...], living: list[Running]) -> Group:
    cells = Table(title=str(store.folder), title_justify="left")
    for name in ("layout", "state", "verified", "rounds"):
        cells.add_column(name)
    for row in status_rows(plan, records):
        verified = "yes" if row["verified"] else "no"
        cells.add_row(row["layout"], row["state"], verified, f"{row['rounds']}/{plan.most_rounds}")
    running = Table(title="jobs", title_justify="left")
    for name in ("job", "state", "launch", "at"):
        running.add_column(name)
    for job in living:
        for launch_id in job.launches:
            running.add_row(job.job_id, job.state, launch_id, _position(store, launch_id))
    left = len(next_launches(plan, records, 0))
    end = Text(f"{len(records)} records; {left} launches to go" if left else f"{len(records)} records; complete")
    return Group(cells, running, end) if living else Group(cells, end)


def _position(store: SweepStore, launch_id: str) -> str:
    """Where the rank that is farthest behind is."""
    folder = store.launch_folder(launch_id)
    launch = read_launch(folder)
    positions = read(folder, launch.ranks.per_node)
    if not positions:
        return ""
    slowest = min(positions)
    return f"{launch.runs[slowest.run].layout.label}: {slowest.phase}"
