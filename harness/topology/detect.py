"""Where a topology comes from: this machine, asked through the best reader that works, or saved files."""

from __future__ import annotations

import re
import socket
import subprocess
from collections.abc import Callable, Iterable
from pathlib import Path

from harness.errors import TopologyError, UnknownNameError
from harness.topology import cpu, merge, nvml, sniff, sysfs, text
from harness.topology.model import Topology
from harness.topology.result import ReadResult

_TOOL_TIMEOUT_S = 60


def detect(source: str = "auto") -> Topology:
    """The topology of this machine from ``source``; "auto" takes the first reader that works."""
    if source not in SOURCES:
        raise UnknownNameError("topology source", source, SOURCES)
    if source != "auto":
        return _READERS[source]()
    reasons: list[str] = []
    for name, reader in _READERS.items():
        try:
            found = reader()
        except TopologyError as error:
            reasons.append(f"{name} not used: {error}")
            continue
        return found.model_copy(update={"sources": (*found.sources, *reasons)})
    raise TopologyError("no source of topology works here: " + "; ".join(reasons))


def read_files(paths: Iterable[Path | str]) -> ReadResult:
    """What saved outputs say together; each file may be of any known kind, and several of one machine."""
    parts: list[sniff.Part] = []
    for path in map(Path, paths):
        try:
            parts.extend(sniff.read_text(text.load(path), _host_name(path)))
        except TopologyError as error:
            cause = str(error)
            raise TopologyError(cause if str(path) in cause else f"{path}: {cause}") from error
    if not parts:
        raise TopologyError("no file given; name at least one saved listing")
    return merge.combine(parts)


def _host_name(path: Path) -> str:
    """A listing that names no host is called after its file, as people save one file a node."""
    return re.sub(r"[^A-Za-z0-9_.-]", "-", path.name.removesuffix(path.suffix)) or "node0"


def _nvidia_smi() -> Topology:
    return _from_tools(("nvidia-smi", "topo", "-m"), ("nvidia-smi", "-L"))


def _rocm_smi() -> Topology:
    return _from_tools(("rocm-smi", "--showtopo"))


def _from_tools(*commands: tuple[str, ...]) -> Topology:
    """The reading of what ``commands`` print here; only the first of them must work."""
    host = socket.gethostname()
    parts: list[sniff.Part] = []
    for command in commands:
        try:
            parts.extend(sniff.read_text(text.clean(_output(command)), host))
        except TopologyError:
            if not parts:
                raise
    return merge.combine(parts).topology


def _output(command: tuple[str, ...]) -> str:
    try:
        done = subprocess.run(command, capture_output=True, timeout=_TOOL_TIMEOUT_S, check=False)
    except (OSError, subprocess.SubprocessError) as error:
        cause = "is not installed" if isinstance(error, FileNotFoundError) else "does not run"
        raise TopologyError(f"{command[0]} {cause}; install the driver's tools where there is a GPU") from error
    if done.returncode != 0:
        raise TopologyError(f"{' '.join(command)} exits with {done.returncode}; check the driver")
    return text.decode(done.stdout)


_READERS: dict[str, Callable[[], Topology]] = {
    "nvml": nvml.read,
    "nvidia-smi": _nvidia_smi,
    "rocm-smi": _rocm_smi,
    "sysfs": sysfs.read,
    "cpu": cpu.read,
}
SOURCES = ("auto", *_READERS)
