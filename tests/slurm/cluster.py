"""A running virtual cluster, as tests use it: Slurm's commands, faults, link rates and byte counters."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

COMMAND = Path(__file__).parents[2] / "slurm" / "virtual-cluster"
MISSING = 2
# no test waits so long for anything but on a machine that has other work
LONG_S = 200.0
ENDED = (
    "COMPLETED",
    "FAILED",
    "CANCELLED",
    "TIMEOUT",
    "NODE_FAIL",
    "PREEMPTED",
    "OUT_OF_MEMORY",
    "DEADLINE",
    "BOOT_FAIL",
)


def virtual_cluster(*argv: str, timeout_s: float = LONG_S) -> subprocess.CompletedProcess[str]:
    """Run ``slurm/virtual-cluster``."""
    return subprocess.run([sys.executable, COMMAND, *argv], capture_output=True, text=True, timeout=timeout_s)


def bring_up(folder: Path, *options: str) -> VirtualCluster:
    """A cluster in ``folder``; skips the test where none can run. The caller takes it down."""
    done = virtual_cluster("up", "--dir", str(folder), *options)
    if done.returncode == MISSING and "missing here" in done.stderr:
        pytest.skip(done.stderr.strip())
    assert done.returncode == 0, done.stderr
    return VirtualCluster(folder)


def wait_until(condition: Callable[[], Any], within_s: float = LONG_S, every_s: float = 0.1) -> Any:
    """What ``condition`` gives once it gives something."""
    deadline = time.monotonic() + within_s
    while not (found := condition()):
        assert time.monotonic() < deadline, f"not within {within_s:.0f} s"
        time.sleep(every_s)
    return found


@dataclass(frozen=True)
class WireBytes:
    """Bytes that a node sent to and received from other hosts. What stays inside the node is not counted."""

    sent: int
    received: int

    def __sub__(self, before: WireBytes) -> WireBytes:
        return WireBytes(self.sent - before.sent, self.received - before.received)


class VirtualCluster:
    """A cluster that is up. ``env`` is a whole environment: this process's without Slurm's variables, plus
    ``SLURM_CONF``."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        status = self.status()
        self.nodes: tuple[str, ...] = tuple(status["nodes"])
        self.addresses: dict[str, str] = {name: node["address"] for name, node in status["nodes"].items()}
        clean = {k: v for k, v in os.environ.items() if not k.startswith(("SLURM_", "SBATCH_", "SALLOC_", "SRUN_"))}
        self.env: dict[str, str] = {**clean, **status["env"]}

    # The cluster itself

    def control(self, *argv: str) -> str:
        """Run a ``virtual-cluster`` command on this cluster."""
        done = virtual_cluster(argv[0], "--dir", str(self.folder), *argv[1:])
        assert done.returncode == 0, done.stderr
        return done.stdout

    def status(self) -> dict[str, Any]:
        """Also of a cluster that is not complete."""
        done = virtual_cluster("status", "--dir", str(self.folder), "--json")
        assert done.stdout, done.stderr
        status: dict[str, Any] = json.loads(done.stdout)
        return status

    def kill_node(self, node: str) -> None:
        self.control("kill-node", node)

    def start_node(self, node: str) -> None:
        self.control("start-node", node)

    def set_rate(self, rate: str) -> None:
        """Such as ``50mbit``, or ``none``."""
        self.control("rate", rate)

    def pid(self, service: str) -> int:
        """Of ``slurmctld``, ``slurmdbd``, ``mariadbd`` or ``munged``; of a node's slurmd: ``slurmd.NODE``."""
        pids: dict[str, int] = {name: pid for name, pid in self.status()["pids"].items() if pid is not None}
        return next(pid for name, pid in pids.items() if service in (name, name.split(".")[0]))

    @contextmanager
    def silent_controller(self) -> Iterator[None]:
        """The controller takes connections and answers none."""
        controller = self.pid("slurmctld")
        os.kill(controller, signal.SIGSTOP)
        try:
            yield
        finally:
            os.kill(controller, signal.SIGCONT)

    def wire_bytes(self, node: str) -> WireBytes:
        """Since the node was made; take differences."""
        counts = self.status()["nodes"][node]
        return WireBytes(counts["sent_bytes"], counts["received_bytes"])

    def node_state(self, node: str) -> str | None:
        """Slurm's word: ``idle``, ``mixed``, ``allocated``, ``down``, ..."""
        state: str | None = self.status()["nodes"][node]["state"]
        return state

    def on_node(self, node: str, *argv: str | Path) -> list[str | Path]:
        """The command line that runs ``argv`` on a node, outside Slurm."""
        return [sys.executable, COMMAND, "exec", "--dir", str(self.folder), node, "--", *argv]

    # Slurm's commands

    def run(self, *argv: str | Path, timeout_s: float = LONG_S, **env: str) -> str:
        """The output of a command with the cluster's environment; one that fails fails the test."""
        done = subprocess.run(argv, capture_output=True, text=True, timeout=timeout_s, env={**self.env, **env})
        assert done.returncode == 0, f"{argv}: exit code {done.returncode}\n{done.stdout}{done.stderr}"
        return done.stdout

    def sbatch(self, *options: str | Path) -> int:
        """Submit and give the job's id."""
        return int(self.run("sbatch", "--parsable", *options).split(";")[0])

    def squeue(self, *options: str) -> dict[int, str]:
        """State by job id of what waits, runs or is about to end; elements of an array have ids of their own."""
        text = self.run("squeue", "--noheader", "--array", "--format=%A %T", *options)
        return {int(job): state for job, state in map(str.split, text.splitlines())}

    def cancel_all(self, timeout_s: float = LONG_S) -> None:
        """End all jobs and wait until none is left."""
        deadline = time.monotonic() + timeout_s
        while queue := self.squeue():
            assert time.monotonic() < deadline, queue
            self.run("scancel", "--user=root")
            time.sleep(0.2)

    def sacct(self, job: int, *fields: str) -> list[dict[str, str]]:
        """A row for the job, then one for each of its steps."""
        names = fields or ("JobID", "State", "ExitCode", "NodeList")
        text = self.run("sacct", "--noheader", "--parsable2", f"--jobs={job}", f"--format={','.join(names)}")
        return [dict(zip(names, line.split("|"), strict=True)) for line in text.splitlines()]

    def job_state(self, job: int) -> str:
        """From the controller, so it needs no accounting; a job stays there for five minutes after its end."""
        found = re.search(r"JobState=(\w+)", self.run("scontrol", "show", "job", str(job)))
        assert found is not None
        return found[1]

    def wait(self, job: int, states: Collection[str] = ENDED, timeout_s: float = LONG_S) -> str:
        """The first of these states that the job is seen in: by default, the one it ends in."""
        deadline = time.monotonic() + timeout_s
        while (state := self.job_state(job)) not in states:
            assert time.monotonic() < deadline, f"job {job} is {state} after {timeout_s} s, not {'/'.join(states)}"
            time.sleep(0.1)
        return state
