"""Live progress: a bar a cell in a terminal, a line a run elsewhere. Always on stderr."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import click
from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn

from harness.launch.progress import Position
from harness.layout import Layout
from harness.record import RunRecord
from harness.spec import Launch, SweepPlan
from harness.sweep.drive import Observer, Silent


@contextmanager
def watching(plan: SweepPlan, folder: Path) -> Iterator[Observer]:
    """An observer that shows a sweep as it goes on."""
    click.echo(f"sweep {plan.name} in {folder}", err=True)
    if not sys.stderr.isatty():
        yield Lines()
        return
    columns = (
        TextColumn("{task.description}"),
        BarColumn(bar_width=30),
        TextColumn("{task.percentage:>3.0f}%"),
        TextColumn("{task.fields[left]:>9}"),
        TextColumn("{task.fields[state]}"),
    )
    with Progress(*columns, console=Console(stderr=True)) as progress:
        yield Bars(plan, progress)


class Lines(Silent):
    """One line for every record."""

    def recorded(self, record: RunRecord) -> None:
        click.echo(f"  {_line(record)}", err=True)


def _line(record: RunRecord) -> str:
    spec = record.spec
    if spec.purpose == "calibrate":
        return f"links: {record.status}, {record.wall_s:.1f} s"
    what = "verify" if spec.purpose == "verify" else f"round {spec.repeat + 1}"
    end: str = record.status
    if record.failure:
        end += f": {record.failure.failure_class} in {record.failure.phase}"
    start = "" if record.startup_s is None else f", first step after {record.startup_s:.1f} s"
    return f"{spec.layout.label}: {what} {end}, {record.wall_s:.1f} s{start}"


class Bars(Silent):
    """A bar a cell: one unit for its verify run and one for each round."""

    def __init__(self, plan: SweepPlan, progress: Progress) -> None:
        self._plan, self._progress = plan, progress
        self._started = time.monotonic()
        self._units = 1 + plan.most_rounds
        layouts = tuple(dict.fromkeys((plan.reference, *plan.layouts)))
        width = max(len(layout.label) for layout in layouts)
        self._bars: dict[Layout, TaskID] = {}
        for layout in layouts:
            units = self._units if layout in plan.layouts else 1
            self._bars[layout] = progress.add_task(
                layout.label.ljust(width), total=float(units), left="", state="waiting"
            )
        self._done = dict.fromkeys(layouts, 0.0)
        self._ended: set[Layout] = set()

    def launched(self, launches: tuple[Launch, ...]) -> None:
        self._race_goes_on({run.layout for launch in launches for run in launch.runs if run.purpose == "time"})
        for launch in launches:
            for run in launch.runs:
                self._show(run.layout, 0.0, "queued")

    def at(self, launch: Launch, positions: list[Position]) -> None:
        if not positions:
            return
        last = max(positions)
        first = launch.runs[0]
        expected = 5 if first.purpose == "verify" else len(launch.runs) * (first.timed_steps + 10)
        part = min(0.95, last.sequence / expected)
        for index, run in enumerate(launch.runs):
            state = last.phase if index == last.run else "beside " + launch.runs[last.run].layout.label
            self._show(run.layout, part, state)

    def recorded(self, record: RunRecord) -> None:
        layout = record.spec.layout
        if record.spec.purpose == "calibrate":
            return
        if record.status == "measured":
            self._done[layout] += 1.0
        elif record.status == "failed":
            self._ended.add(layout)
        state = record.status if not record.failure else f"failed: {record.failure.failure_class}"
        self._show(layout, 0.0, state)

    def _race_goes_on(self, racing: set[Layout]) -> None:
        """Layouts that a race has stopped have nothing left to do."""
        if self._plan.race is None or not racing:
            return
        for layout in self._plan.layouts:
            if layout not in racing and layout not in self._ended:
                self._ended.add(layout)
                self._progress.update(self._bars[layout], total=max(1.0, self._done[layout]), state="stopped early")

    def _show(self, layout: Layout, part: float, state: str) -> None:
        bar = self._bars[layout]
        self._progress.update(bar, completed=self._done[layout] + part, state=state)
        for other, task in self._bars.items():
            self._progress.update(task, left=self._left(other, part))

    def _left(self, layout: Layout, part: float) -> str:
        """Time left for a cell at the pace so far.

        Cells that are still to be timed end together, with the sweep, since they are timed side by side.
        """
        ended = layout in self._ended or self._done[layout] >= (self._progress.tasks[self._bars[layout]].total or 0.0)
        if ended:
            return ""
        open_cells = [x for x in self._bars if x not in self._ended]
        total = sum(self._progress.tasks[self._bars[x]].total or 0.0 for x in open_cells)
        done = sum(self._done[x] for x in open_cells) + part
        if done <= 0:
            return ""
        left_s = (time.monotonic() - self._started) * (total - done) / done
        return f"~{left_s / 60:.0f} min" if left_s > 90 else f"~{left_s:.0f} s"
