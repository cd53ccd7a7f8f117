"""Pictures of a comparison as PNG. Nothing is drawn for a metric that was not measured: its row says so."""

from __future__ import annotations

import io
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from harness.compare import CellResult, Comparison
from harness.report.labels import place_labels
from harness.report.tables import shown_cells
from harness.report.units import bytes_unit, plain, rate_unit, time_unit

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Okabe and Ito's colours, told apart with any form of colour blindness; hatches and markers say the same again
BLUE, SKY, ORANGE, GREY, INK = "#0072B2", "#56B4E9", "#E69F00", "#8C8C8C", "#222222"
_DPI = 110
_WIDTH_IN = 8.5
_ROW_IN = 0.27
_LONGEST_LABEL = 48


def draw(comparison: Comparison) -> Mapping[str, bytes]:
    """The pictures that have something to show, by name."""
    found = {name: make(comparison) for name, make in PICTURES.items()}
    return {name: picture for name, picture in found.items() if picture is not None}


def draw_speed(comparison: Comparison) -> bytes | None:
    """tokens/s of each ranked layout with its 95% interval, fastest on top."""
    cells = [c for c in comparison.ranked if c.tokens_per_s]
    if not cells:
        return None
    speeds = [c.tokens_per_s for c in cells if c.tokens_per_s]
    unit = rate_unit(s.value for s in speeds)
    figure, (axes,) = _rows(cells)
    level = ["fastest or a tie with it" if c.rank == 1 or c.tie else "slower" for c in cells]
    for name, colour, hatch in (("fastest or a tie with it", BLUE, ""), ("slower", SKY, "//")):
        rows = [i for i, found in enumerate(level) if found == name]
        values = [speeds[i].value / unit.divisor for i in rows]
        if rows:
            axes.barh(rows, values, height=0.62, color=colour, hatch=hatch, edgecolor="white", label=name)
    middle = [s.value / unit.divisor for s in speeds]
    below = [(s.value - s.low) / unit.divisor for s in speeds]
    above = [(s.high - s.value) / unit.divisor for s in speeds]
    axes.errorbar(middle, range(len(cells)), xerr=[below, above], fmt="none", ecolor=INK, elinewidth=1.2, capsize=3)
    axes.set_xlabel(f"{unit.name}, all {comparison.plan.ranks.world_size} ranks (median with 95% interval)")
    return _png(figure, axes, "Training speed by layout")


def draw_memory(comparison: Comparison) -> bytes | None:
    """Peak memory of the fullest rank of each measured layout."""
    cells = shown_cells(comparison)
    peaks = {i: c.memory for i, c in enumerate(cells) if c.memory}
    if not peaks:
        return None
    reserved = {i: m.reserved_bytes for i, m in peaks.items() if m.reserved_bytes is not None}
    unit = bytes_unit([*(m.peak_bytes for m in peaks.values()), *reserved.values()])
    figure, (axes,) = _rows(cells)
    if reserved:
        values = [v / unit.divisor for v in reserved.values()]
        axes.barh(list(reserved), values, height=0.74, color="white", edgecolor=GREY, hatch="...", label="reserved")
    values = [m.peak_bytes / unit.divisor for m in peaks.values()]
    axes.barh(list(peaks), values, height=0.5, color=BLUE, label="allocated" if reserved else None)
    _mark_missing(axes, [i for i in range(len(cells)) if i not in peaks])
    method = plain(", ".join(dict.fromkeys(m.method for m in peaks.values())), 60)
    axes.set_xlabel(f"peak memory of the fullest rank, {unit.name} ({method})", parse_math=False)
    return _png(figure, axes, "Peak memory by layout")


def draw_checkpoint(comparison: Comparison) -> bytes | None:
    """Size of each layout's checkpoint, and time to save and to restore it."""
    cells = shown_cells(comparison)
    found = {i: c.checkpoint for i, c in enumerate(cells) if c.checkpoint}
    if not found:
        return None
    sizes = bytes_unit(c.total_bytes for c in found.values())
    times = time_unit(t for c in found.values() for t in (c.save_time_s, c.restore_time_s))
    figure, (left, right) = _rows(cells, panels=2)
    left.barh(list(found), [c.total_bytes / sizes.divisor for c in found.values()], height=0.6, color=BLUE)
    left.set_xlabel(f"size on disk, {sizes.name}")
    saves = [c.save_time_s / times.divisor for c in found.values()]
    restores = [c.restore_time_s / times.divisor for c in found.values()]
    right.barh([i - 0.2 for i in found], saves, height=0.36, color=SKY, label="save")
    right.barh(
        [i + 0.2 for i in found], restores, height=0.36, color=ORANGE, hatch="//", edgecolor="white", label="restore"
    )
    right.set_xlabel(f"time of the slowest rank, {times.name}")
    for axes in (left, right):
        _mark_missing(axes, [i for i in range(len(cells)) if i not in found])
    return _png(figure, right, "Checkpoint with optimizer state by layout")


def draw_frontier(comparison: Comparison) -> bytes | None:
    """Speed against peak memory; the frontier's layouts are filled, joined, and labelled first."""
    cells = [c for c in comparison.ranked if c.tokens_per_s and c.memory]
    if len(cells) < 2:
        return None
    rates = rate_unit(c.tokens_per_s.value for c in cells if c.tokens_per_s)
    peaks = bytes_unit(c.memory.peak_bytes for c in cells if c.memory)
    points = {
        c.label: (c.memory.peak_bytes / peaks.divisor, c.tokens_per_s.value / rates.divisor, bool(c.frontier))
        for c in cells
        if c.memory and c.tokens_per_s
    }
    figure = _figure(_WIDTH_IN, 5.6)
    axes = figure.subplots()
    best = sorted((x, y) for x, y, edge in points.values() if edge)
    rest = [(x, y) for x, y, edge in points.values() if not edge]
    axes.plot([x for x, _ in best], [y for _, y in best], color=BLUE, marker="o", linewidth=1.2, label="frontier")
    if rest:
        axes.scatter(
            [x for x, _ in rest],
            [y for _, y in rest],
            s=30,
            marker="s",
            facecolor="white",
            edgecolor=GREY,
            label="another is as fast with less memory",
            zorder=3,
        )
    axes.margins(0.12)
    axes.set_xlabel(f"peak memory of the fullest rank, {peaks.name} (less is better)")
    axes.set_ylabel(f"{rates.name}, all ranks (more is better)")
    axes.grid(color="#DDDDDD", linewidth=0.6)
    axes.set_title("Speed against memory", loc="left")
    figure.legend(loc="outside lower left", ncols=2, frameon=False, fontsize=9)
    order = sorted(points, key=lambda label: not points[label][2])
    hidden = place_labels(figure, axes, [(plain(label, _LONGEST_LABEL), *points[label][:2]) for label in order])
    if hidden:
        axes.set_title(f"{hidden} labels left out for room; the table names all", loc="right", fontsize=8, color=GREY)
    return _save(figure)


PICTURES: Mapping[str, Callable[[Comparison], bytes | None]] = {
    "tokens_per_s": draw_speed,
    "speed_memory": draw_frontier,
    "peak_memory": draw_memory,
    "checkpoint": draw_checkpoint,
}


def _figure(width_in: float, height_in: float) -> Figure:
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    # not pyplot, which would keep every figure and look for a screen
    figure = Figure(figsize=(width_in, height_in), dpi=_DPI, layout="constrained")
    FigureCanvasAgg(figure)
    return figure


def _rows(cells: Sequence[CellResult], panels: int = 1) -> tuple[Figure, list[Axes]]:
    """A figure with one row a cell, the first on top, that grows with their number."""
    figure = _figure(_WIDTH_IN, 1.6 + _ROW_IN * len(cells))
    found = list(figure.subplots(1, panels, sharey=True, squeeze=False)[0])
    labels = [
        plain(c.label, _LONGEST_LABEL) + (" (reference)" if c.rank is None and c.is_reference else "") for c in cells
    ]
    found[0].set_yticks(range(len(cells)), labels, parse_math=False)
    found[0].set_ylim(len(cells) - 0.4, -0.6)
    for axes in found:
        axes.tick_params(axis="y", length=0)
        axes.grid(axis="x", color="#DDDDDD", linewidth=0.6)
        axes.set_axisbelow(True)
        axes.spines[["top", "right", "left"]].set_visible(False)
        axes.locator_params(axis="x", nbins=6)
    return figure, found


def _mark_missing(axes: Axes, rows: Sequence[int]) -> None:
    for row in rows:
        axes.text(0.01, row, "not measured", color=GREY, fontsize=8, va="center", transform=axes.get_yaxis_transform())


def _png(figure: Figure, axes: Axes, title: str) -> bytes:
    """Title above, legend below, both clear of the rows."""
    figure.suptitle(title, x=0.01, ha="left", fontsize=12)
    handles, labels = axes.get_legend_handles_labels()
    if labels:
        figure.legend(handles, labels, loc="outside lower right", ncols=len(labels), frameon=False, fontsize=9)
    return _save(figure)


def _save(figure: Figure) -> bytes:
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", metadata={"Software": None})
    return buffer.getvalue()
