"""Jobs in Slurm's queue: watched by asking once for all, and told apart when they end."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from pathlib import Path

from harness.errors import ExecutionError
from harness.launch.folder import ended_well, has_ended, read_launch
from harness.launch.job_file import JobEnd, SlurmJobFile, write_job_file
from harness.slurm import commands
from harness.slurm.commands import ControllerSilent
from harness.slurm.state import NEVER, JobStatus

SILENT_LIMIT_S = 900.0
SILENT_POLL_S = 2.0
COMPLETING_LIMIT_S = 60.0
FILES_WITHIN_S = 20.0
END_WITHIN_S = 60.0
GONE_POLLS = 2
POLL_S = 0.25


class Queue:
    """The queue as last seen, asked once for all jobs and at most every ``every_s`` seconds."""

    def __init__(self, every_s: float = 2.0) -> None:
        self._every_s = every_s
        self._ids: set[str] = set()
        self._seen: dict[str, JobStatus] = {}
        self._asked = -math.inf
        self._silent_since: float | None = None
        self.polls = 0

    def watch(self, job_id: str) -> None:
        self._ids.add(job_id)
        self._asked = -math.inf

    def forget(self, job_id: str) -> None:
        self._ids.discard(job_id)

    def status(self, job_id: str) -> JobStatus | None:
        """The job as the queue has it; None if it is not there.

        Raises:
            ControllerSilent: for longer than may be waited for.
        """
        if time.monotonic() - self._asked >= self._every_s:
            self.heard(self.ask)
        return self._seen.get(job_id)

    def ask(self) -> None:
        """Ask for all jobs now."""
        try:
            self._seen = commands.queue(sorted(self._ids))
            self.polls += 1
        finally:
            # counted from the end: a silent controller takes longer than every_s, and each job would ask anew
            self._asked = time.monotonic()

    def heard(self, ask: Callable[[], None]) -> bool:
        """Whether the controller answered ``ask``; jobs go on meanwhile, so its silence is borne for a while."""
        try:
            ask()
        except ControllerSilent as error:
            commands.SILENCE.begins("its commands")
            now = time.monotonic()
            self._silent_since = self._silent_since or now
            if now - self._silent_since > SILENT_LIMIT_S:
                raise ControllerSilent(
                    f"{error}, for {SILENT_LIMIT_S / 60:.0f} minutes now; jobs go on, 'meshsweep resume' collects them"
                ) from error
            return False
        self._silent_since = None
        commands.SILENCE.ends()
        return True

    def insist(self, ask: Callable[[], None]) -> None:
        """Ask until the controller answers.

        Raises:
            ControllerSilent: it did not for longer than may be waited for.
        """
        while not self.heard(ask):
            time.sleep(SILENT_POLL_S)

    @property
    def silent(self) -> bool:
        """Whether the last question was not answered."""
        return self._silent_since is not None


class SlurmJob:
    """One job of one launch. ``done`` says whether its files show that it did its work."""

    def __init__(self, folder: Path, file: SlurmJobFile, queue: Queue, done: Callable[[], bool] | None = None) -> None:
        self.folder, self.file, self._queue = folder, file, queue
        self._done = done or (lambda: ended_well(folder, read_launch(folder)))
        self._told = done or (lambda: has_ended(folder, read_launch(folder)))
        self._last: JobStatus | None = None
        self._completing_since: float | None = None
        self._missed_at: list[int] = []
        if file.job_id is not None and file.end is None:
            queue.watch(file.job_id)

    @property
    def launches(self) -> tuple[str, ...]:
        return (self.folder.name,)

    @property
    def job_id(self) -> str:
        return self.file.job_id or "?"

    @property
    def state(self) -> str:
        if self.file.end is not None:
            return self.file.end.status.state
        return self._last.state if self._last else "SUBMITTED"

    def over(self, launch_id: str) -> bool:
        """Only a launch that ended well is: what a failed one died of, the scheduler may yet say."""
        return self._done()

    def poll(self) -> bool:
        """Whether the job lives. When it has ended, how is kept in its file."""
        if self.file.end is not None or self.file.job_id is None:
            return False
        status = self._queue.status(self.file.job_id)
        if status is not None and status.active:
            self._last, self._missed_at = status, []
            return self._still(status)
        if status is None and self._queue.polls not in self._missed_at:
            self._missed_at.append(self._queue.polls)
        if status is None and len(self._missed_at) < GONE_POLLS:
            return True
        return self._ask_how()

    def _still(self, status: JobStatus) -> bool:
        """An active job lives, but for one that can never start and one that a dead node keeps from completing."""
        if status.never:
            self._end_by_us(status, NEVER, f"the job can never start: {status.reason}")
        elif status.held_after_launch:
            self._end_by_us(status, "LAUNCH_FAILED", "a node could not start the job, and Slurm holds it")
        elif status.state == "COMPLETING":
            self._completing_since = self._completing_since or time.monotonic()
            if time.monotonic() - self._completing_since > COMPLETING_LIMIT_S:
                return self._ask_how()
        else:
            self._completing_since = None
        return self.file.end is None

    def _end_by_us(self, status: JobStatus, state: str, message: str) -> None:
        if self._queue.heard(lambda: commands.cancel(self.job_id)):
            self.ended(status.model_copy(update={"state": state}), message)

    def _ask_how(self) -> bool:
        found: list[JobStatus] = []
        if not self._queue.heard(lambda: found.append(commands.details(self.job_id))):
            return True
        (status,) = found
        if status.active and status.state != "COMPLETING":
            return True
        if status.state == "COMPLETED":
            _wait_until(self._told, FILES_WITHIN_S)
        self.ended(status)
        return False

    def ended(self, status: JobStatus, message: str = "") -> None:
        """Keep how the job ended."""
        lost = commands.down(status.nodes) if status.state in ("NODE_FAIL", "LAUNCH_FAILED") else ()
        self.file = self.file.model_copy(update={"end": JobEnd(status=status, message=message, down=lost)})
        write_job_file(self.folder, self.file)
        self._queue.forget(self.job_id)

    def cancel(self) -> None:
        """End the job and wait until Slurm says that it has ended; a silent controller is waited for.

        Raises:
            ExecutionError: it lives on.
        """
        if self.file.job_id is None or self.file.end is not None:
            return
        self._queue.insist(lambda: commands.cancel(self.job_id))
        left_s = END_WITHIN_S
        while self.poll() and left_s > 0:
            time.sleep(POLL_S)
            # what nobody was told of is not late
            left_s -= 0.0 if self._queue.silent else POLL_S
        if self.file.end is None:
            raise ExecutionError(f"job {self.job_id} lives {END_WITHIN_S:.0f} s after scancel; try again later")


def _wait_until(condition: Callable[[], bool], within_s: float) -> bool:
    deadline = time.monotonic() + within_s
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(POLL_S)
    return True
