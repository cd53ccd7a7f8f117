"""Slurm's own listings of nodes and their GRES: ``scontrol show node``, ``sinfo``, node lines of slurm.conf."""

from __future__ import annotations

import re
from collections.abc import Iterable

from pydantic import Field

from harness.base import Frozen
from harness.errors import TopologyError
from harness.topology import cpulist, slurm_nodes
from harness.topology.model import Device, Node, Topology
from harness.topology.plain import one_line

_MAX_DEVICES = 1024
_ITEM = re.compile(r"([A-Za-z][\w-]*)((?::[^:()]+|:\(null\))*)(?:\(([^()]*)\)?)?\Z")
_CUT = re.compile(r"\bgpu:(?=[0-9.]*[A-Za-z_])[\w.-]+(?:,|\Z)")
_SHARES = re.compile(r"(?:-|[0-9]+)/[0-9]+(?:,(?:-|[0-9]+)/[0-9]+)*")
_MIG = re.compile(r"[0-9]+g\.[0-9]+gb", re.I)
_SCALE = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}
_DOWN = ("down", "drain", "fail", "maint", "err", "power", "boot", "unk", "no_resp", "future", "inval")
SOURCE = "slurm listing: nodes, GRES, states"


class Gres(Frozen):
    """One entry such as ``gpu:a100:4(S:0-1)``: ``sockets`` from (S:...), ``indices`` in use from (IDX:...)."""

    name: str
    type: str | None = None
    count: int = Field(ge=0)
    sockets: str | None = None
    indices: tuple[int, ...] = ()
    shares: tuple[str, ...] = ()  # of shards, in use / all, one a GPU
    consumable: bool = True

    @property
    def is_mig(self) -> bool:
        """Whether this counts slices of GPUs, not whole ones."""
        return self.name == "gpu" and self.type is not None and _MIG.search(self.type) is not None


class GresNode(Frozen):
    """One node as Slurm lists it; ``used`` is None where the listing does not say."""

    host: str
    gres: tuple[Gres, ...] = ()
    used: tuple[Gres, ...] | None = None
    state: str | None = None
    cpus: int | None = None
    memory_bytes: int | None = None
    partitions: tuple[str, ...] = ()
    rows: int = 1

    @property
    def gpus(self) -> int:
        """Whole GPUs."""
        return sum(gres.count for gres in self.gres if gres.name == "gpu" and not gres.is_mig)

    @property
    def mig_devices(self) -> int:
        return sum(gres.count for gres in self.gres if gres.is_mig)

    @property
    def gpus_used(self) -> int | None:
        if self.used is None:
            return None
        return sum(gres.count for gres in self._used_gpus)

    @property
    def _used_gpus(self) -> tuple[Gres, ...]:
        return tuple(gres for gres in self.used or () if gres.name == "gpu" and not gres.is_mig)

    @property
    def whole_used(self) -> tuple[int, ...]:
        """Indices of GPUs that are allocated whole."""
        return tuple(index for gres in self._used_gpus for index in gres.indices)

    @property
    def free_gpus(self) -> tuple[int, ...] | None:
        """Indices of GPUs of which nothing is in use; None where the listing does not say which are."""
        if self.used is None or (self.gpus_used or 0) != len(self.whole_used):
            return None
        shared = {
            index for gres in self.used for index, share in enumerate(gres.shares) if not share.startswith(("-", "0/"))
        }
        return tuple(index for index in range(self.gpus) if index not in shared | set(self.whole_used))

    @property
    def available(self) -> bool | None:
        """Whether jobs may start here; None if no state is listed."""
        if self.state is None:
            return None
        return self.state[-1:] != "*" and not any(word in self.state.lower() for word in _DOWN)


def parse_gres(text: str) -> tuple[Gres, ...]:
    """The entries of a GRES column; none for "(null)" and the like."""
    if text.strip().lower() in ("", "(null)", "none", "n/a"):
        return ()
    return tuple(_one(part, text) for part in _split(text.strip()))


def read(text: str, host: str = "node0") -> tuple[Topology, tuple[GresNode, ...]]:
    """Topology and nodes of any mixture of these listings; a node listed several times counts once."""
    rows = slurm_nodes.rows(text, host)
    if not rows:
        raise TopologyError(
            "no node found in this Slurm listing; save `scontrol show node` or `sinfo -N -o '%N %G %t'`"
        )
    merged: dict[str, GresNode] = {}
    for row in rows:
        node = _node(row)
        merged[node.host] = _merge(merged[node.host], node) if node.host in merged else node
    warnings = [
        f"{node.host}: {node.mig_devices} MIG devices are no whole GPUs and get no rank"
        for node in merged.values()
        if node.mig_devices
    ]
    warnings.extend(
        f"{row.host}: the GRES column is cut in {one_line(row.gres)}; widen it, as in sinfo -O Gres:80"
        for row in rows
        if row.gres and _CUT.search(row.gres)
    )
    nodes = tuple(_topology_node(node) for node in merged.values())
    return Topology(nodes=nodes, sources=(SOURCE,), warnings=tuple(warnings)), tuple(merged.values())


def _split(text: str) -> list[str]:
    """The parts between commas outside of parentheses."""
    parts, depth, start = [], 0, 0
    for position, character in enumerate(text):
        depth += (character == "(") - (character == ")")
        if character == "," and depth == 0:
            parts.append(text[start:position])
            start = position + 1
    return [part for part in (*parts, text[start:]) if part]


def _one(part: str, text: str) -> Gres:
    match = _ITEM.match(re.sub(r"^gres[/:]", "", part.strip()))
    if match is None:
        raise TopologyError(f"{one_line(part)!r} is no GRES entry; expected the form gpu:a100:4")
    name, fields, note = match.group(1), match.group(2).split(":")[1:], match.group(3) or ""
    fields = [field for field in fields if field != "(null)"]
    count = _count(fields[-1]) if fields else 1
    if count is not None and fields:
        fields = fields[:-1]
    kinds = [field for field in fields if field not in ("no_consume", "")]
    return Gres(
        name=name,
        type=":".join(kinds) or None,
        count=1 if count is None else count,
        sockets=note.removeprefix("S:") if note.startswith("S:") else None,
        indices=_indices(note),
        shares=tuple(note.split(",")) if _SHARES.fullmatch(note) else (),
        consumable="no_consume" not in match.group(2),
    )


def _count(field: str) -> int | None:
    match = re.fullmatch(r"([0-9]{1,15})([KMGT]?)", field)
    return int(match.group(1)) * _SCALE[match.group(2)] if match else None


def _indices(note: str) -> tuple[int, ...]:
    ids = cpulist.parse(note.removeprefix("IDX:")) if note.startswith("IDX:") else None
    return tuple(sorted(ids)) if ids else ()


def _node(row: slurm_nodes.NodeRow) -> GresNode:
    return GresNode(
        host=row.host,
        gres=parse_gres(_CUT.sub("", row.gres or "")),
        used=None if row.used is None else parse_gres(row.used),
        state=row.state,
        cpus=row.cpus,
        memory_bytes=None if row.memory_mib is None else row.memory_mib << 20,
        partitions=tuple(row.partition.split(",")) if row.partition else (),
    )


def _merge(first: GresNode, second: GresNode) -> GresNode:
    """Both rows of one node: the first of each fact, and of the states the worst."""
    states = [state for state in (first.state, second.state) if state]
    return GresNode(
        host=first.host,
        gres=first.gres or second.gres,
        used=first.used if first.used is not None else second.used,
        state=max(states, key=slurm_nodes.badness) if states else None,
        cpus=first.cpus if first.cpus is not None else second.cpus,
        memory_bytes=first.memory_bytes if first.memory_bytes is not None else second.memory_bytes,
        partitions=tuple(dict.fromkeys((*first.partitions, *second.partitions))),
        rows=first.rows + second.rows,
    )


def _topology_node(node: GresNode) -> Node:
    return Node(
        host=node.host,
        devices=tuple(_devices(node.gres)),
        cpu_count=node.cpus,
        memory_bytes=node.memory_bytes,
    )


def _devices(gres: Iterable[Gres]) -> list[Device]:
    """One device a whole GPU; Slurm numbers them in the order of its entries."""
    names = [entry.type for entry in gres if entry.name == "gpu" and not entry.is_mig for _ in range(entry.count)]
    if len(names) > _MAX_DEVICES:
        raise TopologyError(f"{len(names)} GPUs listed for one node; check the GRES count")
    return [Device(index=index, kind=_kind(name), name=name) for index, name in enumerate(names)]


def _kind(name: str | None) -> str:
    return "rocm" if name and re.search(r"\bmi[0-9]{2,3}[ax]?\b|instinct|amd", name.lower()) else "cuda"
