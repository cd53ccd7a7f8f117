"""What a step's time is made of."""

from __future__ import annotations

from collections.abc import Mapping
from statistics import fmean
from typing import TYPE_CHECKING

from harness.compare import Comparison
from harness.exposure import StepBreakdown
from harness.report.canvas import BLUE, SKY, heading
from harness.report.rows import cell_rows, finished, mark_missing, write_values
from harness.report.tables import shown_cells
from harness.report.units import time_unit

if TYPE_CHECKING:
    from matplotlib.figure import Figure

COMPUTE, OPTIMIZER, IDLE, SHARED = (
    "compute",
    "clipping and optimizer",
    "waiting for slower ranks",
    "several axes at once",
)
PART_COLOURS: Mapping[str, tuple[str, str]] = {
    COMPUTE: (BLUE, ""),
    OPTIMIZER: (SKY, ""),
    IDLE: ("#BBBBBB", ".."),
    "dp_replicate": ("#D55E00", ""),
    "dp_shard": ("#E69F00", ""),
    "tp": ("#CC79A7", ""),
    SHARED: ("#D55E00", "//"),
}


def part_name(name: str) -> str:
    """A part for people: axes stand for the communication over them."""
    return name if name in (COMPUTE, OPTIMIZER, IDLE) else f"exposed: {name}"


def step_parts(breakdown: StepBreakdown) -> dict[str, float]:
    """Seconds of the mean rank's step by what it does then, in the order of a stack; they sum to the step's time.

    Noise can make the difference of two steps negative; such a part is kept as it is.
    """
    idle_s = fmean(breakdown.idle_s)
    parts = {
        COMPUTE: breakdown.compute_s - idle_s,
        OPTIMIZER: breakdown.optimizer_s,
        IDLE: idle_s,
        **breakdown.exposed_by_axis_s,
    }
    return {**parts, SHARED: breakdown.shared_s} if len(breakdown.exposed_by_axis_s) > 1 else parts


def drawn_parts(breakdown: StepBreakdown) -> dict[str, float]:
    """``step_parts`` without negative ones, so that a stack is as long as its step.

    What no axis' own difference shows goes to several axes at once; where the axes' differences together exceed what is
    exposed, they are shrunk alike to fit it.
    """
    parts = {name: max(0.0, value) for name, value in step_parts(breakdown).items()}
    own = {axis: parts[axis] for axis in breakdown.exposed_by_axis_s}
    exposed, total = max(0.0, breakdown.exposed_s), sum(own.values())
    parts |= {axis: value * min(1.0, exposed / total) for axis, value in own.items() if total}
    return {**parts, SHARED: exposed - min(exposed, total)} if SHARED in parts else parts


def draw_breakdown(comparison: Comparison) -> Figure | None:
    """A stack a layout: compute, optimizer, waiting, exposed communication by axis."""
    cells = shown_cells(comparison)
    found = {i: drawn_parts(c.breakdown) for i, c in enumerate(cells) if c.breakdown}
    if not found:
        return None
    unit = time_unit(sum(parts.values()) for parts in found.values())
    figure, (axes,) = cell_rows(cells)
    ends = dict.fromkeys(found, 0.0)
    for name, (colour, hatch) in PART_COLOURS.items():
        sizes = {i: parts[name] / unit.divisor for i, parts in found.items() if parts.get(name, 0.0) > 0}
        if not sizes:
            continue
        axes.barh(
            list(sizes),
            list(sizes.values()),
            left=[ends[i] for i in sizes],
            height=0.62,
            color=colour,
            hatch=hatch,
            edgecolor="white",
            linewidth=0.5,
            label=part_name(name),
        )
        ends |= {i: ends[i] + size for i, size in sizes.items()}
    shares = {i: c.breakdown.exposed_share for i, c in enumerate(cells) if c.breakdown}
    write_values(axes, {i: (ends[i], f"{100 * share:z.0f}% exposed") for i, share in shares.items()})
    axes.set_xlim(left=0)
    mark_missing(axes, [i for i in range(len(cells)) if i not in found])
    axes.set_xlabel(f"one step of the mean rank, {unit.name} (untimed steps with and without communication)")
    return finished(figure, axes, heading(comparison, "What a step is made of"), columns=4)
