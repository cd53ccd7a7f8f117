"""Drive a sweep: launch what is missing, collect what came out, until nothing is left."""

from __future__ import annotations

import time
from collections import Counter
from pathlib import Path
from typing import Protocol

from harness.execute import jobs
from harness.execute.collect import collect
from harness.launch.folder import read_launch, write_launch
from harness.launch.progress import Position, read
from harness.record import RunRecord
from harness.spec import Launch, SweepPlan
from harness.store import SweepStore, write_atomic
from harness.sweep.steps import next_launches

POLL_S = 0.2


class Observer(Protocol):
    """Hears what a sweep does."""

    def launched(self, launches: tuple[Launch, ...]) -> None: ...
    def at(self, launch: Launch, positions: list[Position]) -> None: ...
    def recorded(self, record: RunRecord) -> None: ...


class Silent:
    """Hears nothing."""

    def launched(self, launches: tuple[Launch, ...]) -> None: ...
    def at(self, launch: Launch, positions: list[Position]) -> None: ...
    def recorded(self, record: RunRecord) -> None: ...


def drive(store: SweepStore, observer: Observer | None = None) -> tuple[RunRecord, ...]:
    """Run a sweep to its end, from wherever it stands; all its records.

    On Ctrl-C every process of the sweep is ended and what was measured is recorded before KeyboardInterrupt goes on.
    """
    with store.driving():
        return _drive(store, observer or Silent())


def _drive(store: SweepStore, observer: Observer) -> tuple[RunRecord, ...]:
    plan = store.plan()
    left = jobs.find(store.folder)
    if left is not None:
        _watch(store, left, observer)
    _collect_all(store, observer)
    while launches := next_launches(plan, store.records(), _launch_count(store)):
        folders = []
        for launch in launches:
            folders.append(store.launch_folder(launch.launch_id))
            write_launch(folders[-1], launch)
        observer.launched(launches)
        job = jobs.submit(store.folder, folders, plan.env)
        _watch(store, job, observer)
        _collect_all(store, observer)
    return store.records()


def _watch(store: SweepStore, job: jobs.LocalJob, observer: Observer) -> None:
    folders = [store.launch_folder(name) for name in job.file.launches]
    launches = {folder: read_launch(folder) for folder in folders}
    try:
        while job.alive:
            for folder in folders:
                ended = (folder / "outcome.json").exists()
                if ended:
                    _collect(store, folder, observer)
                elif (folder / "progress").exists():
                    observer.at(launches[folder], read(folder))
            time.sleep(POLL_S)
    except BaseException:
        job.cancel()
        _collect_all(store, observer, cancelled=True)
        raise


def _launch_count(store: SweepStore) -> int:
    return len(list((store.folder / "launches").glob("*")))


def _collect_all(store: SweepStore, observer: Observer, cancelled: bool = False) -> None:
    for folder in sorted((store.folder / "launches").glob("*")):
        _collect(store, folder, observer, cancelled)


def _collect(store: SweepStore, folder: Path, observer: Observer, cancelled: bool = False) -> None:
    """Record a launch once; a launch that never started leaves nothing to record."""
    if (folder / "collected").exists():
        return
    existing = store.records()
    known = {record.run_id for record in existing if record.launch_id == folder.name}
    attempts = Counter(record.run_id for record in existing)
    for record in collect(folder, attempts, cancelled=cancelled):
        if record.run_id not in known:
            store.add(record)
            observer.recorded(record)
    write_atomic(folder / "collected", "")


def outstanding(plan: SweepPlan, store: SweepStore) -> tuple[Launch, ...]:
    """What the sweep would launch next."""
    return next_launches(plan, store.records(), _launch_count(store))
