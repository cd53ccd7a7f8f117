"""What a job's end means: the scheduler's last word on it, weighed against what its ranks and its output say."""

from __future__ import annotations

from typing import NamedTuple

from harness.failure import FULL_DISK, FailureClass
from harness.slurm.script import DISK_FULL, SETUP_FAILED, SETUP_MESSAGE
from harness.slurm.state import NEVER, REFUSED, UNKNOWN, JobStatus

BY_STATE = {
    "TIMEOUT": FailureClass.TIME_LIMIT,
    "DEADLINE": FailureClass.TIME_LIMIT,
    "NODE_FAIL": FailureClass.NODE_FAILURE,
    "BOOT_FAIL": FailureClass.NODE_FAILURE,
    "LAUNCH_FAILED": FailureClass.NODE_FAILURE,
    "RECONFIG_FAIL": FailureClass.NODE_FAILURE,
    "PREEMPTED": FailureClass.PREEMPTED,
    "CANCELLED": FailureClass.CANCELLED,
    "REVOKED": FailureClass.CANCELLED,
    "OUT_OF_MEMORY": FailureClass.HOST_OOM,
    REFUSED: FailureClass.BAD_REQUEST,
    NEVER: FailureClass.BAD_REQUEST,
}
_WORDS = {
    "TIMEOUT": "the job ran into its time limit",
    "DEADLINE": "the job ran into its deadline",
    "NODE_FAIL": "a node of the job failed",
    "BOOT_FAIL": "a node of the job did not boot",
    "LAUNCH_FAILED": "a node could not start the job",
    "RECONFIG_FAIL": "a node of the job could not be set up",
    "PREEMPTED": "the scheduler gave the nodes to another job",
    "CANCELLED": "the job was cancelled",
    "REVOKED": "the job was revoked",
    "OUT_OF_MEMORY": "the job's memory limit was exceeded",
}
# What a rank can say of itself that no ending from outside explains.
OWN_CAUSES = frozenset({FailureClass.DEVICE_OOM, FailureClass.HOST_OOM, FailureClass.HARDWARE, FailureClass.CONFIG})
# Ends of a whole job, for which no run of it is to blame.
WHOLE = frozenset({FailureClass.NODE_FAILURE, FailureClass.PREEMPTED, FailureClass.CANCELLED, FailureClass.BAD_REQUEST})
# What Slurm writes into a job's output and may forget in its state: a job requeued while its ranks end can fail.
_WRITTEN = frozenset({FailureClass.PREEMPTED, FailureClass.TIME_LIMIT})
_NOTHING = frozenset({FailureClass.NONE, FailureClass.LOST})


class Cause(NamedTuple):
    """A failure class and what shows it; ``by_state``: the scheduler's state decided."""

    failure: FailureClass
    message: str
    by_state: bool


def setup_failure(log: str) -> str | None:
    """The line that says which set-up line of the profile failed, if one did."""
    return next((line.strip() for line in log.splitlines() if line.startswith(SETUP_MESSAGE)), None)


def weigh(status: JobStatus, ranks: tuple[FailureClass, str], log: tuple[FailureClass, str], message: str) -> Cause:
    """The cause of a job's end.

    ``ranks`` and ``log``: the class and line that the ranks' ends and the job's own output give; ``message``: what
    the scheduler or sbatch said besides. A node that failed explains everything; any other ending from outside
    explains all but a cause of the ranks' own, for it ends them with signals and broken connections.
    """
    said = BY_STATE.get(status.state)
    words = message or _WORDS.get(status.state) or f"the job ended in state {status.state}"
    if said is FailureClass.NODE_FAILURE:
        return Cause(said, words, True)
    if said is not None:
        return Cause(*ranks, False) if ranks[0] in OWN_CAUSES else Cause(said, words, True)
    if log[0] in _WRITTEN and ranks[0] not in OWN_CAUSES:
        return Cause(*log, True)
    if ranks[0] not in _NOTHING:
        return Cause(*ranks, False)
    if log[0] not in _NOTHING:
        return Cause(*log, False)
    if status.exit_code == DISK_FULL:
        return Cause(FailureClass.CONFIG, f"the job could not write its files: {FULL_DISK[0]}", False)
    if status.exit_code == SETUP_FAILED:
        return Cause(FailureClass.CONFIG, "a set-up line of the profile failed", False)
    if status.exit_code:
        return Cause(FailureClass.CRASH, f"the job's script ended with exit code {status.exit_code}", False)
    known = "" if status.state == UNKNOWN else f" (state {status.state})"
    return Cause(FailureClass.LOST, f"the job is gone and left no trace of why{known}", False)
