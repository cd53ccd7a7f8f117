"""Measured on few nodes, predicted for many: each layout's step time as it grows, and where another one wins.

Weak scaling: every rank keeps its samples, and the outermost data-parallel axis grows with the nodes. What a layout
measured stays; only the predicted change is added:

    step(N) = measured(N0) + predicted(N) - predicted(N0)

The interval holds the measured one, half of the predicted change, and 3% of the step for each doubling of the nodes,
all as independent (root of the sum of squares).
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from math import hypot, log2

from harness.base import Frozen
from harness.errors import UsageError
from harness.layout import Layout, Mesh
from harness.predict.device import Device
from harness.predict.job import job_of
from harness.predict.network import Network
from harness.predict.software import Software
from harness.predict.time import predict_time
from harness.workload import Workload

CHANGE_DOUBT = 0.5  # of a predicted change
DOUBLING_DOUBT = 0.03  # of the step, for each doubling of the nodes


class Measured(Frozen):
    """A layout's measured step time with its 95% interval, seconds."""

    layout: Layout
    step_time_s: float
    low_s: float
    high_s: float


class ScaledLayout(Frozen):
    """One layout on ``nodes`` nodes. ``change_s``: what prediction adds to the measured step."""

    layout: str
    nodes: int
    step_time_s: float
    low_s: float
    high_s: float
    change_s: float
    tokens_per_s: float


class Change(Frozen):
    """From ``nodes`` on ``winner`` is fastest, where ``before`` was; ``separated``: their intervals do not overlap."""

    nodes: int
    winner: str
    before: str
    separated: bool


class Scaling(Frozen):
    """All layouts at the measured number of nodes and at each doubling up to the one asked for."""

    measured_nodes: int
    nodes: tuple[int, ...]
    layouts: tuple[ScaledLayout, ...]
    changes: tuple[Change, ...]
    left_out: tuple[str, ...]

    def at(self, nodes: int) -> tuple[ScaledLayout, ...]:
        """Layouts on so many nodes, fastest first."""
        return tuple(sorted((one for one in self.layouts if one.nodes == nodes), key=lambda one: one.step_time_s))


def scale(
    measured: Sequence[Measured],
    workload: Workload,
    ranks_per_node: int,
    nodes: int,
    device: Device,
    network: Network,
    software: Software,
) -> Scaling:
    """Grow every measured layout to ``nodes`` nodes.

    Raises:
        UsageError: ``nodes`` is no multiple of the measured number, or nothing that was measured can grow.
    """
    growing = [one for one in measured if grown(one.layout, 2) is not None]
    if not growing:
        raise UsageError("no measured layout has a data-parallel axis that could grow; measure ddp, fsdp or hsdp")
    first = max(1, growing[0].layout.mesh.world_size // ranks_per_node)
    counts = _counts(first, nodes)
    found = []
    for one in growing:
        start = _predicted(one.layout, workload, ranks_per_node, device, network, software)
        for count in counts:
            layout = grown(one.layout, count // first)
            assert layout is not None
            bigger = workload.model_copy(update={"global_batch": workload.global_batch * count // first})
            change = _predicted(layout, bigger, ranks_per_node, device, network, software) - start
            found.append(_scaled(one, layout, bigger, count, change, log2(count / first)))
    left = tuple(one.layout.label for one in measured if one not in growing)
    return Scaling(
        measured_nodes=first, nodes=counts, layouts=tuple(found), changes=_changes(found, counts), left_out=left
    )


def grown(layout: Layout, factor: int) -> Layout | None:
    """The layout on ``factor`` times as many ranks, its outermost data-parallel axis longer; None if it has none."""
    mesh = layout.mesh
    if mesh.dp_replicate > 1:
        bigger = Mesh(dp_replicate=mesh.dp_replicate * factor, dp_shard=mesh.dp_shard, tp=mesh.tp)
    elif mesh.dp_shard > 1:
        bigger = Mesh(dp_shard=mesh.dp_shard * factor, tp=mesh.tp)
    else:
        return None
    return layout.model_copy(update={"mesh": bigger})


def _counts(first: int, last: int) -> tuple[int, ...]:
    if last < first or last % first:
        raise UsageError(f"--nodes {last}: give a multiple of the {first} nodes that were measured")
    counts = [first]
    while counts[-1] * 2 < last:
        counts.append(counts[-1] * 2)
    return tuple(dict.fromkeys((*counts, last)))


def _predicted(
    layout: Layout, workload: Workload, ranks_per_node: int, device: Device, network: Network, software: Software
) -> float:
    return predict_time(job_of(layout, workload, ranks_per_node), device, network, software).step_time_s


def _scaled(
    one: Measured, layout: Layout, workload: Workload, nodes: int, change: float, doublings: float
) -> ScaledLayout:
    step = max(one.step_time_s + change, 0.05 * one.step_time_s)
    doubt = hypot(CHANGE_DOUBT * change, DOUBLING_DOUBT * one.step_time_s * doublings)
    return ScaledLayout(
        layout=layout.text,
        nodes=nodes,
        step_time_s=step,
        low_s=max(0.0, step - hypot(one.step_time_s - one.low_s, doubt)),
        high_s=step + hypot(one.high_s - one.step_time_s, doubt),
        change_s=change,
        tokens_per_s=workload.tokens_per_step / step,
    )


def _changes(found: Sequence[ScaledLayout], counts: Sequence[int]) -> tuple[Change, ...]:
    """Where the fastest layout is another than at the count before, by the layout's place in the measured order."""
    per_count = [[one for one in found if one.nodes == count] for count in counts]
    best = [min(range(len(rows)), key=lambda at, rows=rows: rows[at].step_time_s) for rows in per_count]  # type: ignore[misc]
    changes = []
    for (was, now), rows in zip(pairwise(best), per_count[1:], strict=True):
        if was != now:
            changes.append(
                Change(
                    nodes=rows[now].nodes,
                    winner=rows[now].layout,
                    before=rows[was].layout,
                    separated=rows[now].high_s < rows[was].low_s,
                )
            )
    return tuple(changes)
