"""Commands, errors, waiting, and what the machine must have."""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

HOSTS_FILE = Path("/etc/hosts")
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

NEEDS = "needs root and the Debian packages slurm-wlm slurmdbd mariadb-server munge iproute2"
# What is called, and the Debian package that has it.
PACKAGE_OF = {
    "sbatch": "slurm-wlm",
    "slurmctld": "slurm-wlm",
    "slurmd": "slurm-wlm",
    "munged": "munge",
    "ip": "iproute2",
    "tc": "iproute2",
    "nsenter": "util-linux",
    "unshare": "util-linux",
}
PACKAGE_OF_ACCOUNTING = {
    "slurmdbd": "slurmdbd",
    "mariadbd": "mariadb-server",
    "mariadb-install-db": "mariadb-server",
}
# Bits of CapEff in /proc/self/status.
CAPABILITIES = {"CAP_NET_ADMIN": 12, "CAP_SYS_ADMIN": 21, "CAP_MKNOD": 27}


class ClusterError(Exception):
    """Something went wrong; the message says what, and what to do."""

    exit_code = 1


class MissingError(ClusterError):
    """This machine lacks something that a virtual cluster needs."""

    exit_code = 2


def require_packages(accounting: bool) -> None:
    """Raise `MissingError` unless all programs of a cluster are installed."""
    commands = PACKAGE_OF | (PACKAGE_OF_ACCOUNTING if accounting else {})
    missing = {package for command, package in commands.items() if shutil.which(command, path=PATH) is None}
    if missing:
        raise MissingError(f"{NEEDS}; missing here: apt-get install {' '.join(sorted(missing))}")


def require_rights() -> None:
    """Raise `MissingError` unless this process is root, with the capabilities that a container may lack."""
    if os.geteuid() != 0:
        raise MissingError(f"{NEEDS}; missing here: root")
    status = Path("/proc/self/status").read_text()
    effective = int(status.split("CapEff:")[1].split()[0], 16)
    missing = [name for name, bit in CAPABILITIES.items() if not effective >> bit & 1]
    if missing:
        raise MissingError(f"{NEEDS}; missing here: {' '.join(missing)} for root in this container")


def run(*argv: str, env: dict[str, str] | None = None, check: bool = True) -> str:
    """The output of a command. One that fails is a `ClusterError`, or an empty text without ``check``."""
    done = subprocess.run(argv, capture_output=True, text=True, env={"PATH": PATH, **(env or {})})
    if done.returncode == 0:
        return done.stdout
    if check:
        raise ClusterError(f"{' '.join(argv)}: {done.stderr.strip() or f'exit code {done.returncode}'}")
    return ""


def wait_for(what: str, ready: Callable[[], bool], timeout_s: float, every_s: float = 0.05) -> None:
    """Return once ``ready()`` is true; a `ClusterError` after ``timeout_s``."""
    deadline = time.monotonic() + timeout_s
    while not ready():
        if time.monotonic() > deadline:
            raise ClusterError(f"{what}: not within {timeout_s:g} s")
        time.sleep(every_s)


@contextmanager
def machine_lock() -> Iterator[None]:
    """One command at a time changes clusters on this machine: addresses and the hosts file are shared by all."""
    with HOSTS_FILE.open() as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
