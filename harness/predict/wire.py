"""From algorithm bytes to bytes on links: which rank sends what to which, with the backend's own algorithm.

For a message of S bytes (``Collective.size_bytes``) in a group of n, in the order of ranks:

- *ring* (all-reduce): each rank sends 2 (n - 1) / n S to its neighbour; all-gather and reduce-scatter (n - 1) / n S.
  Source: NCCL's ring algorithm, as in nccl-tests' PERFORMANCE.md; gloo/allreduce.cc and allgather.cc (UNSPECIFIED
  is the ring).
- *tree* (NCCL, all-reduce only): chains inside nodes, between nodes two binary trees with half the data each:
  2 S over each joint. Source: NCCL's trees.cc; Sanders et al. 2009.
- *gloo* has no ring for reduce-scatter: torch's ``ProcessGroupGloo`` all-reduces the whole tensor and keeps a part.
  Its broadcast is a binomial tree, its reduce a ring and then a gather of n parts, its gather and scatter direct sends.

Rings cross from node to node once a node, since ranks are numbered node after node and NCCL orders its rings so.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from itertools import pairwise, product
from typing import Literal

from harness.base import Frozen
from harness.layout import AXES, Layout
from harness.layout.order import slots
from harness.topology.links import link_between
from harness.topology.model import LinkClass, Topology
from harness.traffic import Collective

Algorithm = Literal["gloo", "nccl_ring", "nccl_tree"]
Edge = tuple[int, int]  # from, to: places in a group, or slots
Groups = tuple[tuple[int, ...], ...]
_Pattern = Literal["ring", "tree", "chain", "binomial", "to_root", "from_root", "pairs"]


class LinkTraffic(Frozen):
    """What one axis sends over one class of links in one step, all ranks together, bytes."""

    axis: str
    link_class: LinkClass
    sent_bytes: int


class WireTraffic(Frozen):
    """One step on the wire.

    Attributes:
        rank_sent_bytes: what each slot's process sends to others.
        node_sent_bytes: what each node sends to other nodes; ``node_received_bytes`` what reaches it from them.
    """

    algorithm: Algorithm
    links: tuple[LinkTraffic, ...]
    rank_sent_bytes: tuple[int, ...]
    node_sent_bytes: tuple[int, ...]
    node_received_bytes: tuple[int, ...]

    @property
    def sent_bytes(self) -> int:
        """All bytes that ranks send."""
        return sum(link.sent_bytes for link in self.links)

    @property
    def cross_node_bytes(self) -> int:
        """Those of them that go to another node."""
        return sum(self.node_sent_bytes)

    @property
    def cross_node_share(self) -> float | None:
        """Bytes between nodes over all bytes that ranks send; None where nothing is sent."""
        return self.cross_node_bytes / sum(self.rank_sent_bytes) if sum(self.rank_sent_bytes) else None


def wire_traffic(
    collectives: Iterable[Collective], layout: Layout, topology: Topology, algorithm: Algorithm
) -> WireTraffic:
    """Bytes of one step by link class, rank and node.

    ``collectives`` are one rank's and stand for every rank's; ``topology`` has at least the layout's ranks in devices.

    Raises:
        ValueError: a collective without a shape, such as a send, whose peer its group does not tell.
    """
    places = [(at, device.index) for at, node in enumerate(topology.nodes) for device in node.devices]
    nodes = [at for at, _ in places[: layout.mesh.world_size]]
    by_link: Counter[tuple[str, LinkClass]] = Counter()
    sent: Counter[int] = Counter()
    out: Counter[int] = Counter()
    into: Counter[int] = Counter()

    @cache
    def edges_of(axis: str, size: int, pattern: _Pattern) -> Counter[Edge]:
        groups = groups_on(layout, axis, size)
        return Counter((group[a], group[b]) for group in groups for a, b in edges(pattern, [nodes[s] for s in group]))

    @cache
    def link(a: int, b: int) -> LinkClass:
        return link_between(topology, places[a], places[b])

    for (axis, size, pattern), weight in _weights(collectives, algorithm).items():
        for (a, b), times in edges_of(axis, size, pattern).items():
            amount = weight * times
            by_link[axis, link(a, b)] += amount
            sent[a] += amount
            if nodes[a] != nodes[b]:
                out[nodes[a]] += amount
                into[nodes[b]] += amount
    count = len(set(nodes))
    return WireTraffic(
        algorithm=algorithm,
        links=tuple(
            LinkTraffic(axis=axis, link_class=link_class, sent_bytes=round(amount))
            for (axis, link_class), amount in sorted(by_link.items())
        ),
        rank_sent_bytes=tuple(round(sent[slot]) for slot in range(len(nodes))),
        node_sent_bytes=tuple(round(out[node]) for node in range(count)),
        node_received_bytes=tuple(round(into[node]) for node in range(count)),
    )


def groups_on(layout: Layout, axis: str, size: int) -> Groups:
    """The slots of every group of ``size`` ranks over an axis, or over several joined by ``+``, in slot order.

    A smaller size than the axis' cuts its groups into runs of neighbours, as ``reshard_after_forward=2`` does.
    """
    mesh, axes = layout.mesh, axis.split("+")
    slot_of = slots(mesh, layout.options.order)
    found: dict[tuple[int, ...], list[int]] = {}
    for rank in range(mesh.world_size):
        rest = tuple(at for name, at in zip(AXES, mesh.coordinate(rank), strict=True) if name not in axes)
        found.setdefault(rest, []).append(slot_of[rank])
    return tuple(
        tuple(sorted(members[first : first + size]))
        for members in found.values()
        for first in range(0, len(members), size)
    )


def edges(pattern: _Pattern, nodes: Sequence[int]) -> Iterator[Edge]:
    """The directed edges of one pattern among members whose nodes these are; an edge may come several times."""
    n = len(nodes)
    if pattern == "ring":
        yield from ((at, (at + 1) % n) for at in range(n))
    elif pattern == "chain":
        yield from pairwise(range(n))
    elif pattern == "binomial":
        yield from ((at - (1 << (at.bit_length() - 1)), at) for at in range(1, n))
    elif pattern == "to_root":
        yield from ((at, 0) for at in range(1, n))
    elif pattern == "from_root":
        yield from ((0, at) for at in range(1, n))
    elif pattern == "pairs":
        yield from ((a, b) for a, b in product(range(n), repeat=2) if a != b)
    else:
        yield from _tree(nodes)


def _weights(collectives: Iterable[Collective], algorithm: Algorithm) -> Counter[tuple[str, int, _Pattern]]:
    """Bytes over each edge of each pattern."""
    weights: Counter[tuple[str, int, _Pattern]] = Counter()
    for one in collectives:
        for pattern, fraction in _shape(one, algorithm):
            weights[one.axis, one.group_size, pattern] += fraction * one.total_bytes  # type: ignore[assignment]
    return weights


def _shape(one: Collective, algorithm: Algorithm) -> list[tuple[_Pattern, float]]:
    """Which edges carry a collective, and what part of its size each of them carries."""
    n, gloo = one.group_size, algorithm == "gloo"
    part, rest = 1 / n, (n - 1) / n
    if one.operation == "all_reduce":
        return [("tree", 0.5)] if algorithm == "nccl_tree" else [("ring", 2 * rest)]
    if one.operation == "reduce_scatter":
        return [("ring", 2 * rest if gloo else rest)]
    if one.operation == "all_gather":
        return [("ring", rest)]
    if one.operation == "broadcast":
        return [("binomial" if gloo else "chain", 1)]
    if one.operation == "reduce":
        return [("ring", rest), ("to_root", part)] if gloo else [("chain", 1)]
    if one.operation in ("gather", "scatter"):
        return [("to_root" if one.operation == "gather" else "from_root", part)]
    if one.operation == "all_to_all":
        return [("pairs", part)]
    raise ValueError(f"nothing says to whom a {one.operation} on {one.axis} goes")


def _tree(nodes: Sequence[int]) -> Iterator[Edge]:
    """NCCL's double binary tree: each edge carries half the data once; inside a node both halves go along a chain."""
    members: dict[int, list[int]] = {}
    for at, node in enumerate(nodes):
        members.setdefault(node, []).append(at)
    for local in members.values():
        for a, b in pairwise(local):
            yield from ((a, b), (b, a)) * 2
    heads = [local[0] for local in members.values()]
    count = len(heads)
    for tree in range(2):
        for at in range(1, count):
            up = parent(at, count)
            child, above = (heads[_second(x, count) if tree else x] for x in (at, up))
            yield from ((child, above), (above, child))


def parent(at: int, count: int) -> int:
    """The parent of node ``at`` > 0 in NCCL's binary tree over ``count`` nodes (ncclGetBtree)."""
    bit = at & -at
    up = (at ^ bit) | (bit << 1)
    return up if up < count else at ^ bit


def _second(at: int, count: int) -> int:
    """The node at a place of the second tree: mirrored where the count is even, else shifted by one (ncclGetDtree)."""
    return count - 1 - at if count % 2 == 0 else (at + 1) % count
