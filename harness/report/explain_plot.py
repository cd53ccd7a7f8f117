"""One or two layouts beside each other: what a step is made of and what memory is made of."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from harness.compare import CellResult, Comparison
from harness.memory_kinds import MEMORY_KINDS
from harness.report.breakdown_plot import PART_COLOURS, drawn_parts, part_name
from harness.report.canvas import FONT_SIZE, GREY, heading, new_figure
from harness.report.memory_plots import KIND_COLOURS, fullest, kind_name
from harness.report.units import bytes_unit, fold, time_unit

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Stack = Mapping[str, tuple[float, str, str]]  # name -> (size, colour, hatch)


def draw_explanation(comparison: Comparison, cells: Sequence[CellResult]) -> Figure:
    """Left a step's time, right the fullest rank's peak, a column a layout."""
    steps = [drawn_parts(c.breakdown) if c.breakdown else {} for c in cells]
    peaks = [fullest(c.rank_memory).peak if c.rank_memory else None for c in cells]
    times = time_unit(sum(parts.values()) for parts in steps)
    sizes = bytes_unit(peak.peak_bytes for peak in peaks if peak)
    figure = new_figure(4.2)
    left, right = figure.subplots(1, 2)
    step_stacks: list[Stack] = [
        {part_name(n): (v / times.divisor, *PART_COLOURS[n]) for n, v in parts.items() if v > 0} for parts in steps
    ]
    peak_stacks: list[Stack] = [
        {kind_name(k): (p.bytes_by_kind[k] / sizes.divisor, *KIND_COLOURS[k]) for k in MEMORY_KINDS} if p else {}
        for p in peaks
    ]
    _columns(left, cells, step_stacks, f"one step of the mean rank, {times.name}")
    _columns(right, cells, peak_stacks, f"peak memory of the fullest rank, {sizes.name}")
    title = heading(comparison, " against ".join(c.label for c in cells))
    figure.suptitle("\n".join(fold(title, 90)), x=0.01, ha="left", fontsize=12, parse_math=False)
    return figure


def _columns(axes: Axes, cells: Sequence[CellResult], stacks: Sequence[Stack], title: str) -> None:
    named: set[str] = set()
    for place, stack in enumerate(stacks):
        end = 0.0
        for name, (size, colour, hatch) in stack.items():
            if not size:
                continue
            label = None if name in named else name
            named.add(name)
            axes.bar(place, size, 0.6, end, color=colour, hatch=hatch, edgecolor="white", linewidth=0.5, label=label)
            end += size
        if not stack:
            axes.text(place, 0, "not measured", ha="center", va="bottom", color=GREY, fontsize=FONT_SIZE)
    labels = ["\n".join(fold(cell.label, 22)) for cell in cells]
    axes.set_xticks(range(len(cells)), labels, fontsize=FONT_SIZE, parse_math=False)
    axes.set_xlim(-0.6, len(cells) - 0.4)
    axes.set_ylabel(title, fontsize=FONT_SIZE + 1)
    axes.spines[["top", "right"]].set_visible(False)
    if named:
        axes.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0), frameon=False, fontsize=FONT_SIZE, reverse=True)
