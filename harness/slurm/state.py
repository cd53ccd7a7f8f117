"""What the scheduler says of a job: the texts of squeue, scontrol and sacct read into one status."""

from __future__ import annotations

import re

from harness.base import Frozen
from harness.errors import TopologyError
from harness.topology import hostlist

# No field that a user can write (names, comments, paths) is asked for, so none can break a line.
SQUEUE_FORMAT = "%i|%T|%r|%N"
SACCT_FIELDS = "JobIDRaw,State,ExitCode,NodeList,Reason"

ACTIVE = frozenset(
    {"PENDING", "CONFIGURING", "RUNNING", "SUSPENDED", "COMPLETING", "STAGE_OUT", "SIGNALING", "STOPPED", "RESIZING"}
    | {"REQUEUED", "REQUEUE_FED", "REQUEUE_HOLD", "SPECIAL_EXIT", "RESV_DEL_HOLD", "POWER_UP_NODE", "EXPEDITING"}
)
UNKNOWN = "UNKNOWN"
REFUSED = "REFUSED"  # ours: sbatch did not take the job
NEVER = "NEVER"  # ours: the scheduler says that it can never start

# Reasons of a pending job that no waiting changes.
NEVER_REASONS = frozenset(
    {"BadConstraints", "PartitionNodeLimit", "PartitionTimeLimit", "InvalidAccount", "InvalidQOS", "PartitionConfig"}
    | {"DependencyNeverSatisfied", "AccountNotAllowed", "QOSNotAllowed", "AssocMaxNodePerJobLimit"}
    | {"AssocMaxCpuPerJobLimit", "AssocMaxGRESPerJob", "AssocMaxMemPerJob", "AssocMaxWallDurationPerJobLimit"}
    | {"QOSMaxNodePerJobLimit", "QOSMaxCpuPerJobLimit", "QOSMaxGRESPerJob", "QOSMaxMemoryPerJob", "QOSMinGRES"}
    | {"QOSMaxWallDurationPerJobLimit", "MaxMemPerLimit"}
)
LAUNCH_REASONS = frozenset({"launch_failed_requeued_held", "JobLaunchFailure"})


class JobStatus(Frozen):
    """One job as the scheduler sees it. ``state`` is Slurm's word; ``source`` the command that said so."""

    job_id: str
    state: str
    reason: str | None = None
    exit_code: int | None = None
    exit_signal: int | None = None
    nodes: tuple[str, ...] = ()
    restarts: int = 0
    source: str = ""

    @property
    def active(self) -> bool:
        """Whether the job waits, runs or is being cleared away."""
        return self.state in ACTIVE

    @property
    def final(self) -> bool:
        return not self.active and self.state != UNKNOWN

    @property
    def never(self) -> bool:
        """Whether it waits for what cannot come."""
        return self.state == "PENDING" and self.reason in NEVER_REASONS

    @property
    def held_after_launch(self) -> bool:
        """Whether a node could not start it, and Slurm holds it until somebody looks."""
        return self.state in ("PENDING", "REQUEUE_HOLD", "SPECIAL_EXIT") and self.reason in LAUNCH_REASONS


def parse_squeue(text: str) -> dict[str, JobStatus]:
    """Lines of ``squeue -h -o SQUEUE_FORMAT``, by job id."""
    found = {}
    for line in text.splitlines():
        parts = line.strip().split("|")
        if len(parts) != 4 or not parts[0][:1].isdigit():
            continue
        job_id, state, reason, nodes = parts
        found[job_id] = JobStatus(
            job_id=job_id, state=_state(state), reason=_reason(reason), nodes=_nodes(nodes), source="squeue"
        )
    return found


def parse_sacct(text: str) -> dict[str, JobStatus]:
    """Lines of ``sacct -n -P -o SACCT_FIELDS``, by job id; of a job that was requeued the last line counts."""
    found = {}
    for line in text.splitlines():
        parts = line.strip().split("|")
        if len(parts) < 4 or not parts[0].isdigit():
            continue
        code, signal = _exit(parts[2])
        found[parts[0]] = JobStatus(
            job_id=parts[0],
            state=_state(parts[1]),
            reason=_reason(parts[4]) if len(parts) > 4 else None,
            exit_code=code,
            exit_signal=signal,
            nodes=_nodes(parts[3]),
            source="sacct",
        )
    return found


# Fields stand at the start of a line or after a blank; the job's name comes before and may hold anything.
_STATE = re.compile(r"^ +JobState=(\S+) Reason=(\S+)", re.M)
_EXIT = re.compile(r"\bExitCode=(\d+:\d+)\s*$", re.M)
_RESTARTS = re.compile(r"\bRestarts=(\d+) ", re.M)
_NODELIST = re.compile(r"^ +NodeList=(\S*)", re.M)


def parse_scontrol(text: str) -> JobStatus | None:
    """The output of ``scontrol show job ID``; None if it describes none."""
    job_id = re.match(r"\s*JobId=(\d+)", text)
    states = _STATE.findall(text)
    if job_id is None or not states:
        return None
    exits, restarts, nodes = _EXIT.findall(text), _RESTARTS.findall(text), _NODELIST.findall(text)
    code, signal = _exit(exits[-1]) if exits else (None, None)
    return JobStatus(
        job_id=job_id[1],
        state=_state(states[-1][0]),
        reason=_reason(states[-1][1]),
        exit_code=code,
        exit_signal=signal,
        nodes=_nodes(nodes[-1]) if nodes else (),
        restarts=int(restarts[-1]) if restarts else 0,
        source="scontrol",
    )


def parse_down_nodes(text: str) -> tuple[str, ...]:
    """The nodes of ``sinfo -h -N -o '%N|%T'`` that are down or do not answer (a star)."""
    found = []
    for line in text.splitlines():
        host, _, state = line.strip().partition("|")
        if state.rstrip("$#~!%@^-+").endswith("*") or state.lower().startswith(("down", "fail", "error", "inval")):
            found.append(host)
    return tuple(dict.fromkeys(found))


def _state(word: str) -> str:
    """The state without what sacct adds (``CANCELLED by 0``, a trailing ``+``) and without second flags."""
    match = re.match(r"[A-Za-z_]+", word)
    return match[0].upper() if match else UNKNOWN


def _reason(word: str) -> str | None:
    word = word.strip().strip("()")
    return None if word in ("", "None", "none", "null", "N/A") else word


def _exit(text: str) -> tuple[int | None, int | None]:
    match = re.fullmatch(r"(\d{1,9}):(\d{1,9})", text.strip())
    return (int(match[1]), int(match[2])) if match else (None, None)


def _nodes(text: str) -> tuple[str, ...]:
    try:
        return hostlist.expand(text)
    except TopologyError:
        return ()
