"""Pictures of a comparison. Nothing is drawn for a metric that was not measured: its row says so."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from harness.compare import CellResult, Comparison
from harness.compare.wording import standing
from harness.report.canvas import (
    BLUE,
    FONT_SIZE,
    GREY,
    GRID,
    INK,
    LABEL_WIDTH,
    ORANGE,
    SKY,
    heading,
    new_figure,
    separate_thousands,
)
from harness.report.checkpoint_matrix import draw_checkpoint_matrix
from harness.report.frontier import draw_frontier
from harness.report.mesh import draw_mesh
from harness.report.tables import shown_cells
from harness.report.units import bytes_unit, fold, plain, rate_unit, time_unit

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_LABEL_LINES = 3


def draw(comparison: Comparison) -> Mapping[str, Figure]:
    """The pictures that have something to show, by name; ``harness.report.picture_file`` makes files of them."""
    found = {name: make(comparison) for name, make in PICTURES.items()}
    return {name: picture for name, picture in found.items() if picture is not None}


def draw_speed(comparison: Comparison) -> Figure | None:
    """tokens/s of each ranked layout with its 95% interval, fastest on top."""
    cells = [c for c in comparison.ranked if c.tokens_per_s]
    if not cells:
        return None
    speeds = [c.tokens_per_s for c in cells if c.tokens_per_s]
    unit = rate_unit(s.value for s in speeds)
    figure, (axes,) = _rows(cells)
    found = [standing(c) for c in cells]
    fastest = "fastest or a tie with it" if "tie" in found else "fastest"
    if "undecided" in found and "slower" not in found and "tie" not in found:
        fastest = "fastest in that round"
    levels = ((("fastest", "tie"), BLUE, fastest), (("undecided",), GREY, "not decided: one round"))
    for kinds, colour, name in (*levels, (("slower",), SKY, "slower")):
        rows = [i for i, kind in enumerate(found) if kind in kinds]
        values = [speeds[i].value / unit.divisor for i in rows]
        if rows:
            axes.barh(rows, values, height=0.62, color=colour, label=name if len(cells) > 1 else None)
    middle = [s.value / unit.divisor for s in speeds]
    below = [(s.value - s.low) / unit.divisor for s in speeds]
    above = [(s.high - s.value) / unit.divisor for s in speeds]
    axes.errorbar(middle, range(len(cells)), xerr=[below, above], fmt="none", ecolor=INK, elinewidth=1.2, capsize=3)
    _write_values(axes, {i: (s.high / unit.divisor, unit.text(s.value)) for i, s in enumerate(speeds)})
    axes.set_xlabel(f"{unit.name}, all ranks together (median with 95% interval)")
    return _finished(figure, axes, heading(comparison, "Training speed by layout"))


def draw_memory(comparison: Comparison) -> Figure | None:
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
    shown = {}
    for i, memory in peaks.items():
        end = max(memory.peak_bytes, reserved.get(i, 0)) / unit.divisor
        more = f" ({unit.text(reserved[i])} reserved)" if i in reserved else ""
        shown[i] = (end, unit.text(memory.peak_bytes) + more)
    _write_values(axes, shown)
    if reserved:
        axes.margins(x=0.22)
    _mark_missing(axes, [i for i in range(len(cells)) if i not in peaks])
    method = plain(", ".join(dict.fromkeys(m.method for m in peaks.values())), 60)
    axes.set_xlabel(f"peak memory of the fullest rank, {unit.name} ({method})", parse_math=False)
    return _finished(figure, axes, heading(comparison, "Peak memory by layout"))


def draw_checkpoint(comparison: Comparison) -> Figure | None:
    """Size of each layout's checkpoint, and time to save and to restore it."""
    cells = shown_cells(comparison)
    found = {i: c.checkpoint for i, c in enumerate(cells) if c.checkpoint}
    if not found:
        return None
    sizes = bytes_unit(c.total_bytes for c in found.values())
    times = time_unit(t for c in found.values() for t in (c.save_time_s, c.restore_time_s))
    figure, (left, right) = _rows(cells, panels=2)
    left.barh(list(found), [c.total_bytes / sizes.divisor for c in found.values()], height=0.6, color=BLUE)
    _write_values(left, {i: (c.total_bytes / sizes.divisor, sizes.text(c.total_bytes)) for i, c in found.items()})
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
    return _finished(figure, right, heading(comparison, "Checkpoint with optimizer state by layout"))


PICTURES: Mapping[str, Callable[[Comparison], Figure | None]] = {
    "tokens_per_s": draw_speed,
    "speed_memory": draw_frontier,
    "peak_memory": draw_memory,
    "checkpoint": draw_checkpoint,
    "mesh": draw_mesh,
    "checkpoint_matrix": draw_checkpoint_matrix,
}

DESCRIPTIONS: Mapping[str, str] = {
    "tokens_per_s": "tokens per second of each layout with 95% intervals",
    "speed_memory": "speed against peak memory, with the frontier",
    "peak_memory": "peak memory of each layout",
    "checkpoint": "checkpoint size, save and restore time of each layout",
    "checkpoint_matrix": "time to restore a checkpoint of each mesh onto each other mesh",
    "mesh": "mesh of the fastest layout on its hosts",
    "together": "tokens per second of each layout in each sweep with 95% intervals",
    "scaling": "tokens per second against world size, the best layout of each strategy, with 95% intervals",
}


def describe(name: str) -> str:
    """What a picture shows, in a line."""
    return DESCRIPTIONS.get(name, name.replace("_", " "))


def _rows(cells: Sequence[CellResult], panels: int = 1) -> tuple[Figure, list[Axes]]:
    """A figure with one row a cell, the first on top, that grows with their number."""
    names = [c.label + (" (reference)" if c.rank is None and c.is_reference else "") for c in cells]
    labels = [fold(name, LABEL_WIDTH)[:_LABEL_LINES] for name in names]
    lines = max(map(len, labels))
    figure = new_figure(1.6 + max(0.27, 0.08 + 0.125 * lines) * len(cells))
    found = list(figure.subplots(1, panels, sharey=True, squeeze=False)[0])
    found[0].set_yticks(range(len(cells)), ["\n".join(label) for label in labels], parse_math=False, fontsize=FONT_SIZE)
    found[0].set_ylim(len(cells) - 0.4, -0.6)
    for axes in found:
        axes.tick_params(axis="y", length=0)
        axes.grid(axis="x", color=GRID, linewidth=0.6)
        axes.set_axisbelow(True)
        axes.spines[["top", "right", "left"]].set_visible(False)
        axes.locator_params(axis="x", nbins=6)
        separate_thousands(axes.xaxis)
    return figure, found


def _write_values(axes: Axes, values: Mapping[int, tuple[float, str]]) -> None:
    """The value of each row, right of where its drawing ends."""
    for row, (end, text) in values.items():
        axes.annotate(text, (end, row), (4, 0), textcoords="offset points", va="center", fontsize=FONT_SIZE, color=INK)
    axes.margins(x=0.13)


def _mark_missing(axes: Axes, rows: Sequence[int]) -> None:
    for row in rows:
        axes.text(
            0.01, row, "not measured", color=GREY, fontsize=FONT_SIZE, va="center", transform=axes.get_yaxis_transform()
        )


def _finished(figure: Figure, axes: Axes, title: str) -> Figure:
    """Title above, legend below, both clear of the rows."""
    figure.suptitle(title, x=0.01, ha="left", fontsize=12, parse_math=False)
    handles, labels = axes.get_legend_handles_labels()
    if labels:
        figure.legend(handles, labels, loc="outside lower right", ncols=len(labels), frameon=False, fontsize=9)
    return figure
