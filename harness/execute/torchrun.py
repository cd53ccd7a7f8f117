"""Ranks started by torchrun instead of by the agent: one torchrun a node, in a static rendezvous of its own."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import socket
import subprocess
import sys
import time

from harness.execute import network
from harness.execute.agent import LOOPBACK, MEET_WITHIN_S, Part, find_first, no_meeting, publish, threads_per_rank
from harness.execute.ranks import GRACE_S, RankError
from harness.launch import folder as files
from harness.launch.folder import RankEnd

ENTRY = "harness.train.elastic"
POLL_S = 0.5
STOP_WITHIN_S = 10.0
# torchrun's summary of failed ranks, root cause last
_FAILED = re.compile(r"rank\s*:\s*(\d+) \(local_rank: \d+\)\s+exitcode\s*:\s*(-?\d+)")


def start_by_torchrun(part: Part, limit_s: float) -> list[RankEnd]:
    """Ranks as children of this node's torchrun. Their exit codes are those of its summary."""
    try:
        address, interface, port = _meeting_point(part)
    except RankError as error:
        return list(error.ends)
    command = [
        sys.executable,
        "-m",
        "torch.distributed.run",
        f"--nnodes={part.nodes}",
        f"--node-rank={part.place.node}",
    ]
    command += [f"--nproc-per-node={len(part.ranks)}", f"--master-addr={address}", f"--master-port={port}"]
    env = {**os.environ, "OMP_NUM_THREADS": str(threads_per_rank(part))}
    if part.nodes == 1 and part.launch.ranks.device == "cpu":
        env["GLOO_SOCKET_IFNAME"] = "lo"
    elif interface:
        env.setdefault("GLOO_SOCKET_IFNAME", interface)
    log = part.folder / f"torchrun.node{part.place.node}.log"
    with log.open("ab") as file:
        process = subprocess.Popen(
            [*command, "-m", ENTRY, str(part.folder)],
            stdout=file,
            stderr=file,
            env=env,
            start_new_session=True,
        )
        try:
            in_time = _wait(part, process, limit_s)
        finally:
            _end(process)
    return _ends(part, log.read_text(encoding="utf-8", errors="replace"), process.returncode, in_time)


def _meeting_point(part: Part) -> tuple[str, str, int]:
    """Address and port of the first node's torchrun, and this host's interface towards it."""
    if part.place.node > 0:
        return find_first(part, try_it=False)
    port = _free_port()
    if part.nodes == 1:
        return LOOPBACK, "", port
    interface = publish(part, port)
    own = network.addresses(os.environ)
    if not own:
        raise no_meeting(part, "this host has no address that another could reach: network is down")
    return own[0].text, interface, port


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("", 0))
        return int(probe.getsockname()[1])


def _wait(part: Part, process: subprocess.Popen[bytes], limit_s: float) -> bool:
    """Whether torchrun ended by itself before the limit and before ranks elsewhere failed."""
    deadline = time.monotonic() + limit_s + MEET_WITHIN_S
    while process.poll() is None:
        now = time.monotonic()
        if now > deadline:
            return False
        if part.gone():
            deadline = min(deadline, now + GRACE_S)
        time.sleep(POLL_S)
    return True


def _end(process: subprocess.Popen[bytes]) -> None:
    """End torchrun and its ranks, which share its session."""
    if process.poll() is None:
        process.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(STOP_WITHIN_S)
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def _ends(part: Part, log: str, code: int, in_time: bool) -> list[RankEnd]:
    last = len(part.launch.runs) - 1
    failed = {int(rank): int(exit_code) for rank, exit_code in _FAILED.findall(log)}
    ends = []
    for rank in part.ranks:
        done = any(s["kind"] == "done" and s["run"] == last for s in files.read_samples(part.folder, rank).whole)
        if done and rank not in failed:
            ends.append(RankEnd(rank=rank))
        elif rank in failed:
            ends.append(RankEnd(rank=rank, exit_code=failed[rank]))
        elif in_time and not failed:
            ends.append(RankEnd(rank=rank, error=log[-4000:] or f"torchrun ended with exit code {code}"))
        else:
            ends.append(RankEnd(rank=rank, hung=True))
    return ends
