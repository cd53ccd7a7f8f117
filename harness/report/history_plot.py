"""The picture of a history: a small panel a cell, its speed by night, levels and where they changed."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING

from harness.compare.wording import signed
from harness.history.nights import CellTrend, History, LevelChange, stretches
from harness.report.canvas import BLUE, FONT_SIZE, GREY, GRID, INK, ORANGE, new_figure
from harness.report.history import heading
from harness.report.units import plain

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_COLUMNS = 2
_PANEL_HEIGHT_IN = 1.25
_LEAST_RANGE = 5.0  # percent to either side of 0 that a panel shows, so that noise looks like noise


def history_picture(found: History) -> Figure:
    """Speed of each cell against the other cells by night, percent of its mean; by the clock with under three cells."""
    rows = max(1, -(-len(found.cells) // _COLUMNS))  # without cells an empty picture
    figure = new_figure(0.9 + _PANEL_HEIGHT_IN * rows)
    relative = any(speed is not None for cell in found.cells for speed in cell.relative_speed)
    what = "Speed against the other cells" if relative else "Speed"
    figure.suptitle(f"{what} by night, % of its mean\n{heading(found)}", fontsize=FONT_SIZE + 2, color=INK)
    grid = figure.subplots(rows, _COLUMNS, sharex=True, squeeze=False)
    panels = list(grid.flat)
    series = [_percent(cell, relative) for cell in found.cells]
    reach = max([_LEAST_RANGE, *(abs(y) for points in series for y in points.values())]) * 1.1
    for axes, cell, points in zip(panels, found.cells, series, strict=False):
        changes = [change for change in found.changes if change.label == cell.label]
        _panel(axes, found, cell, points, changes)
        axes.set_ylim(-reach, reach)
    for number, axes in enumerate(panels):
        below = number + _COLUMNS >= len(found.cells)
        if number >= len(found.cells):
            axes.set_visible(False)
        elif below:
            axes.tick_params(labelbottom=True)
            axes.set_xlabel("night", fontsize=FONT_SIZE)
    _dates(panels[0], found)
    return figure


def history_bytes(found: History, suffix: str) -> bytes:
    """The picture as ``.png`` or ``.svg``."""
    buffer = io.BytesIO()
    history_picture(found).savefig(buffer, format=suffix.lstrip("."))
    return buffer.getvalue()


def _percent(cell: CellTrend, relative: bool) -> dict[int, float]:
    """Points by night, percent above the cell's mean."""
    if relative:
        return {n: 100 * (y - 1) for n, y in enumerate(cell.relative_speed) if y is not None}
    speeds = {n: y for n, y in enumerate(cell.tokens_per_s) if y is not None}
    mean = sum(speeds.values()) / max(len(speeds), 1)
    return {n: 100 * (y / mean - 1) for n, y in speeds.items()}


def _panel(axes: Axes, found: History, cell: CellTrend, points: dict[int, float], changes: list[LevelChange]) -> None:
    axes.set_title(plain(cell.label, 60), fontsize=FONT_SIZE, loc="left", color=INK)
    axes.grid(axis="y", color=GRID, linewidth=0.6)
    axes.tick_params(labelsize=FONT_SIZE - 1)
    axes.plot(list(points), list(points.values()), "o", color=BLUE, markersize=2.5, alpha=0.8)
    grounds = [stretch.start for stretch in stretches(found.nights)]
    for night in grounds[1:]:
        axes.axvline(night - 0.5, color=GREY, linestyle=":", linewidth=1)
    starts = sorted({*grounds, *(change.night for change in changes)})
    for start, end in zip(starts, [*starts[1:], len(found.nights)], strict=True):
        level = [y for night, y in points.items() if start <= night < end]
        if level:
            axes.hlines(sum(level) / len(level), start - 0.4, end - 0.6, color=INK, linewidth=1.4)
    for change in changes:
        axes.axvline(change.night - 0.5, color=ORANGE, linewidth=1.4)
        text = f"{signed(100 * (change.speed.ratio - 1))}%"
        axes.annotate(
            text,
            (change.night - 0.5, 1),
            xycoords=("data", "axes fraction"),
            xytext=(3, -2),
            fontsize=FONT_SIZE - 1,
            textcoords="offset points",
            va="top",
            color=INK,
            bbox={"facecolor": "white", "edgecolor": "none", "pad": 0.5},
        )


def _dates(axes: Axes, found: History) -> None:
    """Nights are evenly spaced and named by their days, a handful of them."""
    from matplotlib.ticker import FuncFormatter, MaxNLocator

    def day(value: float, _: object) -> str:
        night = round(value)
        return f"{found.nights[night].created_at:%Y-%m-%d}" if 0 <= night < len(found.nights) else ""

    axes.xaxis.set_major_locator(MaxNLocator(nbins=4, integer=True))
    axes.xaxis.set_major_formatter(FuncFormatter(day))
