"""Jobs through submitit's Slurm executor: one a launch; submitted, watched, found again, ended.

The text of each job is ours and not submitit's: submitit puts values into ``#SBATCH`` lines, where a line break in one
begins a command, and asks for a signal 90 s before the limit, which a short job gets as soon as it starts. What is
used of submitit is the rest: pickled calls, output files by job and task, and the task's own entry.
"""

from __future__ import annotations

import json
import math
import os
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from harness.errors import ExecutionError, UsageError
from harness.execute import slurm_queue
from harness.execute.agent import launch_limit_s, run_task
from harness.execute.jobs import Job, Running
from harness.execute.slurm_queue import Queue, SlurmJob
from harness.failure import FailureClass
from harness.launch.folder import write_launch
from harness.launch.job_file import JobEnd, SlurmJobFile, read_job_file, write_job_file
from harness.launch.progress import started
from harness.slurm import commands
from harness.slurm.commands import ControllerSilent
from harness.slurm.profile import Profile, SlurmOptions
from harness.slurm.script import CALL_FILE, JobRequest, Submission, job_name, submission
from harness.slurm.state import REFUSED, UNKNOWN, JobStatus
from harness.spec import Launch, Ranks
from harness.store import SweepStore

MARGIN_S = 120.0
SETTLE_S = 3.0  # a controller that was silent may answer before it takes the jobs that it was given meanwhile


class Refused(ExecutionError):
    """sbatch did not take a job, and never will."""


def adopt(folder: Path, file: SlurmJobFile, ran: bool) -> SlurmJobFile | None:
    """The job of a folder whose submission may have been cut short: it is looked for by its name then.

    ``ran``: whether the folder shows that a job worked in it. None: there never was one.
    """
    if file.job_id is not None or file.end is not None:
        return file
    ids = _jobs_of(folder, file)
    if ids:
        file = file.model_copy(update={"job_id": ids[-1]})
    elif ran:
        file = file.model_copy(update={"end": JobEnd(status=JobStatus(job_id="?", state=UNKNOWN, source="none"))})
    else:
        return None
    write_job_file(folder, file)
    return file


def _jobs_of(folder: Path, file: SlurmJobFile) -> list[str]:
    """Ids of what was submitted from a folder, oldest first."""
    own = (folder / "job").absolute()
    ids = commands.named(file.name, own)
    if not ids:
        time.sleep(SETTLE_S)
        ids = commands.named(file.name, own)
    return ids


class SlurmJobs:
    """A sweep's jobs, one a launch, at most ``max_jobs`` at a time.

    Without ``max_jobs``: as many as Slurm runs, but one where two could share a node, whose cores and links both would
    then measure.
    """

    outlive = True
    poll_s = 0.5

    def __init__(self, store: SweepStore, options: SlurmOptions, env: Mapping[str, str]) -> None:
        check_folder(store.folder)
        self._store, self._options, self._env = store, options, env
        self._most = options.max_jobs or (1 if leaves_room(options.profile, store.plan().ranks) else None)
        self.queue = Queue()

    def find(self) -> list[Job]:
        """Jobs of launches that are not recorded yet, whether they still run or not."""
        found: list[Job] = []
        for folder in sorted((self._store.folder / "launches").glob("*")):
            file = read_job_file(folder)
            if file is None or (folder / "collected").exists():
                continue
            self.queue.insist(lambda: found.extend(self._adopt(folder, file)))  # noqa: B023
        if found:
            self.queue.insist(self.queue.ask)
        return found

    def _adopt(self, folder: Path, file: SlurmJobFile) -> list[SlurmJob]:
        """The job of a launch, if there is one."""
        found = adopt(folder, file, started(folder))
        return [SlurmJob(folder, found, self.queue)] if found else []

    def take(self, waiting: int, running: int) -> int:
        return int(waiting > 0 and (self._most is None or running < self._most))

    def submit(self, launches: Sequence[Launch]) -> Job | None:
        """Submit one launch; None while the controller does not answer. A refused job comes back as an ended one."""
        (launch,) = launches
        found: list[Job] = []
        if not self.queue.heard(lambda: found.append(self._submit(launch))):
            time.sleep(slurm_queue.SILENT_POLL_S)
            return None
        return found[0]

    def _submit(self, launch: Launch) -> SlurmJob:
        """Submit a launch once: an answer that was lost may belong to a job that was taken."""
        folder = self._store.launch_folder(launch.launch_id)
        write_launch(folder, launch)
        file = read_job_file(folder)
        if file is not None and (left := self._adopt(folder, file)):
            return left[0]
        avoid = failed_hosts(self._store, launch)
        return submit_launch(folder, launch, self._options, self._env, self.queue, self._store.folder.name, avoid)


def leaves_room(profile: Profile, ranks: Ranks) -> bool:
    """Whether a node may have room for a second job, as far as the profile says."""
    if profile.exclusive:
        return False
    if profile.gpus is not None:
        return ranks.world_size < profile.gpus
    return profile.gpus_per_node is None or min(ranks.per_node) < profile.gpus_per_node


def seen_jobs(store: SweepStore) -> list[Running]:
    """The jobs that the queue has for launches which are not recorded yet."""
    launches = {}
    for folder in sorted((store.folder / "launches").glob("*")):
        file = read_job_file(folder)
        if file is not None and file.job_id and file.end is None and not (folder / "collected").exists():
            launches[file.job_id] = folder.name
    try:
        found = commands.queue(launches)
    except ExecutionError:
        return [Running(job_id, "unknown: Slurm does not answer", (name,)) for job_id, name in launches.items()]
    return [
        Running(job_id, found[job_id].state, (name,))
        for job_id, name in launches.items()
        if job_id in found and found[job_id].active
    ]


def failed_hosts(store: SweepStore, launch: Launch) -> tuple[str, ...]:
    """Nodes on which an earlier attempt of these runs ended by the node's own fault."""
    runs = {run.run_id for run in launch.runs}
    faults = (FailureClass.NODE_FAILURE, FailureClass.HARDWARE)
    hosts = [
        record.failure.host
        for record in store.records()
        if record.run_id in runs and record.failure and record.failure.failure_class in faults
    ]
    return tuple(dict.fromkeys(host for host in hosts if host))


def submit_launch(
    folder: Path,
    launch: Launch,
    options: SlurmOptions,
    env: Mapping[str, str],
    queue: Queue,
    sweep: str,
    avoid: Sequence[str] = (),
) -> SlurmJob:
    """Give one launch to Slurm, on other nodes than ``avoid`` where there are enough."""
    request = launch_request(folder, launch, options, sweep)
    call = (run_task, (str(folder.resolve()),), dict(env), options.launcher)
    if avoid:
        exclude = ",".join(filter(None, (options.exclude, *avoid)))
        job = submit_call(folder, request.model_copy(update={"exclude": exclude}), options, call, queue)
        if job.file.end is None:
            return job
    return submit_call(folder, request, options, call, queue)


def launch_request(folder: Path, launch: Launch, options: SlurmOptions, sweep: str) -> JobRequest:
    """What one launch's job asks for."""
    ranks = launch.ranks
    limit_s = launch_limit_s(launch) + MARGIN_S
    return JobRequest(
        name=job_name(sweep, launch.launch_id),
        folder=str((folder / "job").absolute()),
        nodes=len(ranks.per_node),
        gpus_per_node=options.profile.gpus_per_node and min(options.profile.gpus_per_node, max(ranks.per_node)),
        gpus=options.profile.gpus and min(options.profile.gpus, ranks.world_size),
        time_min=math.ceil(limit_s / 60),
        depend=options.depend,
        exclude=options.exclude,
        nodelist=options.nodelist if len(ranks.per_node) == options.nodes else None,
    )


def submit_call(
    folder: Path,
    request: JobRequest,
    options: SlurmOptions,
    call: tuple[Any, ...],
    queue: Queue,
    done: Callable[[], bool] | None = None,
) -> SlurmJob:
    """Submit ``call`` (a function and its arguments), to be made once on every node.

    What will find the job again is written before and after, so that no moment leaves a job that nobody knows.
    """
    now = datetime.now(UTC).isoformat(timespec="seconds")
    text = submission(
        options.profile,
        request,
        ("submitit.core._submit", request.folder),
        os.path.abspath(sys.executable),  # noqa: PTH100
    )
    file = SlurmJobFile(name=request.name, submitted_at=now, arguments=text.arguments)
    write_job_file(folder, file)
    try:
        job_id = _sbatch(request, text, call)
    except Refused as error:
        job = SlurmJob(folder, file, queue, done)
        job.ended(JobStatus(job_id="?", state=REFUSED, source="sbatch"), str(error))
        return job
    file = file.model_copy(update={"job_id": job_id})
    write_job_file(folder, file)
    return SlurmJob(folder, file, queue, done)


def _sbatch(request: JobRequest, text: Submission, call: tuple[Any, ...]) -> str:
    import submitit
    from submitit.core.utils import DelayedSubmission, FailedJobError

    class Executor(submitit.SlurmExecutor):
        def _make_submission_file_text(self, command: str, uid: str) -> str:
            return text.text

        def _make_submission_command(self, submission_file_path: Path) -> list[str]:
            unset = [word for name in commands.ambient(os.environ) for word in ("-u", name)]
            return ["env", *unset, "sbatch", *text.arguments, str(submission_file_path)]

    try:
        executor = Executor(folder=request.folder)
    except RuntimeError as error:
        raise ExecutionError("no srun here; run this where Slurm is installed, or use --cluster local") from error
    executor.update_parameters(nodes=request.nodes, ntasks_per_node=1, time=request.time_min)
    try:
        folder = Path(request.folder)
        folder.mkdir(parents=True, exist_ok=True)
        kept = DelayedSubmission(*call)
        kept.set_timeout(request.time_min, max_num_timeout=0)
        kept.dump(folder / CALL_FILE)
        return str(executor.submit(*call).job_id)
    except FailedJobError as error:
        if commands.is_silence(str(error)):
            raise ControllerSilent(f"sbatch: {' '.join(str(error).split())}") from error
        raise Refused(_errors_of(str(error))) from error
    except OSError as error:
        raise ExecutionError(f"cannot submit from {request.folder}: {error}; free space, or see 'sbatch'") from error


def _errors_of(output: str) -> str:
    """sbatch's own lines of what submitit reports."""
    lines = [line.strip() for line in output.splitlines() if "sbatch:" in line]
    return "; ".join(lines) or " ".join(output.split())


def check_folder(folder: Path) -> None:
    """See that Slurm leaves the names of files in a folder as they are.

    Raises:
        UsageError: it does not.
    """
    # %% is no way out: Slurm replaces twice, so that %%j becomes the job's number too
    wrong = next((c for c in "%\\" if c in str(folder.absolute())), None)
    if wrong:
        raise UsageError(
            f"the results folder's path holds {json.dumps(wrong)}, which Slurm replaces; use another --results"
        )
