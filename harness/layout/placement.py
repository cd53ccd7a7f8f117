"""Where a mesh lies on the machine: which links each axis spans, whether it crosses nodes, what it carries there.

Groups are never listed for this. An axis of size n whose neighbours lie s slots apart cuts the slots into blocks of
n * s; a group crosses a boundary between nodes exactly where a boundary falls inside a block.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from itertools import accumulate, pairwise
from typing import NamedTuple

from harness.base import Frozen
from harness.errors import IllegalLayoutError
from harness.layout.layout import Layout
from harness.layout.mesh import AXES, strided_groups
from harness.layout.order import strides
from harness.layout.subset import counts_text, uneven_remedy
from harness.topology.model import LinkClass, Node, Topology

CLOSENESS = {link_class: rank for rank, link_class in enumerate(LinkClass)}


class AxisPlacement(Frozen):
    """One axis (of size 2 or more) on the machine.

    ``stride`` is in slots. ``link_class`` is the farthest of any two members of any group. ``cut`` says that node
    boundaries divide the groups unequally. ``carries`` names what crosses the axis in a step.
    """

    axis: str
    size: int
    stride: int
    link_class: LinkClass
    crosses_nodes: bool
    cut: bool
    carries: tuple[str, ...]


class Placement(Frozen):
    """A layout on the machine. ``order``: axes, the fastest over devices last."""

    order: tuple[str, ...]
    axes: tuple[AxisPlacement, ...]
    node_aligned: bool
    remark: str

    def axis(self, name: str) -> AxisPlacement | None:
        """The placement of one axis; None if it has size 1."""
        return next((one for one in self.axes if one.axis == name), None)

    @property
    def sort_key(self) -> tuple[bool, bool, bool, bool]:
        """Node-aligned layouts first, those that cut nodes or whose tp crosses them last."""
        tp, shard = self.axis("tp"), self.axis("dp_shard")
        return (
            any(one.cut for one in self.axes),
            tp is not None and tp.crosses_nodes,
            not self.node_aligned,
            shard is not None and shard.crosses_nodes,
        )


class _Pattern(NamedTuple):
    """What decides distances inside a node: how many devices, the classes by position, the class of all others."""

    size: int
    classes: tuple[tuple[int, int, LinkClass], ...]
    default: LinkClass


class _Level(NamedTuple):
    """Nodes of one key are joined by ``link_class`` or closer.

    ``boundary`` is the common divisor of the slots at which the key changes, None where nodes of a key are scattered.
    """

    keys: Sequence[Hashable]
    boundary: int | None
    link_class: LinkClass


class Placer:
    """Places layouts on one topology. Nodes that are alike are looked at once, and each question once."""

    def __init__(self, topology: Topology, order: Sequence[str] = AXES, *, allow_cross_node_tp: bool = False) -> None:
        self._allow_cross_node_tp = allow_cross_node_tp
        self._nodes = [node for node in topology.nodes if node.devices]
        self._topology = topology
        self._order = tuple(order)
        counts = [len(node.devices) for node in self._nodes]
        boundaries = list(accumulate(counts))
        self._total = boundaries[-1] if boundaries else 0
        self._boundary = math.gcd(*boundaries[:-1])
        self._per_node = counts[0] if len(set(counts)) == 1 else None
        self._patterns = set(map(_pattern, self._nodes))
        self._levels = (
            self._level([node.switch or at for at, node in enumerate(self._nodes)], LinkClass.SAME_SWITCH),
            self._level(_fabrics(self._nodes), LinkClass.OTHER_SWITCH),
        )
        self._within: dict[tuple[int, int], LinkClass] = {}
        self._between: dict[tuple[int, int], LinkClass] = {}

    @property
    def uneven(self) -> bool:
        """Whether nodes differ in their number of devices."""
        return self._per_node is None and bool(self._nodes)

    def place(self, layout: Layout) -> Placement:
        """Where ``layout`` lies; its mesh must span exactly this topology's devices."""
        step = strides(layout.mesh, self._order)
        sizes = dict(zip(AXES, layout.mesh.sizes, strict=True))
        axes = tuple(self._axis(axis, sizes[axis], step[axis], layout) for axis in AXES if sizes[axis] > 1)
        return Placement(
            order=self._order,
            axes=axes,
            node_aligned=self._aligned(axes),
            remark="; ".join(map(self._remark, axes)) or "one rank",
        )

    def check(self, layout: Layout, placement: Placement) -> None:
        """Raise where the machine, not the model, forbids the layout.

        Raises:
            IllegalLayoutError: rule ``uneven_nodes`` or ``cross_node_tp``.
        """
        cut = [one.axis for one in placement.axes if one.cut]
        if self.uneven and cut:
            raise IllegalLayoutError(
                "uneven_nodes",
                f"{layout.label}: nodes have {counts_text(self._topology)} devices, and a node boundary cuts groups of "
                f"{', '.join(cut)}; {uneven_remedy(self._topology)}",
            )
        tp = placement.axis("tp")
        if tp is not None and tp.crosses_nodes and not self._allow_cross_node_tp:
            raise IllegalLayoutError("cross_node_tp", f"{layout.label}: {self._cross_node_tp(tp)}")

    def _cross_node_tp(self, tp: AxisPlacement) -> str:
        near = max((n for n in range(2, tp.size) if self._boundary % n == 0), default=None)
        if tp.stride > 1:
            remedy = "let tp run fastest with --order dp_replicate,dp_shard,tp, or pass"
        elif near:
            remedy = f"tp={near} stays inside a node, or pass"
        else:
            remedy = "use a layout without tp, or pass"
        return f"tp={tp.size} crosses nodes of {counts_text(self._topology)} devices; {remedy} --allow-cross-node-tp"

    def _axis(self, axis: str, size: int, stride: int, layout: Layout) -> AxisPlacement:
        crosses = self._boundary % (size * stride) != 0
        return AxisPlacement(
            axis=axis,
            size=size,
            stride=stride,
            link_class=self.between_nodes(size, stride) if crosses else self.within_nodes(size, stride),
            crosses_nodes=crosses,
            cut=crosses and not self._divides_evenly(size, stride),
            carries=_carries(axis, layout),
        )

    def _divides_evenly(self, size: int, stride: int) -> bool:
        """Whether every group has the same number of members on each node that it touches."""
        block, per_node = size * stride, self._per_node
        if per_node is None:
            return block == self._total
        return stride % per_node == 0 or (block % per_node == 0 and per_node % stride == 0)

    def _aligned(self, axes: Sequence[AxisPlacement]) -> bool:
        """Whether the boundary between nodes falls between two axes."""
        crossing = [one for one in axes if one.crosses_nodes]
        if not crossing:
            return True
        if self._per_node is None:
            return len(crossing) == 1 and len(axes) > 1 and not crossing[0].cut
        return any(one.stride == self._per_node for one in crossing)

    def _remark(self, one: AxisPlacement) -> str:
        if not one.crosses_nodes:
            where = "stays inside a node" if len(self._nodes) > 1 else "is on one node"
            return f"{one.axis} {where} ({_link_text(one.link_class)})"
        if one.axis == "tp" and not self._allow_cross_node_tp:
            return f"tp crosses nodes ({_link_text(one.link_class)}): excluded unless --allow-cross-node-tp"
        verb = "is cut by node boundaries" if one.cut else "crosses nodes"
        return f"{one.axis} {verb} ({_link_text(one.link_class)})"

    def within_nodes(self, size: int, stride: int) -> LinkClass:
        """The farthest class of an axis that crosses no node."""
        if (size, stride) not in self._within:
            found = (_farthest(pattern, size, stride) for pattern in self._patterns)
            self._within[size, stride] = max(found, key=CLOSENESS.__getitem__, default=LinkClass.UNKNOWN)
        return self._within[size, stride]

    def between_nodes(self, size: int, stride: int) -> LinkClass:
        """The farthest class between nodes of an axis that crosses nodes."""
        if (size, stride) not in self._between:
            self._between[size, stride] = self._farthest_between(size, stride)
        return self._between[size, stride]

    def _farthest_between(self, size: int, stride: int) -> LinkClass:
        for keys, boundary, link_class in self._levels:
            if self._together(keys, boundary, size, stride):
                return link_class
        return LinkClass.NETWORK

    def _together(self, keys: Sequence[Hashable], boundary: int | None, size: int, stride: int) -> bool:
        """Whether the nodes of every group share one key."""
        if boundary is not None:
            return boundary % (size * stride) == 0
        by_slot = [key for key, node in zip(keys, self._nodes, strict=True) for _ in node.devices]
        groups = strided_groups(self._total, size, stride)
        return all(len({by_slot[slot] for slot in group}) == 1 for group in groups)

    def _level(self, keys: Sequence[Hashable], link_class: LinkClass) -> _Level:
        ends = accumulate(len(node.devices) for node in self._nodes)
        changes = [end for end, (one, other) in zip(ends, pairwise(keys), strict=False) if one != other]
        contiguous = len(changes) + 1 == len(set(keys))
        return _Level(keys, math.gcd(*changes) if contiguous else None, link_class)


def _pattern(node: Node) -> _Pattern:
    position = {device.index: at for at, device in enumerate(node.devices)}
    classes = tuple(
        (position[link.a], position[link.b], link.link_class)
        for link in node.links
        if link.a in position and link.b in position
    )
    cpu = all(device.kind == "cpu" for device in node.devices)
    return _Pattern(len(node.devices), classes, LinkClass.HOST_MEMORY if cpu else LinkClass.UNKNOWN)


def _farthest(pattern: _Pattern, size: int, stride: int) -> LinkClass:
    if not pattern.classes:
        return pattern.default
    by_pair = {(min(a, b), max(a, b)): link_class for a, b, link_class in pattern.classes}
    found = {
        by_pair.get((a, b), pattern.default)
        for group in strided_groups(pattern.size, size, stride)
        for at, a in enumerate(group)
        for b in group[at + 1 :]
    }
    return max(found, key=CLOSENESS.__getitem__, default=pattern.default)


def _fabrics(nodes: Sequence[Node]) -> list[Hashable]:
    """For each node a key of the switches it can reach; nodes of one key are joined through known switches."""
    parent: dict[str, str] = {}

    def root(name: str) -> str:
        while parent.setdefault(name, name) != name:
            parent[name] = parent[parent[name]]
            name = parent[name]
        return name

    for node in nodes:
        for one, other in pairwise(node.switch_path):
            parent[root(one)] = root(other)
    return [root(node.switch_path[0]) if node.switch_path else at for at, node in enumerate(nodes)]


def _carries(axis: str, layout: Layout) -> tuple[str, ...]:
    if axis == "dp_replicate":
        return ("gradients all-reduce",)
    if axis == "dp_shard":
        return ("parameters all-gather", "gradients reduce-scatter")
    if layout.options.sequence_parallel:
        return ("activations all-gather", "activations reduce-scatter")
    return ("activations all-reduce",)


def _link_text(link_class: LinkClass) -> str:
    return "links unknown" if link_class is LinkClass.UNKNOWN else link_class.value
