"""From the samples of a calibrate launch to latency and bandwidth of its groups, and its layouts' compute."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from harness.calibration import (
    CALIBRATED,
    AxisFit,
    AxisUse,
    CalibratedOperation,
    Calibration,
    GroupFit,
    OperationFit,
    axis_groups,
    fit,
    hosts_of,
)
from harness.compute_profile import ComputeProfile
from harness.layout import Layout
from harness.record import Ground
from harness.spec import Launch

Samples = Sequence[Sequence[dict[str, Any]]]  # a list of sample lines for each rank
PHASES = ("forward_s", "backward_s", "optimizer_s")


def calibration_of(launch: Launch, samples: Samples, ground: Ground, created_at: str) -> Calibration:
    """The fits of every set of groups; ranks share one order of samples, so each collective's slowest rank is known."""
    per_node = launch.ranks.per_node
    axes = []
    for index, one in enumerate(axis_groups(launch.layouts)):
        groups = tuple(
            GroupFit(ranks=ranks, hosts=hosts_of(ranks, per_node), fits=_fits([samples[r] for r in ranks], index))
            for ranks in one.groups
        )
        uses = tuple(AxisUse(layout.text, axis) for layout, axis in one.users)
        axes.append(AxisFit(uses=uses, groups=groups))
    return Calibration(
        created_at=created_at,
        device=launch.ranks.device,
        backend=ground.backend,
        hosts=ground.hosts,
        axes=tuple(axes),
        workload=launch.runs[0].workload,
        compute=_compute(launch.layouts, samples),
    )


def _compute(layouts: Sequence[Layout], samples: Samples) -> tuple[ComputeProfile, ...]:
    """The layouts that could be profiled, which is all ranks or none; first without and then with waiting."""
    found = []
    for index, layout in enumerate(layouts):
        own = [s for rank in samples for s in rank if s["kind"] == "compute" and s["layout"] == index]
        for waits in (False, True):
            rows = [s for s in own if s["waits"] == waits]
            if len(rows) == len(samples):
                times = {name: tuple(tuple(row[name]) for row in rows) for name in PHASES}
                found.append(ComputeProfile(layout=layout, waits=waits, **times))
    return tuple(found)


def _fits(ranks: Samples, axis: int) -> tuple[OperationFit, ...]:
    return tuple(fit(operation, _slowest(ranks, axis, operation)) for operation in CALIBRATED)


def _slowest(ranks: Samples, axis: int, operation: CalibratedOperation) -> dict[int, list[float]]:
    """The slowest rank's time (s) of every collective, by size (bytes)."""
    rows = [
        [
            (s["size_bytes"], s["time_s"])
            for s in rank
            if s["kind"] == "collective" and s["axis"] == axis and s["operation"] == operation
        ]
        for rank in ranks
    ]
    found: dict[int, list[float]] = {}
    for column in zip(*rows, strict=True):
        found.setdefault(column[0][0], []).append(max(time_s for _, time_s in column))
    return found
