"""Pictures of several sweeps: speed by layout in each, and speed over world size."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import ceil, floor, log2
from typing import TYPE_CHECKING

from harness.compare import Comparison, Estimate
from harness.report.canvas import BLUE, FONT_SIZE, GREY, GRID, INK, LABEL_WIDTH, ORANGE, SKY, new_figure
from harness.report.canvas import separate_thousands as thousands
from harness.report.units import Unit, fold, number, plain, rate_unit

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# colour and mark, so that neither is needed alone
_MARKS = tuple(
    (colour, mark)
    for mark, colour in zip("osD^vPX*", (BLUE, ORANGE, SKY, INK, "#009E73", "#CC79A7", GREY, "#D55E00"), strict=True)
)
_MOST_ROWS = 60


def draw_all(comparisons: Sequence[Comparison]) -> Mapping[str, Figure]:
    """The pictures that have something to show, by name."""
    found = {name: make(comparisons) for name, make in PICTURES.items()}
    return {name: figure for name, figure in found.items() if figure is not None}


def draw_together(comparisons: Sequence[Comparison]) -> Figure | None:
    """A row a layout that was ranked in two sweeps or more, a mark a sweep with its interval."""
    speeds = [{c.label: c.tokens_per_s for c in one.ranked if c.tokens_per_s} for one in comparisons]
    counts = dict.fromkeys((label for found in speeds for label in found), 0)
    labels = [label for label in counts if sum(label in found for found in speeds) > 1][:_MOST_ROWS]
    if not labels or len(comparisons) > len(_MARKS):
        return None
    unit = rate_unit(found[label].value for found in speeds for label in labels if label in found)
    figure = new_figure(1.7 + (0.14 + 0.13 * len(comparisons)) * len(labels))
    axes = figure.subplots()
    for place, (one, found) in enumerate(zip(comparisons, speeds, strict=True)):
        rows = [(row, found[label]) for row, label in enumerate(labels) if label in found]
        if not rows:
            continue
        shift = 0.6 * ((place + 0.5) / len(comparisons) - 0.5)
        _bars(axes, [(speed, row + shift) for row, speed in rows], unit, place, plain(one.plan.name, 40))
    names = ["\n".join(fold(label, LABEL_WIDTH)[:2]) for label in labels]
    axes.set_yticks(range(len(labels)), names, parse_math=False, fontsize=FONT_SIZE)
    axes.set_ylim(len(labels) - 0.4, -0.6)
    axes.set_xlim(left=0)
    axes.set_xlabel(f"{unit.name}, all ranks together (median with 95% interval)")
    thousands(axes.xaxis)
    return _finished(figure, axes, "Training speed by layout and sweep")


def draw_scaling(comparisons: Sequence[Comparison]) -> Figure | None:
    """tokens/s over world size, a line a strategy: its best layout at each size, in sweeps of the first one's model."""
    same = [c for c in comparisons if c.plan.workload.model == comparisons[0].plan.workload.model]
    lines: dict[str, dict[int, Estimate]] = {}
    for one in same:
        for cell in one.ranked:
            if cell.tokens_per_s:
                points = lines.setdefault(cell.layout.strategy, {})
                old = points.get(cell.world_size)
                if old is None or old.value < cell.tokens_per_s.value:
                    points[cell.world_size] = cell.tokens_per_s
    sizes = sorted({size for points in lines.values() for size in points})
    if len(sizes) < 2:
        return None
    unit = rate_unit(speed.value for points in lines.values() for speed in points.values())
    figure = new_figure(4.6)
    axes = figure.subplots()
    for place, (strategy, points) in enumerate(lines.items()):
        colour, mark = _MARKS[place % len(_MARKS)]
        at = sorted(points)
        middle = [points[size].value / unit.divisor for size in at]
        below = [(points[size].value - points[size].low) / unit.divisor for size in at]
        above = [(points[size].high - points[size].value) / unit.divisor for size in at]
        axes.errorbar(at, middle, [below, above], color=colour, marker=mark, linewidth=1.4, capsize=3, label=strategy)
    start = max(points[sizes[0]].value for points in lines.values() if sizes[0] in points) / unit.divisor
    ideal = [start * size / sizes[0] for size in sizes]
    axes.plot(sizes, ideal, color=GREY, linestyle=":", linewidth=1.2, label="in proportion to ranks")
    axes.set_xscale("log", base=2)
    axes.set_yscale("log", base=2)
    axes.set_xticks(sizes, [str(size) for size in sizes])
    values = [speed.value / unit.divisor for points in lines.values() for speed in points.values()]
    steps = range(floor(log2(min(values) / start)), ceil(log2(max(ideal) / start)) + 1)
    ticks = [start * 2.0**step for step in steps]
    axes.set_yticks(ticks, [number(tick) for tick in ticks])
    axes.set_xlabel("world size, ranks (doubling steps)")
    axes.set_ylabel(f"{unit.name}, all ranks (doubling steps)")
    name = plain(comparisons[0].plan.workload.model.name, 40)
    return _finished(figure, axes, f"Scaling of the best layout of each strategy: {name}", both=True)


PICTURES: Mapping[str, Callable[[Sequence[Comparison]], Figure | None]] = {
    "together": draw_together,
    "scaling": draw_scaling,
}


def _bars(axes: Axes, rows: Sequence[tuple[Estimate, float]], unit: Unit, place: int, name: str) -> None:
    colour, mark = _MARKS[place]
    values = [speed.value / unit.divisor for speed, _ in rows]
    below = [(speed.value - speed.low) / unit.divisor for speed, _ in rows]
    above = [(speed.high - speed.value) / unit.divisor for speed, _ in rows]
    places = [place for _, place in rows]
    style = {"fmt": mark, "color": colour, "markersize": 5, "elinewidth": 1.2, "capsize": 2.5}
    axes.errorbar(values, places, xerr=[below, above], label=name, **style)  # type: ignore[arg-type]  # a style's mixed values


def _finished(figure: Figure, axes: Axes, title: str, both: bool = False) -> Figure:
    axes.grid(axis="both" if both else "x", color=GRID, linewidth=0.6)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)
    figure.suptitle(title, x=0.01, ha="left", fontsize=12, parse_math=False)
    legend = figure.legend(loc="outside lower left", ncols=3, frameon=False, fontsize=9)
    for text in legend.get_texts():
        text.set_parse_math(False)
    return figure
