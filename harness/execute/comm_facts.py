"""From a launch's logs and samples to its communicators."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from ipaddress import ip_address
from pathlib import Path
from typing import Any

from harness.comms import Communicator, Communicators
from harness.launch.comm_files import nccl_log, read_nccl_log
from harness.topology.nccl_comms import read_communicators

End = tuple[str, int]


def communicators(folder: Path, seen: Sequence[Mapping[str, Any] | None]) -> Communicators | None:
    """What NCCL's logs tell; where there are none, what the ranks saw of their sockets (None: a rank told nothing)."""
    logs = {rank: text for rank in range(len(seen)) if (text := read_nccl_log(folder, rank))}
    if logs:
        paths = tuple(f"launches/{folder.name}/{nccl_log(folder, rank).name}" for rank in logs)
        return Communicators(source="NCCL's log", found=read_communicators(logs), logs=paths)
    known = {rank: one for rank, one in enumerate(seen) if one is not None}
    if not known:
        return None
    return Communicators(source="sockets of the ranks", found=_groups(known))


def _groups(seen: Mapping[int, Mapping[str, Any]]) -> tuple[Communicator, ...]:
    groups = {tuple(ranks) for one in seen.values() for ranks in one["groups"]}
    pairs = _pairs(seen)
    found = []
    for ranks in sorted(groups, key=lambda one: (-len(one), one)):
        used: Counter[str] = Counter()
        for (a, b), names in pairs.items():
            if a in ranks and b in ranks:
                used.update(names)
        found.append(Communicator(ranks=ranks, transports=tuple(name for name, _ in used.most_common())))
    return tuple(found)


def _pairs(seen: Mapping[int, Mapping[str, Any]]) -> dict[tuple[int, int], list[str]]:
    """The transports of each two ranks that have a connection whose ends are each other's."""
    mine: dict[tuple[str, End, End], int] = {}
    for rank, one in seen.items():
        for local, local_port, remote, remote_port in one["connections"]:
            mine[_host(one, local), (local, local_port), (remote, remote_port)] = rank
    pairs: dict[tuple[int, int], list[str]] = {}
    for (host, here, there), rank in mine.items():
        other = mine.get((host, there, here))
        # a socket of the rendezvous store is one of torch's, whose addresses are written as IPv6 ones
        if other is not None and other != rank and not here[0].startswith("::ffff:"):
            name = f"TCP {seen[rank]['interfaces'].get(here[0], 'of unknown interface')}"
            pairs.setdefault((rank, other), []).append(name)
    return pairs


def _host(one: Mapping[str, Any], address: str) -> str:
    """Loopback addresses are the same on every host, and mean another one there."""
    plain = address.removeprefix("::ffff:").partition("%")[0]
    return str(one["host"]) if ip_address(plain).is_loopback else ""
