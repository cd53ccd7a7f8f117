"""Bandwidth and latency of a group of ranks: nominal from links and NICs, or a measured curve over nodes."""

from __future__ import annotations

import csv
from bisect import bisect_left
from math import inf, log
from pathlib import Path

from harness.base import Frozen
from harness.errors import UsageError
from harness.predict.software import Provenance

# Reached share of a link's rate by large messages, and the time of one hop of a ring; nccl-tests on NVLink and
# InfiniBand typically print bus bandwidths of 75% to 85% of the rate
LINK_SHARE = 0.78
NIC_SHARE = 0.85
HOP_INSIDE_S = 2e-6
HOP_ACROSS_S = 8e-6
CPU_LINK = 4e9  # bytes/s between ranks of a host, through its memory
_COLUMNS = "give columns collective, nodes, mean_or_median_GBps as CSV"
ETHERNET = 1.25e8  # bytes/s of a rank's share of a network that nobody measured: 1 Gbit/s


class Curve(Frozen):
    """Measured bus bandwidth of full nodes, bytes/s, over the number of nodes."""

    nodes: tuple[int, ...]
    all_reduce: tuple[float, ...]
    all_gather: tuple[float, ...]
    source: str

    def at(self, nodes: float, all_reduce: bool) -> float:
        """Bandwidth at any number of nodes: straight between points in logarithms, constant outside."""
        values = self.all_reduce if all_reduce else self.all_gather
        if nodes <= self.nodes[0]:
            return values[0]
        if nodes >= self.nodes[-1]:
            return values[-1]
        right = bisect_left(self.nodes, nodes)
        low, high = self.nodes[right - 1], self.nodes[right]
        part = log(nodes / low) / log(high / low)
        return float(values[right - 1] ** (1 - part) * values[right] ** part)


class Line(Frozen):
    """A collective's time: latency and size over algorithm bandwidth (bytes/s); None where it does not grow."""

    latency_s: float
    bandwidth: float | None

    def time_s(self, size_bytes: float) -> float:
        return self.latency_s + (size_bytes / self.bandwidth if self.bandwidth else 0.0)


class MeasuredGroup(Frozen):
    """Groups of one size and spread, timed while all of them communicate."""

    ranks: int
    nodes: int
    all_gather: Line | None = None
    reduce_scatter: Line | None = None
    all_reduce: Line | None = None


class Network(Frozen):
    """Links of one cluster, bytes/s in one direction.

    ``link``: between devices of a node, per device; ``nic``: out of a node, per device; None is unknown. What
    ``groups`` has measured is taken before anything else, then ``curve``.
    """

    link: float | None
    nic: float | None
    curve: Curve | None = None
    groups: tuple[MeasuredGroup, ...] = ()
    provenance: Provenance = "nominal"
    source: str

    def collective_s(
        self, size_bytes: float, ranks: int, nodes: int, *, all_reduce: bool = False, scatter: bool = False
    ) -> float:
        """Seconds of a ring collective whose whole tensor has ``size_bytes``, over groups that all run at once.

        An all-gather or reduce-scatter moves (n - 1)/n of the tensor through each rank, an all-reduce twice that; a
        ring crosses a node's border on as many NICs as it has ranks there. Source: Thakur et al. 2005; nccl-tests,
        doc/PERFORMANCE.md.
        """
        if ranks <= 1 or size_bytes <= 0:
            return 0.0
        measured = self._measured(ranks, nodes, all_reduce, scatter)
        if measured is not None:
            return measured.time_s(size_bytes)
        factor = (2 if all_reduce else 1) * (ranks - 1) / ranks
        hops = (2 if all_reduce else 1) * (ranks - 1)
        latency = hops * HOP_INSIDE_S if nodes <= 1 else _tree_hops(ranks, nodes)
        return size_bytes * factor / self.bus(ranks, nodes, all_reduce=all_reduce) + latency

    def _measured(self, ranks: int, nodes: int, all_reduce: bool, scatter: bool) -> Line | None:
        for group in self.groups:
            if (group.ranks, group.nodes) == (ranks, nodes):
                return group.all_reduce if all_reduce else group.reduce_scatter if scatter else group.all_gather
        return None

    def bus(self, ranks: int, nodes: int, *, all_reduce: bool = False) -> float:
        """Bus bandwidth of a group of ``ranks`` on ``nodes`` nodes, bytes/s."""
        inside = None if self.link is None else self.link * LINK_SHARE
        if self.curve is not None:
            inside = self.curve.at(1, all_reduce)
        if nodes <= 1:
            return inside or 1e9
        across = (self.nic or 1e9) * NIC_SHARE * ranks / nodes
        if self.curve is not None:
            across = min(across, self.curve.at(nodes, all_reduce))
        return min(across, inside) if inside is not None and ranks > nodes else across


def _tree_hops(ranks: int, nodes: int) -> float:
    """NCCL pipelines messages, so that a long ring costs less than a hop a rank; between nodes a hop each."""
    return (nodes - 1) * HOP_ACROSS_S + min(ranks - nodes, 8) * HOP_INSIDE_S


def read_curve(path: Path) -> Curve:
    """A curve from a CSV file with columns collective, nodes, mean_or_median_GBps.

    Raises:
        UsageError: it cannot be read, a column or a collective is missing, or a bandwidth is none.
    """
    try:
        with path.open(encoding="utf-8", newline="") as lines:
            rows = list(csv.DictReader(lines))
        values = {(r["collective"].lower(), int(r["nodes"])): float(r["mean_or_median_GBps"]) * 1e9 for r in rows}
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror or error}; {_COLUMNS}") from None
    except (KeyError, ValueError, TypeError, AttributeError, csv.Error) as error:
        raise UsageError(f"{path}: {error}; {_COLUMNS}") from None
    for (kind, count), rate in values.items():
        if count < 1 or not 0 < rate < inf:
            raise UsageError(f"{path}: {kind} on {count} nodes at {rate / 1e9:g} GB/s; give numbers above 0")
    nodes = tuple(sorted({n for kind, n in values if kind == "allreduce"} & {n for k, n in values if k == "allgather"}))
    if not nodes:
        raise UsageError(f"{path} has no node count with both AllReduce and AllGather; give both")
    return Curve(
        nodes=nodes,
        all_reduce=tuple(values["allreduce", n] for n in nodes),
        all_gather=tuple(values["allgather", n] for n in nodes),
        source=str(path),
    )


def _gb(*values: float) -> tuple[float, ...]:
    return tuple(value * 1e9 for value in values)


EFA_H100 = Curve(
    nodes=(1, 2, 4, 8, 16, 32, 64),
    all_reduce=_gb(436.0, 361.7, 160.1, 99.6, 84.7, 64.9, 32.9),
    all_gather=_gb(249.8, 184.6, 119.0, 69.0, 55.0, 28.0, 11.0),
    source="Hugging Face, Ultra-Scale Playbook (2025), measured bandwidth over nodes of 8 H100 joined by EFA, 256 MB",
)
