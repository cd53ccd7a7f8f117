"""What a job does on a node: run its launches one after the other, each in fresh rank processes that are always ended.

A launch on several nodes has an agent on each. They need nothing of each other but the launch's folder, which all of
them see: there the first one says where rank 0 is, and each says when a rank of its node failed.
"""

from __future__ import annotations

import errno
import os
import platform
import signal
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from types import FrameType
from typing import Protocol

from harness.errors import StoreError
from harness.execute import network
from harness.execute.ranks import RankError, RankGroup, die_with_parent
from harness.launch import folder as files
from harness.launch.folder import LaunchOutcome, RankEnd, Rendezvous, read_launch, write_outcome
from harness.launch.job_file import read_job_file
from harness.launch.progress import create
from harness.slurm.profile import Launcher
from harness.slurm.script import DISK_FULL
from harness.spec import Launch

WORKER = "harness.train.worker"
LOOPBACK = "127.0.0.1"
LOCAL = "local"
MEET_WITHIN_S = 300.0
POLL_S = 0.1
START_VARIABLE = "MESHSWEEP_JOB_START"


@dataclass(frozen=True)
class Place:
    """Which node of a job this is, and which start of the job. ``attempt`` is the same on all its nodes."""

    node: int
    host: str
    attempt: str
    allocated_unix: float | None = None

    @classmethod
    def of_task(cls, environ: Mapping[str, str]) -> Place:
        """The place of a Slurm task, of which there is one a node."""
        start = environ.get(START_VARIABLE, "")
        return cls(
            node=int(environ.get("SLURM_PROCID") or 0),
            host=environ.get("SLURMD_NODENAME") or platform.node(),
            attempt=f"{environ.get('SLURM_JOB_ID') or 0}.{environ.get('SLURM_RESTART_COUNT') or 0}",
            allocated_unix=float(start) if start.replace(".", "", 1).isdigit() else None,
        )


class StopFlag:
    """Whether this process was asked to stop: the time limit, a cancellation or a preemption comes as SIGTERM."""

    def __init__(self) -> None:
        self.asked = False

    def install(self) -> None:
        """Note the signal instead of dying of it, so that what is known can still be written."""
        for one in (signal.SIGTERM, signal.SIGUSR2):
            signal.signal(one, self._note)

    def _note(self, number: int, frame: FrameType | None) -> None:
        self.asked = True


class Part:
    """One node's part of a launch; to its ranks, the other nodes."""

    def __init__(self, folder: Path, launch: Launch, place: Place, stop: StopFlag) -> None:
        self.folder, self.launch, self.place, self.stop = folder, launch, place, stop
        self.per_node = launch.ranks.per_node
        self.nodes = len(self.per_node)
        self.ranks = range(sum(self.per_node[: place.node]), sum(self.per_node[: place.node + 1]))

    def gone(self) -> bool:
        """Whether ranks of other nodes failed, or this agent was asked to stop."""
        return self.stop.asked or (self.nodes > 1 and files.is_broken(self.folder, self.place.attempt))

    def failed(self) -> None:
        """Tell the other nodes."""
        if self.nodes > 1:
            files.tell_broken(self.folder, self.place.attempt)


class Starter(Protocol):
    """Runs the ranks of one part of a launch and says how each ended."""

    def __call__(self, part: Part, limit_s: float) -> list[RankEnd]: ...


def run_job(folders: tuple[str, ...], env: Mapping[str, str | None]) -> int:
    """Run the launches in ``folders`` that have not ended yet, all of them on this host; the number that ran.

    ``env`` is put into the environment first (None removes a name): the job's launcher may have changed it.
    """
    die_with_parent()
    _set_environment(env)
    place = Place(node=0, host=platform.node(), attempt=LOCAL)
    pending = [Path(folder) for folder in folders if not files.has_ended(Path(folder), read_launch(Path(folder)))]
    for folder in pending:
        run_part(Part(folder, read_launch(folder), place, StopFlag()), start_by_agent)
    return len(pending)


def run_task(folders: tuple[str, ...], env: Mapping[str, str | None], launcher: Launcher = "agent") -> int:
    """Run this node's part of the launches in ``folders``, as a Slurm task; the number that ran.

    A job that Slurm starts again does again what had not ended well, and keeps the two attempts apart.
    """
    _set_environment(env)
    place, stop = Place.of_task(os.environ), StopFlag()
    stop.install()
    parts = [Part(Path(folder), read_launch(Path(folder)), place, stop) for folder in folders]
    try:
        return sum(_run_once(part, _starter(launcher)) for part in parts)
    except (OSError, StoreError) as error:
        if not is_full_disk(error):
            raise
        # nothing can be written of it, so the exit code says it
        print(error, file=sys.stderr, flush=True)
        os._exit(DISK_FULL)


def is_full_disk(error: BaseException | None) -> bool:
    """Whether an error, or what caused it, is a lack of disk space."""
    while error is not None:
        if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
            return True
        error = error.__cause__
    return False


def _run_once(part: Part, start: Starter) -> bool:
    """Run this node's part of a launch unless it has none, or the launch had ended well or is not this job's."""
    if part.stop.asked or part.place.node >= part.nodes or files.ended_well(part.folder, part.launch):
        return False
    if not is_own(part.folder, part.place.attempt):
        print(f"{part.folder} belongs to another job now; nothing is left to do for this one", flush=True)
        return False
    if part.place.node == 0:
        files.begin_attempt(part.folder, part.place.attempt)
    _wait(part, lambda: files.read_attempt(part.folder) == part.place.attempt)
    run_part(part, start)
    return True


def is_own(folder: Path, attempt: str) -> bool:
    """Whether a launch waits for the job of this attempt.

    A controller that was silent may take a job whose submitter has long given up and submitted it anew.
    """
    file = read_job_file(folder)
    other = file is not None and file.job_id is not None and file.job_id != attempt.partition(".")[0]
    return not other and not (folder / "collected").exists()


def _starter(launcher: Launcher) -> Starter:
    if launcher == "torchrun":
        # here, not above: it builds on this module
        from harness.execute.torchrun import start_by_torchrun

        return start_by_torchrun
    return start_by_agent


def _set_environment(env: Mapping[str, str | None]) -> None:
    for name, value in env.items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value
    # where a user's model lies; ranks take this process's path, not the variable
    sys.path[:0] = [p for p in (env.get("PYTHONPATH") or "").split(os.pathsep) if p and p not in sys.path]


def _wait(part: Part, condition: Callable[[], bool]) -> bool:
    """Wait for another node's agent; False if it does not come in time or the launch is over before."""
    deadline = time.monotonic() + MEET_WITHIN_S
    while not condition():
        if time.monotonic() > deadline or part.gone():
            return False
        time.sleep(POLL_S)
    return True


def run_part(part: Part, start: Starter) -> LaunchOutcome:
    """Run this node's ranks of one launch and write how they ended."""
    create(part.folder, part.per_node, part.place.node)
    started, started_unix = datetime.now(UTC), time.time()
    limit_s = launch_limit_s(part.launch)
    ends = {end.rank: end for end in start(part, limit_s)}
    wall_s = time.time() - started_unix
    outcome = LaunchOutcome(
        host=part.place.host,
        node=part.place.node,
        attempt=None if part.place.attempt == LOCAL else part.place.attempt,
        started_at=started.isoformat(timespec="milliseconds"),
        started_unix=started_unix,
        allocated_unix=part.place.allocated_unix,
        wall_s=wall_s,
        timed_out=wall_s >= limit_s,
        stopped=part.stop.asked,
        ends=tuple(ends.get(rank) or RankEnd(rank=rank, hung=True) for rank in part.ranks),
    )
    if not all(end.ok for end in outcome.ends):
        part.failed()
    write_outcome(part.folder, outcome, part.nodes)
    return outcome


def launch_limit_s(launch: Launch) -> float:
    """Longest time of a launch: the run limit for each of its runs."""
    return sum(run.settings.run_timeout_s for run in launch.runs)


def start_by_agent(part: Part, limit_s: float) -> list[RankEnd]:
    """Ranks as children of this agent, which sees each one's exit code."""
    # among several nodes the interface is the profile's, or the one towards rank 0
    env = {"GLOO_SOCKET_IFNAME": "lo"} if part.launch.ranks.device == "cpu" and part.nodes == 1 else {}
    with RankGroup(len(part.ranks), part.ranks.start, log_folder=part.folder, env=env, peers=part) as group:
        try:
            _meet(group, part)
            return group.run(f"{WORKER}:run_launch", part.folder, timeout_s=limit_s)
        except RankError as error:
            return list(error.ends)


def _meet(group: RankGroup, part: Part) -> None:
    """Let the ranks of this node join the process group, each with its share of this host's CPUs."""
    launch = part.launch
    timeout_s = launch.runs[0].settings.collective_timeout_s
    interface = ""
    if part.place.node == 0:
        address, port = LOOPBACK, group.call_one(0, f"{WORKER}:serve_store", part.place.attempt)
        if part.nodes > 1:
            interface = publish(part, port)
    else:
        address, interface, port = find_first(part)
    group.call(
        *(f"{WORKER}:enter", port, launch.ranks.world_size, launch.ranks.device, timeout_s),
        threads_per_rank(part),
        *(address, interface, part.place.attempt),
        str(part.folder) if launch.debug_comms else "",
        timeout_s=MEET_WITHIN_S,
    )


def threads_per_rank(part: Part) -> int:
    """A rank's share of this host's CPUs."""
    return max(1, len(os.sched_getaffinity(0)) // len(part.ranks))


def publish(part: Part, port: int) -> str:
    """Tell the other nodes where rank 0 is; the interface of the likeliest address."""
    own = network.addresses(os.environ)
    if not own:
        raise no_meeting(part, "this host has no address that another could reach: NetworkError: network is down")
    texts = tuple(one.text for one in own)
    files.publish(part.folder, Rendezvous(attempt=part.place.attempt, addresses=texts, port=port))
    return own[0].interface


def find_first(part: Part, try_it: bool = True) -> tuple[str, str, int]:
    """Address of rank 0, interface towards it (where it was tried), port."""
    found: list[Rendezvous] = []

    def published() -> bool:
        rendezvous = files.read_rendezvous(part.folder, part.place.attempt)
        found.extend([rendezvous] if rendezvous else [])
        return bool(found)

    if not _wait(part, published):
        raise no_meeting(part, f"the first node said nothing within {MEET_WITHIN_S:.0f} s: connection timed out")
    (rendezvous,) = found
    if not try_it:
        return rendezvous.addresses[0], "", rendezvous.port
    reached = network.reach(rendezvous.addresses, rendezvous.port)
    if reached is None:
        where = ", ".join(rendezvous.addresses)
        raise no_meeting(part, f"none of {where} takes a connection on port {rendezvous.port}: no route to host")
    return reached.text, reached.interface, rendezvous.port


def no_meeting(part: Part, cause: str) -> RankError:
    """All ranks of this node failed to meet the others; none is to blame when the launch was over before."""
    if part.gone():
        return RankError([RankEnd(rank=rank, hung=True) for rank in part.ranks])
    return RankError([RankEnd(rank=rank, error=f"rank 0 cannot be reached: {cause}") for rank in part.ranks])
