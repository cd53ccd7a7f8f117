"""Where a topology comes from: this machine, asked through the best reader that works, or saved files."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path

from harness.errors import TopologyError, UnknownNameError
from harness.topology import cpu, text
from harness.topology.model import Topology
from harness.topology.result import ReadResult

_READERS: dict[str, Callable[[], Topology]] = {"cpu": cpu.read}
SOURCES = ("auto", *_READERS)


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
    """The topology that saved outputs describe."""
    for path in paths:
        text.load(Path(path))
        raise TopologyError(f"{path} is no topology listing that is known; save `nvidia-smi topo -m`")
    raise TopologyError("no file given; name at least one saved listing")
