"""Several readings made one topology: nodes joined by host, facts of one device put together."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import reduce

from harness.topology import nccl_log
from harness.topology.model import Device, Node, Topology
from harness.topology.nccl_log import NcclFacts
from harness.topology.result import ReadResult
from harness.topology.slurm_topology import Fabric
from harness.topology.sniff import Part

_DEVICE_KINDS = ("nvidia-topo", "rocm-topo", "nvidia-list")


class _Nodes:
    """Nodes gathered so far, in order, with the kinds of listing that each has been seen in."""

    def __init__(self) -> None:
        self.nodes: list[Node] = []
        self.kinds: list[set[str]] = []
        self.named: list[bool] = []
        self.warnings: list[str] = []

    def add(self, node: Node, kind: str, named: bool) -> None:
        at = self._place(node, kind, named)
        if at is None:
            self.nodes.append(node)
            self.kinds.append({kind})
            self.named.append(named)
            return
        self.nodes[at] = self._joined(self.nodes[at], node)
        self.kinds[at].add(kind)

    def _place(self, node: Node, kind: str, named: bool) -> int | None:
        if named:
            return next((at for at, old in enumerate(self.nodes) if _same_host(old.host, node.host)), None)
        # Without host names two kinds of listing with the same devices are taken for one machine's.
        indices = {device.index for device in node.devices}
        for at, old in enumerate(self.nodes):
            alike = {device.index for device in old.devices} == indices
            if not self.named[at] and kind not in self.kinds[at] and alike:
                return at
        return None

    def _joined(self, old: Node, new: Node) -> Node:
        mine, theirs = len(old.devices), len(new.devices)
        if mine and theirs and {d.index for d in old.devices} != {d.index for d in new.devices}:
            self.warnings.append(
                f"{old.host}: one listing has {mine} devices and another {theirs}; the first is kept, save both again"
            )
        return join_nodes(old, new)


def join_nodes(first: Node, second: Node) -> Node:
    """One node with the facts of both; where both know something, ``first`` is right."""
    others = {device.index: device for device in second.devices}
    devices = tuple(
        _join_devices(device, others[device.index]) if device.index in others else device for device in first.devices
    )
    return Node(
        host=first.host,
        devices=devices or second.devices,
        links=first.links or (second.links if not first.devices or set(others) == _indices(first) else ()),
        nics=first.nics or second.nics,
        switch=first.switch or second.switch,
        switch_path=first.switch_path or second.switch_path,
        cpu_count=first.cpu_count if first.cpu_count is not None else second.cpu_count,
        memory_bytes=first.memory_bytes if first.memory_bytes is not None else second.memory_bytes,
    )


def combine(parts: Sequence[Part]) -> ReadResult:
    """One result of all parts. A job's node order is the rank order, so it decides the order of nodes."""
    gathered = _Nodes()
    job = next((part.job for part in parts if part.job), None)
    devices = [part for part in parts if part.kind in _DEVICE_KINDS]
    home = (job.node_name or (job.nodes[0] if len(job.nodes) == 1 else None)) if job else None
    unnamed = {node.host for part in devices if not part.named for node in part.topology.nodes}
    for part in devices:
        for node in part.topology.nodes:
            here = not part.named and home is not None and len(unnamed) == 1
            gathered.add(node.model_copy(update={"host": home}) if here else node, part.kind, part.named or here)
    for part in parts:
        if part.kind not in _DEVICE_KINDS and part.fabric is None:
            for node in part.topology.nodes:
                gathered.add(node, part.kind, named=True)
    nccl = _nccl([part.nccl for part in parts if part.nccl])
    gap = nccl_log.gap(nccl) if nccl is not None else None
    fabric = next((part.fabric for part in parts if part.fabric), None)
    nodes = _in_job_order(gathered.nodes, job.nodes if job else ())
    nodes = _with_switches(nodes, fabric, [part.topology for part in parts if part.fabric])
    topology = Topology(
        nodes=tuple(nodes),
        sources=_distinct(source for part in parts for source in part.topology.sources),
        warnings=_distinct(
            [*(note for part in parts for note in part.topology.warnings), *gathered.warnings, *([gap] if gap else [])]
        ),
    )
    return ReadResult(
        topology=topology,
        kinds=_distinct(part.kind for part in parts),
        job=job,
        gres=tuple(node for part in parts for node in part.gres),
        fabric=fabric,
        nccl=nccl,
        hostlists=tuple(one for part in parts for one in part.hostlists),
    )


def _nccl(logs: Sequence[NcclFacts]) -> NcclFacts | None:
    """The first log's facts, with those of the others that are of a job as large."""
    if not logs:
        return None
    same = [log for log in logs[1:] if log.nranks in (None, logs[0].nranks)]
    return reduce(nccl_log.joined, same, logs[0])


def _with_switches(nodes: list[Node], fabric: Fabric | None, read: Sequence[Topology]) -> list[Node]:
    """Nodes with their switches; the fabric's own nodes where nothing else names any."""
    if fabric is None:
        return nodes
    known = {node.host: node for topology in read for node in topology.nodes}
    if not nodes:
        return list(known.values())
    return [join_nodes(node, known[node.host]) if node.host in known else node for node in nodes]


def _in_job_order(nodes: list[Node], order: Sequence[str]) -> list[Node]:
    rank = {host: place for place, host in enumerate(order)}
    return sorted(nodes, key=lambda node: rank.get(node.host, len(rank)))


def _join_devices(first: Device, second: Device) -> Device:
    missing = {
        name: value
        for name, value in second.model_dump(exclude_none=True, exclude={"index", "kind", "mig"}).items()
        if getattr(first, name) is None
    }
    return first.model_copy(update={**missing, "mig": first.mig or second.mig})


def _same_host(one: str, other: str) -> bool:
    """Whether two names are one host, with or without its domain."""
    if one == other:
        return True
    short, long = sorted((one, other), key=len)
    return "." not in short and long.startswith(f"{short}.")


def _indices(node: Node) -> set[int]:
    return {device.index for device in node.devices}


def _distinct(values: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(values))
