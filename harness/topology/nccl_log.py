"""Facts from NCCL or RCCL INFO logs: ranks, nodes, channels, transports, devices by bus id."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, field

from harness.base import Frozen
from harness.topology import cpulist
from harness.topology.model import Device, Node, Topology

LINE = re.compile(
    r"\b([A-Za-z0-9][\w.-]{0,254}):([0-9]{1,10}):([0-9]{1,10}) \[(-?[0-9]{1,5})\]\s"
    r"(.*?)NCCL (INFO|WARN|TRACE|ABORT)\s(.*)"
)
_VERSION = re.compile(r"\b([NR]CCL) version ([0-9][\w.+-]*)")
_COMM = re.compile(
    r"\brank ([0-9]{1,7}) nranks ([0-9]{1,7}) cudaDev ([0-9]{1,4})(?: nvmlDev ([0-9]{1,4}))?"
    r"(?: busId ([0-9a-f]{1,12}))?",
    re.I,
)
_SIZES = re.compile(r"\bnRanks ([0-9]{1,7}) nNodes ([0-9]{1,7}) localRanks ([0-9]{1,5})", re.I)
_RING = re.compile(r"(?:Channel|Ring) ([0-9]{1,4})(?:/([0-9]{1,4}))?\s*:((?:\s+[0-9]{1,7})+)\s*\Z")
_RING_CUT = 20  # NCCL's line holds no more ranks than this
RINGS = re.compile(r"\b([0-9]{1,4}) coll channels")
EDGE = re.compile(
    r"(?:Channel|Ring) [0-9/]+ ?: ([0-9]{1,7})(?:\[\w+\])? -> ([0-9]{1,7})(?:\[\w+\])?(?: \[\w+\])? via (\S.*?)"
    r"(?:\s+comm\b.*)?\s*\Z"
)
_USING = re.compile(r"\bUsing network (\S.*?)\s*\Z|\bNET/([A-Za-z]+) ?: Using ")
_AFFINITY = re.compile(r"Setting affinity for GPU ([0-9]{1,4}) to ([0-9a-fA-F,]+)\s*\Z")
_OWN = re.compile(r"(?:Bootstrap ?: Using|OOB) (?:\[0\])?[\w.-]+:([0-9a-fA-F.:]+)<")
_PEER = re.compile(r"\bfrom peer ([0-9a-fA-F.:]+)<")
SOURCE = "NCCL log: ranks, devices, transports"


class NcclFacts(Frozen):
    """What a log tells; None where it does not.

    ``nodes`` and ``nranks`` are of the job; ``hosts`` and ``ranks`` those whose lines the log holds.
    """

    library: str = "NCCL"
    version: str | None = None
    hosts: tuple[str, ...] = ()
    ranks: tuple[int, ...] = ()
    nodes: int | None = None
    nranks: int | None = None
    ranks_per_node: int | None = None
    channels: int | None = None
    intra: str | None = None
    inter_node: str | None = None
    gpu_direct: bool = False
    warnings: tuple[str, ...] = ()


@dataclass
class _Seen:
    """What the lines of one log hold, before anything follows from it."""

    hosts: dict[str, dict[int, tuple[int, str | None]]] = field(default_factory=dict)  # rank -> (device, bus)
    slots: dict[str, set[int]] = field(default_factory=dict)  # host -> device numbers in brackets
    cpus: dict[tuple[str, int], str] = field(default_factory=dict)
    numbers: dict[str, list[int]] = field(default_factory=dict)
    edges: Counter[str] = field(default_factory=Counter)
    networks: list[str] = field(default_factory=list)
    own: set[str] = field(default_factory=set)
    peers: set[str] = field(default_factory=set)
    warnings: dict[str, None] = field(default_factory=dict)

    def note(self, key: str, value: str | None) -> None:
        if value is not None:
            self.numbers.setdefault(key, []).append(int(value))

    def largest(self, key: str) -> int | None:
        return max(self.numbers.get(key, []), default=None)


def matches(text: str) -> bool:
    """Whether ``text`` holds lines of NCCL's or RCCL's debug log."""
    return any(LINE.search(line) for line in text.split("\n"))


def read(text: str) -> tuple[Topology, NcclFacts]:
    """The hosts of the log in rank order with the devices that it names, and its facts."""
    seen = _Seen()
    for line in text.split("\n"):
        if found := LINE.search(line):
            _take(seen, found)
    version = _VERSION.search(text)
    library = version.group(1) if version else "RCCL" if "rccl" in text.lower() else "NCCL"
    ordered = tuple(sorted(seen.hosts, key=lambda host: min(seen.hosts[host], default=1 << 30)))
    facts = _facts(seen, library, version.group(2) if version else None).model_copy(update={"hosts": ordered})
    kind = "rocm" if library == "RCCL" else "cuda"
    nodes = tuple(Node(host=host, devices=_devices(seen, host, kind)) for host in ordered)
    return Topology(nodes=nodes, sources=(SOURCE,)), facts


def joined(first: NcclFacts, second: NcclFacts) -> NcclFacts:
    """The facts of two logs of one job; where both know something, ``first`` is right."""
    missing = {name: value for name, value in second if getattr(first, name) is None}
    own = set(first.hosts)
    several = {
        "hosts": (*first.hosts, *(host for host in second.hosts if host not in own)),
        "ranks": tuple(sorted({*first.ranks, *second.ranks})),
        "gpu_direct": first.gpu_direct or second.gpu_direct,
        "warnings": tuple(dict.fromkeys((*first.warnings, *second.warnings))),
    }
    return first.model_copy(update={**missing, **several})


def gap(facts: NcclFacts) -> str | None:
    """What a log lacks of its job, with the remedy; None where it holds every rank or does not tell."""
    where = f" on {facts.nodes} nodes" if facts.nodes is not None and facts.nodes > 1 else ""
    lacks_nodes = facts.nodes is not None and len(facts.hosts) < facts.nodes
    remedy = "add the other nodes' logs" if lacks_nodes else "add the other ranks' logs"
    if facts.nranks is not None and 0 < len(facts.ranks) < facts.nranks:
        word = "rank" if len(facts.ranks) == 1 else "ranks"
        return f"the log holds {word} {cpulist.render(facts.ranks)} of {facts.nranks}{where}; {remedy}"
    if lacks_nodes:
        return f"the log holds lines of {len(facts.hosts)} of {facts.nodes} nodes; {remedy}"
    return None


def _take(seen: _Seen, found: re.Match[str]) -> None:
    host, message = found.group(1), found.group(7)
    ranks = seen.hosts.setdefault(host, {})
    seen.slots.setdefault(host, set()).add(int(found.group(4)))
    if found.group(6) == "WARN":
        seen.warnings.setdefault(message.strip())
    if comm := _COMM.search(message):
        rank, nranks, cuda, nvml, bus = comm.groups()
        seen.note("nranks", nranks)
        # Later communicators are often subgroups that number their ranks anew.
        if int(nranks) == seen.largest("nranks"):
            ranks[int(rank)] = (int(nvml or cuda), bus)
    if sizes := _SIZES.search(message):
        for key, value in zip(("nranks", "nodes", "local"), sizes.groups(), strict=True):
            seen.note(key, value)
    if channels := RINGS.search(message):
        seen.note("channels", channels.group(1))
    if ring := _RING.search(message):
        number, of, members = ring.groups()
        seen.note("channels", of or str(int(number) + 1))
        seen.note("ring", str(len(members.split())) if len(members.split()) < _RING_CUT else None)
    if edge := EDGE.search(message):
        seen.edges[edge.group(3)] += 1
    if using := _USING.search(message):
        seen.networks.insert(0 if using.group(1) else len(seen.networks), using.group(1) or using.group(2))
    if affinity := _AFFINITY.search(message):
        seen.cpus[host, int(affinity.group(1))] = cpulist.from_mask(affinity.group(2)) or ""
    seen.own.update(_OWN.findall(message))
    seen.peers.update(_PEER.findall(message))


def _facts(seen: _Seen, library: str, version: str | None) -> NcclFacts:
    nodes, per_node = _shape(seen)
    net = Counter({_network(name): count for name, count in seen.edges.items() if name.startswith("NET/")})
    inside = Counter({name: count for name, count in seen.edges.items() if "NET/" not in name})
    between = net.most_common(1)[0][0] if net else None
    if between is None and nodes is not None and nodes > 1 and seen.networks:
        between = f"NET/{seen.networks[0].removeprefix('NET/')}"
    return NcclFacts(
        library=library,
        version=version,
        nodes=nodes,
        nranks=_nranks(seen),
        ranks=tuple(sorted({rank for ranks in seen.hosts.values() for rank in ranks})),
        ranks_per_node=per_node,
        channels=seen.largest("channels"),
        intra=inside.most_common(1)[0][0] if inside else None,
        inter_node=between,
        gpu_direct=any("GDRDMA" in name for name in seen.edges),
        warnings=tuple(seen.warnings),
    )


def _shape(seen: _Seen) -> tuple[int | None, int | None]:
    """Nodes and ranks a node: as printed, else from the ranks that the hosts of the log account for."""
    nodes, local, nranks = seen.largest("nodes"), seen.largest("local"), _nranks(seen)
    if nodes is not None:
        return nodes, local
    held = {host: len(ranks) or len(seen.slots[host]) for host, ranks in seen.hosts.items()}
    each = max(held.values(), default=0)
    if nranks is not None and each and nranks in (sum(held.values()), each * len(held)):
        return len(held), each
    if nranks is not None and each > 1 and set(held.values()) == {each} and nranks % each == 0:
        return nranks // each, each
    if seen.own and seen.peers - seen.own:
        return len(held) + len(seen.peers - seen.own), None
    return (len(held), None) if len(held) > 1 else (None, None)


def _nranks(seen: _Seen) -> int | None:
    """As printed; else the length of a ring that is short enough not to be cut."""
    printed = seen.largest("nranks")
    return printed if printed is not None else seen.largest("ring")


def _network(name: str) -> str:
    """``NET/IB/1/GDRDMA`` and ``NET/AWS Libfabric/0`` without port and options."""
    return "/".join(name.split("/")[:2])


def _devices(seen: _Seen, host: str, kind: str) -> tuple[Device, ...]:
    found = list(seen.hosts[host].values())
    distinct = len({index for index, _ in found}) == len(found)
    # With one visible GPU a process every rank calls its own 0; then only the order of ranks is left.
    numbered = found if distinct else [(place, bus) for place, (_, bus) in enumerate(found)]
    return tuple(
        Device(
            index=index,
            kind=kind,
            pci_bus=_bus(bus),
            cpus=(seen.cpus.get((host, index)) or None) if distinct else None,
        )
        for index, bus in sorted(numbered, key=lambda one: one[0])
    )


def _bus(text: str | None) -> str | None:
    """NCCL's number 1a000 as the bus id 0000:1a:00.0."""
    if text is None:
        return None
    value = int(text, 16)
    return f"{value >> 20:04x}:{value >> 12 & 0xFF:02x}:{value >> 4 & 0xFF:02x}.{value & 0xF:x}"
