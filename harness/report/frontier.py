"""Speed against peak memory, with the layouts marked that no other beats in both."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

from harness.compare import Comparison
from harness.report.canvas import (
    BLUE,
    FONT_SIZE,
    GREY,
    GRID,
    LABEL_WIDTH,
    heading,
    new_figure,
    separate_thousands,
)
from harness.report.labels import place_labels
from harness.report.units import bytes_unit, fold, rate_unit

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_MOST_NAMES = 12  # with more points only the frontier is named; the others show their place in the table


class Point(NamedTuple):
    """A ranked layout: x is memory, y speed with its interval, in the units of their axes. Memory was measured once."""

    label: str
    place: int
    x: float
    y: float
    low: float
    high: float
    on_frontier: bool


def draw_frontier(comparison: Comparison) -> Figure | None:
    """The picture, None with fewer than two layouts that have both figures."""
    cells = [(c, c.tokens_per_s, c.memory) for c in comparison.ranked]
    found = [(cell, speed, memory) for cell, speed, memory in cells if speed and memory]
    if len(found) < 2:
        return None
    rates = rate_unit(speed.value for _, speed, _ in found)
    peaks = bytes_unit(memory.peak_bytes for _, _, memory in found)
    points = [
        Point(
            c.label,
            c.rank or 0,
            memory.peak_bytes / peaks.divisor,
            speed.value / rates.divisor,
            speed.low / rates.divisor,
            speed.high / rates.divisor,
            bool(c.frontier),
        )
        for c, speed, memory in found
    ]
    figure = new_figure(5.6)
    axes = figure.subplots()
    _mark(axes, points)
    axes.margins(0.12)
    axes.set_ylim(bottom=0)
    for axis in (axes.xaxis, axes.yaxis):
        separate_thousands(axis)
    axes.set_xlabel(f"peak memory of the fullest rank, {peaks.name} (less is better)")
    axes.set_ylabel(f"{rates.name}, all ranks, with 95% intervals (more is better)")
    axes.grid(color=GRID, linewidth=0.6)
    axes.set_axisbelow(True)
    figure.suptitle(heading(comparison, "Speed against memory"), x=0.01, ha="left", fontsize=12, parse_math=False)
    figure.legend(loc="outside lower left", ncols=2, frameon=False, fontsize=9)
    edge = sorted((p for p in points if p.on_frontier), key=lambda p: (p.x, p.y))
    order = [*edge, *(p for p in points if not p.on_frontier)]
    few = len(points) <= _MOST_NAMES
    labels = [(_texts(p, few or p.on_frontier), p.x, p.y) for p in order]
    taken = [_stairs(edge), *([(p.x, p.low), (p.x, p.high)] for p in points)]
    hidden = place_labels(figure, axes, labels, taken)
    numbers = any(text.get_text().isdigit() for text in axes.texts)
    notes = ["numbers are places in the table"] * numbers + [f"{hidden} labels found no room"] * bool(hidden)
    axes.set_title("; ".join(notes), loc="right", fontsize=FONT_SIZE, color=GREY)
    return figure


def _texts(point: Point, named: bool) -> tuple[str, ...]:
    """What may stand beside a point: its name, with fewer letters a line if need be, else its place in the table."""
    names = ["\n".join(fold(point.label, width)) for width in (LABEL_WIDTH, LABEL_WIDTH // 2)] if named else []
    return (*dict.fromkeys(names), str(point.place))


def _stairs(edge: Sequence[Point]) -> list[tuple[float, float]]:
    """The frontier as steps: with less memory than the next point needs, no more speed is to be had."""
    between = [spot for a, b in pairwise(edge) for spot in ((a.x, a.y), (b.x, a.y))]
    return [*between, *((p.x, p.y) for p in edge[-1:])]


def _mark(axes: Axes, points: list[Point]) -> None:
    edge = sorted((p for p in points if p.on_frontier), key=lambda p: (p.x, p.y))
    rest = [p for p in points if not p.on_frontier]
    axes.plot(
        [p.x for p in edge],
        [p.y for p in edge],
        color=BLUE,
        marker="o",
        linewidth=1.2,
        drawstyle="steps-post",
        label="frontier: none is as fast with less memory",
    )
    if rest:
        axes.scatter(
            [p.x for p in rest],
            [p.y for p in rest],
            s=30,
            marker="s",
            facecolor="white",
            edgecolor=GREY,
            label="another is as fast with less memory",
            zorder=3,
        )
    _intervals(axes, points)


def _intervals(axes: Axes, points: list[Point]) -> None:
    """A thin line from the lowest to the highest speed, behind the marks."""
    for at in points:
        ends = [[max(at.y - at.low, 0.0)], [max(at.high - at.y, 0.0)]]
        colour = BLUE if at.on_frontier else GREY
        axes.errorbar(at.x, at.y, yerr=ends, fmt="none", color=colour, linewidth=0.8, capsize=2, zorder=1.9)
