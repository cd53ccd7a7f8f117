"""Processes of a cluster: started in the background, known by pid files, ended by id."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from virtual_cluster.model import Cluster, Host
from virtual_cluster.system import PATH, ClusterError, wait_for

LOG_TAIL_LINES = 15
PATIENCE_S = 120.0  # what takes seconds may take this long on a machine that has other work
PROC = Path("/proc")


@dataclass(frozen=True)
class Service:
    """A daemon that stays in the foreground, on one host."""

    name: str
    host: Host
    argv: tuple[str, ...]
    env: dict[str, str] = field(default_factory=dict)


def start(cluster: Cluster, service: Service) -> subprocess.Popen[bytes]:
    """Start a service in a session of its own and keep its pid."""
    with log_file(cluster, service).open("ab") as log:
        process = subprocess.Popen(
            service.host.enter(*service.argv),
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            env={"PATH": PATH, "LANG": "C.UTF-8", **cluster.env, **service.env},
            cwd="/",
            start_new_session=True,
        )
    pid_file(cluster, service).write_text(f"{process.pid} {start_time(process.pid)}\n")
    return process


def log_file(cluster: Cluster, service: Service) -> Path:
    return cluster.logs / f"{service.name}.{service.host.name}.log"


def pid_file(cluster: Cluster, service: Service) -> Path:
    return cluster.pids / f"{service.name}.{service.host.name}.pid"


def start_time(pid: int) -> str | None:
    """When a living process was started, in clock ticks. With its id it names one process, also after ids wrapped."""
    try:
        stat = (PROC / str(pid) / "stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return None
    state, *fields = stat.rpartition(")")[2].split()
    return None if state in "ZX" else fields[18]


def running(file: Path) -> int | None:
    """The id of the process in a pid file if that very process still lives."""
    try:
        pid, started = file.read_text().split()
    except (FileNotFoundError, ValueError):
        return None
    return int(pid) if start_time(int(pid)) == started else None


def wait_ready(cluster: Cluster, service: Service, ready: Callable[[], bool], timeout_s: float = PATIENCE_S) -> None:
    """Return once a started service is ready; a `ClusterError` with the end of its log if it ends or takes too long."""

    def alive_and_ready() -> bool:
        if running(pid_file(cluster, service)) is None:
            raise ClusterError("it ended while starting")
        return ready()

    try:
        wait_for("ready", alive_and_ready, timeout_s)
    except ClusterError as error:
        raise failure(cluster, service, str(error)) from None


def failure(cluster: Cluster, service: Service, what: str) -> ClusterError:
    """What happened to a service, with the end of its log: the log itself goes when the cluster is taken down."""
    tail = log_file(cluster, service).read_text(errors="replace").splitlines()[-LOG_TAIL_LINES:]
    return ClusterError("\n  ".join([f"{service.name} on {service.host.name}: {what}; its log:", *tail]))


def inside(hosts: Iterable[Host]) -> list[int]:
    """The processes in these hosts' network namespaces: services, job steps, what users run there."""
    wanted = {(stat.st_dev, stat.st_ino) for host in hosts if host.net.exists() for stat in [host.net.stat()]}
    found = []
    for entry in PROC.iterdir():
        if entry.name.isdigit():
            with suppress(OSError):
                stat = (entry / "ns/net").stat()
                if (stat.st_dev, stat.st_ino) in wanted:
                    found.append(int(entry.name))
    return found


def kill(pids: Iterable[int]) -> None:
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def end(cluster: Cluster, hosts: Iterable[Host]) -> None:
    """End all that runs on these hosts, at once as a power cut does, and forget their services' pid files."""
    hosts = tuple(hosts)
    files = [file for host in hosts for file in cluster.pids.glob(f"*.{host.name}.pid")]

    def gone() -> bool:
        left = [*filter(None, map(running, files)), *inside(hosts)]
        kill(left)
        return not left

    wait_for(f"end of all processes on {' '.join(host.name for host in hosts)}", gone, timeout_s=PATIENCE_S)
    for file in files:
        file.unlink()
