"""Jobs: what a sweep needs of them, and those of submitit's local executor: submitted, watched, found again, ended."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple, Protocol

import psutil
from pydantic import Field

from harness.base import Frozen
from harness.errors import ExecutionError, StoreError
from harness.execute.agent import launch_limit_s, run_job
from harness.launch.folder import has_ended, read_launch, write_launch
from harness.spec import Launch, SweepPlan
from harness.store import SweepStore, read_model, write_atomic

MARGIN_S = 120.0
END_WITHIN_S = 15.0


class Job(Protocol):
    """One job that runs launches."""

    @property
    def job_id(self) -> str:
        """Its id where it was submitted."""

    @property
    def launches(self) -> tuple[str, ...]:
        """Ids of its launches."""

    @property
    def state(self) -> str:
        """A word for people: queued, running, ended, or the scheduler's own."""

    def poll(self) -> bool:
        """Whether the job lives, asked anew."""

    def over(self, launch_id: str) -> bool:
        """Whether one of its launches can be recorded while the job lives."""

    def cancel(self) -> None:
        """End the job and wait until it has ended."""


class Jobs(Protocol):
    """Where a sweep's launches run.

    ``outlive``: whether its jobs go on when the command that submitted them is interrupted.
    """

    outlive: bool
    poll_s: float

    def find(self) -> list[Job]:
        """The jobs that an earlier command left and that are not recorded yet."""

    def take(self, waiting: int, running: int) -> int:
        """How many of the waiting launches the next job may take now."""

    def submit(self, launches: Sequence[Launch]) -> Job | None:
        """Submit one job that runs ``launches`` in order; None if that must be tried again later."""


def jobs_of(store: SweepStore, plan: SweepPlan) -> Jobs:
    """The plan's jobs: on this host, or through Slurm."""
    if plan.slurm is None:
        return LocalJobs(store, plan)
    from harness.execute.slurm_jobs import SlurmJobs

    return SlurmJobs(store, plan.slurm, plan.env)


class JobFile(Frozen):
    """What is needed to find a job again from another process."""

    job_id: str
    pid: int = Field(ge=1)
    created: float
    host: str
    launches: tuple[str, ...]


class Running(NamedTuple):
    """A job that lives, for people to look at."""

    job_id: str
    state: str
    launches: tuple[str, ...]


def running_jobs(store: SweepStore, plan: SweepPlan) -> list[Running]:
    """The jobs of a sweep that live; looking changes nothing."""
    if plan.slurm is not None:
        from harness.execute.slurm_jobs import seen_jobs

        return seen_jobs(store)
    return [Running(job.job_id, job.state, job.launches) for job in LocalJobs(store, plan).find()]


class LocalJob:
    """One submitit job on this machine: its controller process and everything below it."""

    def __init__(self, file: JobFile, sweep_folder: Path, handle: object = None) -> None:
        self.file = file
        self._folder = sweep_folder / "launches"
        self._handle = handle  # submitit's job, kept so that its process object lives as long as this one

    @property
    def job_id(self) -> str:
        return self.file.job_id

    @property
    def launches(self) -> tuple[str, ...]:
        return self.file.launches

    @property
    def state(self) -> str:
        return f"on {self.file.host}" if self.poll() else "ended"

    def poll(self) -> bool:
        return self._process() is not None

    def over(self, launch_id: str) -> bool:
        folder = self._folder / launch_id
        return has_ended(folder, read_launch(folder))

    def _process(self) -> psutil.Process | None:
        """The controller, if it still runs and is not another process with a reused id."""
        try:
            process = psutil.Process(self.file.pid)
            same = abs(process.create_time() - self.file.created) < 2.0
            return process if same and process.status() != psutil.STATUS_ZOMBIE else None
        except psutil.NoSuchProcess:
            return None

    def cancel(self) -> None:
        """End the job with all its processes, and wait until they are gone."""
        controller = self._process()
        if controller is None:
            return
        family = [controller, *_descendants(controller)]
        with contextlib.suppress(psutil.NoSuchProcess):
            controller.kill()
        for process in family:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
        _, left = psutil.wait_procs(family, timeout=END_WITHIN_S)
        if any(p.is_running() and p.status() != psutil.STATUS_ZOMBIE for p in left):
            raise ExecutionError(f"processes {[p.pid for p in left]} of job {self.file.job_id} did not end; end them")


def _descendants(process: psutil.Process) -> list[psutil.Process]:
    try:
        return process.children(recursive=True)
    except psutil.NoSuchProcess:
        return []


class LocalJobs:
    """One job at a time on this host; it runs all launches that wait."""

    outlive = False
    poll_s = 0.2

    def __init__(self, store: SweepStore, plan: SweepPlan) -> None:
        self._store, self._env = store, plan.env

    def find(self) -> list[Job]:
        """The job that an earlier process left running on this host, if any."""
        path = self._store.folder / "job.json"
        if not path.exists():
            return []
        file = read_model(path, JobFile)
        job = LocalJob(file, self._store.folder)
        return [job] if file.host == os.uname().nodename and job.poll() else []

    def take(self, waiting: int, running: int) -> int:
        return 0 if running else waiting

    def submit(self, launches: Sequence[Launch]) -> Job:
        """Submit one job that runs the launches in order.

        Raises:
            ExecutionError: submitit could not start it.
        """
        folders = [self._store.launch_folder(launch.launch_id) for launch in launches]
        for folder, launch in zip(folders, launches, strict=True):
            write_launch(folder, launch)
        with _interrupts_later():
            return _submit(self._store.folder, folders, self._env, launches)


def _submit(
    sweep_folder: Path, folders: Sequence[Path], rank_env: Mapping[str, str], launches: Sequence[Launch]
) -> LocalJob:
    # here, not above: importing submitit takes longer than `meshsweep --help` may
    import submitit

    folder = sweep_folder / "jobs"
    limit_s = sum(map(launch_limit_s, launches)) + MARGIN_S
    devices = max(launch.ranks.world_size for launch in launches)
    executor = submitit.LocalExecutor(folder=folder)
    executor.update_parameters(timeout_min=limit_s / 60, tasks_per_node=1, gpus_per_node=devices)
    # submitit's controller overwrites CUDA_VISIBLE_DEVICES
    env = {"CUDA_VISIBLE_DEVICES": os.environ.get("CUDA_VISIBLE_DEVICES"), **rank_env}
    try:
        job = executor.submit(run_job, tuple(str(path.resolve()) for path in folders), env)
    except OSError as error:
        raise ExecutionError(f"cannot start a local job in {folder}: {error}; free space or processes") from error
    pid = int(job.job_id)
    here = LocalJob(_job_file(pid, folders), sweep_folder, job)
    try:
        write_atomic(sweep_folder / "job.json", here.file.model_dump_json(indent=1))
    except StoreError:
        here.cancel()
        raise
    return here


def _job_file(pid: int, folders: Sequence[Path]) -> JobFile:
    return JobFile(
        job_id=str(pid),
        pid=pid,
        created=psutil.Process(pid).create_time(),
        host=os.uname().nodename,
        launches=tuple(path.name for path in folders),
    )


@contextlib.contextmanager
def _interrupts_later() -> Iterator[None]:
    """Hold Ctrl-C back while a job is submitted, so that there is no job that nobody knows of."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before, caught = signal.getsignal(signal.SIGINT), []
    signal.signal(signal.SIGINT, lambda number, frame: caught.append(number))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
    if caught:
        signal.raise_signal(signal.SIGINT)
