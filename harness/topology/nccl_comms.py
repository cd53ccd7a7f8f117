"""Communicators from NCCL or RCCL INFO logs of several ranks: members, transports between them, rings."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

from harness.comms import Communicator
from harness.topology.nccl_log import EDGE, LINE, RINGS

_COMM = re.compile(r"\bcomm (0x[0-9a-fA-F]+) rank ([0-9]{1,7}) nranks ([0-9]{1,7})\b", re.I)
_ID = re.compile(r"\bcommId (0x[0-9a-fA-F]+)")
_Process = tuple[str, str]  # host and process id


@dataclass
class _Part:
    """One process's part of a communicator."""

    rank: int
    size: int
    comm_id: str | None = None
    edges: Counter[str] = field(default_factory=Counter)
    rings: int | None = None


@dataclass
class _Log:
    """What one process wrote so far."""

    parts: dict[str, _Part] = field(default_factory=dict)  # by address in the process
    current: _Part | None = None
    early: _Part = field(default_factory=lambda: _Part(0, 0))  # lines of a communicator that is not named yet
    says_start: bool = False


def read_communicators(logs: Mapping[int, str]) -> tuple[Communicator, ...]:
    """The communicators in the logs of a job's ranks, by rank; larger ones first.

    NCCL names a communicator by its id at the start and end of its making, and connections in between without a
    name. Those count for the one being made in that process; connections made later, at the first collective, for
    the one that was made last. Of logs without ids (older than 2.19) only the largest communicator can be put
    together.
    """
    found: dict[str, dict[int, tuple[int, _Part]]] = {}
    for rank, text in logs.items():
        for process in _processes(text).values():
            for part in process.parts.values():
                if part.size > 1:
                    found.setdefault(part.comm_id or f"of {part.size}", {})[part.rank] = (rank, part)
    largest = max((part.size for parts in found.values() for _, part in parts.values()), default=0)
    whole = {key: parts for key, parts in found.items() if not key.startswith("of ") or key == f"of {largest}"}
    made = [_communicator(parts) for parts in whole.values()]
    return tuple(sorted(made, key=lambda one: (-len(one.ranks), one.ranks)))


def _communicator(parts: Mapping[int, tuple[int, _Part]]) -> Communicator:
    edges: Counter[str] = Counter()
    for _, part in parts.values():
        edges.update(part.edges)
    rings = [part.rings for _, part in parts.values() if part.rings is not None]
    return Communicator(
        ranks=tuple(rank for _, (rank, _) in sorted(parts.items())),
        transports=tuple(name for name, _ in edges.most_common()),
        rings=max(rings, default=None),
    )


def _processes(text: str) -> dict[_Process, _Log]:
    found: dict[_Process, _Log] = {}
    for line in text.split("\n"):
        if match := LINE.search(line):
            _take(found.setdefault((match.group(1), match.group(2)), _Log()), match.group(7))
    return found


def _take(log: _Log, message: str) -> None:
    if named := _COMM.search(message):
        _name(log, named, message)
    target = log.current or log.early
    if edge := EDGE.search(message):
        target.edges[transport(edge.group(3))] += 1
    if rings := RINGS.search(message):
        target.rings = int(rings.group(1))


def _name(log: _Log, named: re.Match[str], message: str) -> None:
    address, rank, size = named.groups()
    part = log.parts.get(address)
    if part is None or "Init START" in message:
        part = log.parts[address] = _Part(int(rank), int(size))
        if not log.says_start and "Init START" not in message:
            # an old log names a communicator only when it is complete
            part.edges, part.rings = log.early.edges, log.early.rings
            log.early = _Part(0, 0)
    log.says_start = log.says_start or "Init START" in message
    if found := _ID.search(message):
        part.comm_id = found.group(1)
    log.current = part if log.says_start else None


def transport(name: str) -> str:
    """``P2P``, ``SHM`` or ``NET/IB`` of ``P2P/CUMEM/read``, ``SHM/direct/direct``, ``NET/IB/0/GDRDMA``."""
    words = name.split("/")
    return "/".join(words[:2]) if words[0] == "NET" else words[0]
