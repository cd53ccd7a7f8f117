"""Drive a sweep: launch what is missing, collect what came out, until nothing is left."""

from __future__ import annotations

import time
from collections import Counter
from pathlib import Path
from typing import Protocol

from harness.errors import MeshsweepError, StoreError
from harness.execute.collect import collect
from harness.execute.jobs import Job, Jobs, jobs_of
from harness.launch.folder import read_launch
from harness.launch.progress import Position, read
from harness.record import RunRecord
from harness.spec import Launch, SweepPlan
from harness.store import SweepStore, write_atomic
from harness.sweep.steps import next_launches

LET_GO_WITHIN_S = 120.0
LET_GO_POLL_S = 0.5
CANCEL = "cancel"  # a file in the sweep's folder: whoever drives the sweep ends its jobs and stops


class SweepCancelled(MeshsweepError):
    """Somebody called ``meshsweep cancel``."""

    exit_code = 130


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

    On Ctrl-C every local process of the sweep is ended and what was measured is recorded before KeyboardInterrupt
    goes on; Slurm jobs go on.

    Raises:
        SweepCancelled: ``meshsweep cancel`` was called meanwhile.
        StoreError: another process drives the sweep.
    """
    observer = observer or Silent()
    with store.driving():
        (store.folder / CANCEL).unlink(missing_ok=True)
        plan = store.plan()
        jobs = jobs_of(store, plan)
        _Watch(store, jobs, observer).run(jobs.find(), [])
        _collect_all(store, observer)
        while launches := next_launches(plan, store.records(), _launch_count(store)):
            observer.launched(launches)
            _Watch(store, jobs, observer).run([], list(launches))
            _collect_all(store, observer)
        return store.records()


class _Watch:
    """Jobs under way, and launches that wait for one."""

    def __init__(self, store: SweepStore, jobs: Jobs, observer: Observer) -> None:
        self.store, self.jobs, self.observer = store, jobs, observer
        self.running: list[Job] = []

    def run(self, running: list[Job], waiting: list[Launch]) -> None:
        """Submit what waits and look after what runs until nothing is left of either."""
        self.running = running
        try:
            while self.running or waiting:
                if (self.store.folder / CANCEL).exists():
                    raise SweepCancelled(
                        f"sweep {self.store.folder.name} was cancelled; 'meshsweep resume' runs what is missing"
                    )
                self._submit(waiting)
                self.running = [job for job in self.running if self._look(job)]
                if self.running or waiting:
                    time.sleep(self.jobs.poll_s)
        except SweepCancelled:
            self._end()
            raise
        except BaseException:
            if not self.jobs.outlive:
                self.running += [job for job in self.jobs.find() if job.job_id not in {x.job_id for x in self.running}]
                self._end()
            raise

    def _submit(self, waiting: list[Launch]) -> None:
        while count := self.jobs.take(len(waiting), len(self.running)):
            job = self.jobs.submit(waiting[:count])
            if job is None:
                return
            self.running.append(job)
            del waiting[:count]

    def _look(self, job: Job) -> bool:
        """Whether the job is still to be watched; what of it is over is recorded."""
        alive = job.poll()
        left = False
        for launch_id in job.launches:
            folder = self.store.launch_folder(launch_id)
            if not alive or job.over(launch_id):
                _collect(self.store, folder, self.observer)
                continue
            left = True
            launch = read_launch(folder)
            positions = read(folder, launch.ranks.per_node)
            if positions:
                self.observer.at(launch, positions)
        return alive and (left or not self.jobs.outlive)

    def _end(self) -> None:
        for job in self.running:
            job.cancel()
        for job in self.running:
            for launch_id in job.launches:
                _collect(self.store, self.store.launch_folder(launch_id), self.observer, cancelled=True)


def cancel(store: SweepStore) -> list[str]:
    """End a sweep's jobs and record what they measured; the ids of those jobs.

    Whoever drives the sweep is told first and stops by itself.

    Raises:
        StoreError: it does not let go of the sweep.
        ExecutionError: a job does not end.
    """
    (store.folder / CANCEL).touch()
    plan, ended, left_s = store.plan(), list[str](), LET_GO_WITHIN_S
    while True:
        ended += [job.job_id for job in _alive(store, plan) if job.job_id not in ended]
        try:
            with store.driving():
                # anew: what was being submitted just now is known only when nobody drives the sweep
                for job in _alive(store, plan):
                    ended += [job.job_id] if job.job_id not in ended else []
                    job.cancel()
                for folder in store.launches():
                    _collect(store, folder, Silent(), cancelled=True)
                (store.folder / CANCEL).unlink(missing_ok=True)
                return ended
        except StoreError:
            # only these waits count: while the scheduler is silent, looking for jobs takes its time on both sides
            if left_s <= 0:
                raise
        time.sleep(LET_GO_POLL_S)
        left_s -= LET_GO_POLL_S


def _alive(store: SweepStore, plan: SweepPlan) -> list[Job]:
    return [job for job in jobs_of(store, plan).find() if job.poll()]


def _launch_count(store: SweepStore) -> int:
    return len(store.launches())


def _collect_all(store: SweepStore, observer: Observer) -> None:
    for folder in store.launches():
        _collect(store, folder, observer)


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
