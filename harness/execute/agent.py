"""What a job does on its node: run launches one after the other, each in fresh rank processes that are always ended."""

from __future__ import annotations

import os
import platform
import time
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path

from harness.execute.ranks import Outcome, RankError, RankGroup
from harness.launch.folder import LaunchOutcome, RankEnd, read_launch, write_outcome
from harness.launch.progress import create
from harness.spec import Launch

WORKER = "harness.train.worker"


def run_job(folders: tuple[str, ...], env: Mapping[str, str | None]) -> int:
    """Run the launches in ``folders`` that have not ended yet; the number that ran.

    ``env`` is put into the environment first (None removes a name): the job's launcher may have changed it.
    """
    for name, value in env.items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value
    pending = [Path(folder) for folder in folders if not (Path(folder) / "outcome.json").exists()]
    for folder in pending:
        run_on_this_host(folder)
    return len(pending)


def run_on_this_host(folder: Path) -> LaunchOutcome:
    """Run one launch, all of whose ranks are on this host, and write its outcome."""
    launch = read_launch(folder)
    create(folder, launch.ranks.world_size)
    started, started_unix = datetime.now(UTC), time.time()
    limit_s = launch_limit_s(launch)
    env = {"GLOO_SOCKET_IFNAME": "lo"} if launch.ranks.device == "cpu" else {}
    with RankGroup(launch.ranks.world_size, log_folder=folder, env=env) as group:
        try:
            start_ranks(group, launch)
            ends = group.run(f"{WORKER}:run_launch", folder, timeout_s=limit_s)
        except RankError as error:
            ends = list(error.outcomes)
    outcome = LaunchOutcome(
        host=platform.node(),
        started_at=started.isoformat(timespec="milliseconds"),
        started_unix=started_unix,
        wall_s=time.time() - started_unix,
        timed_out=time.time() - started_unix >= limit_s,
        ends=tuple(_end(end) for end in ends),
    )
    write_outcome(folder, outcome)
    return outcome


def launch_limit_s(launch: Launch) -> float:
    """Longest time of a launch: the run limit for each of its runs."""
    return sum(run.settings.run_timeout_s for run in launch.runs)


def start_ranks(group: RankGroup, launch: Launch) -> None:
    """Let the ranks of a launch join their process group, each with its share of this host's CPUs."""
    world_size = launch.ranks.world_size
    threads = max(1, len(os.sched_getaffinity(0)) // world_size)
    timeout_s = launch.runs[0].settings.collective_timeout_s
    port = group.call_one(0, f"{WORKER}:serve_store")
    group.call(f"{WORKER}:enter", port, world_size, launch.ranks.device, timeout_s, threads)


def _end(outcome: Outcome) -> RankEnd:
    return RankEnd(rank=outcome.rank, error=outcome.error, exit_code=outcome.exit_code, hung=outcome.hung)
