"""Jobs through submitit's local executor: submitted, watched, found again, ended."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping, Sequence
from pathlib import Path

import psutil

from harness.base import Frozen
from harness.errors import ExecutionError
from harness.execute.agent import launch_limit_s, run_job
from harness.launch.folder import read_launch
from harness.store import read_model, write_atomic

MARGIN_S = 120.0
END_WITHIN_S = 15.0


class JobFile(Frozen):
    """What is needed to find a job again from another process."""

    job_id: str
    pid: int
    created: float
    host: str
    launches: tuple[str, ...]


class LocalJob:
    """One submitit job on this machine: its controller process and everything below it."""

    def __init__(self, file: JobFile, handle: object = None) -> None:
        self.file = file
        self._handle = handle  # submitit's job, kept so that its process object lives as long as this one

    @property
    def alive(self) -> bool:
        return self._process() is not None

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


def submit(sweep_folder: Path, launches: Sequence[Path], rank_env: Mapping[str, str]) -> LocalJob:
    """Submit one job that runs the launches in order, with ``rank_env`` set for its ranks.

    Raises:
        ExecutionError: submitit could not start it.
    """
    # here, not above: importing submitit takes longer than `meshsweep --help` may
    import submitit

    folder = sweep_folder / "jobs"
    limit_s = sum(launch_limit_s(read_launch(path)) for path in launches) + MARGIN_S
    devices = max(read_launch(path).ranks.world_size for path in launches)
    executor = submitit.LocalExecutor(folder=folder)
    executor.update_parameters(timeout_min=limit_s / 60, tasks_per_node=1, gpus_per_node=devices)
    # submitit's controller overwrites CUDA_VISIBLE_DEVICES
    env = {"CUDA_VISIBLE_DEVICES": os.environ.get("CUDA_VISIBLE_DEVICES"), **rank_env}
    try:
        job = executor.submit(run_job, tuple(str(path.resolve()) for path in launches), env)
    except OSError as error:
        raise ExecutionError(f"cannot start a local job in {folder}: {error}; free space or processes") from error
    pid = int(job.job_id)
    file = JobFile(
        job_id=job.job_id,
        pid=pid,
        created=psutil.Process(pid).create_time(),
        host=os.uname().nodename,
        launches=tuple(path.name for path in launches),
    )
    write_atomic(sweep_folder / "job.json", file.model_dump_json(indent=1))
    return LocalJob(file, job)


def find(sweep_folder: Path) -> LocalJob | None:
    """The job that an earlier process left running on this host, if any."""
    path = sweep_folder / "job.json"
    if not path.exists():
        return None
    file = read_model(path, JobFile)
    if file.host != os.uname().nodename:
        return None
    job = LocalJob(file)
    return job if job.alive else None
