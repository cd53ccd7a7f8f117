"""Pictures of a comparison. Nothing is drawn for a metric that was not measured: its row says so."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from harness.compare import Comparison
from harness.compare.wording import Standing, standing
from harness.report.breakdown_plot import draw_breakdown
from harness.report.canvas import (
    BLUE,
    GREY,
    INK,
    ORANGE,
    SKY,
    heading,
)
from harness.report.checkpoint_matrix import draw_checkpoint_matrix
from harness.report.frontier import draw_frontier
from harness.report.memory_plots import draw_memory_kinds, draw_memory_ranks
from harness.report.mesh import draw_mesh
from harness.report.predicted import draw_predicted
from harness.report.rows import cell_rows, finished, mark_missing, write_values
from harness.report.tables import shown_cells
from harness.report.traffic import draw_traffic
from harness.report.units import bytes_unit, plain, rate_unit, time_unit

if TYPE_CHECKING:
    from matplotlib.figure import Figure


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
    figure, (axes,) = cell_rows(cells)
    found = [standing(c) for c in cells]
    fastest = "fastest or a tie with it" if "tie" in found else "fastest"
    if "undecided" in found and not {"slower", "stopped", "tie"} & set(found):
        fastest = "fastest in that round"
    levels: tuple[tuple[tuple[Standing, ...], str, str], ...] = (
        (("fastest", "tie"), BLUE, fastest),
        (("undecided",), GREY, "not decided: one round"),
        (("slower", "stopped"), SKY, "slower"),
    )
    for kinds, colour, name in levels:
        rows = [i for i, kind in enumerate(found) if kind in kinds]
        values = [speeds[i].value / unit.divisor for i in rows]
        if rows:
            axes.barh(rows, values, height=0.62, color=colour, label=name if len(cells) > 1 else None)
    middle = [s.value / unit.divisor for s in speeds]
    below = [(s.value - s.low) / unit.divisor for s in speeds]
    above = [(s.high - s.value) / unit.divisor for s in speeds]
    axes.errorbar(middle, range(len(cells)), xerr=[below, above], fmt="none", ecolor=INK, elinewidth=1.2, capsize=3)
    write_values(axes, {i: (s.high / unit.divisor, unit.text(s.value)) for i, s in enumerate(speeds)})
    axes.set_xlabel(f"{unit.name}, all ranks together (median with 95% interval)")
    return finished(figure, axes, heading(comparison, "Training speed by layout"))


def draw_memory(comparison: Comparison) -> Figure | None:
    """Peak memory of the fullest rank of each measured layout."""
    cells = shown_cells(comparison)
    peaks = {i: c.memory for i, c in enumerate(cells) if c.memory}
    if not peaks:
        return None
    reserved = {i: m.reserved_bytes for i, m in peaks.items() if m.reserved_bytes is not None}
    unit = bytes_unit([*(m.peak_bytes for m in peaks.values()), *reserved.values()])
    figure, (axes,) = cell_rows(cells)
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
    write_values(axes, shown)
    if reserved:
        axes.margins(x=0.22)
    mark_missing(axes, [i for i in range(len(cells)) if i not in peaks])
    method = plain(", ".join(dict.fromkeys(m.method for m in peaks.values())), 60)
    axes.set_xlabel(f"peak memory of the fullest rank, {unit.name} ({method})", parse_math=False)
    return finished(figure, axes, heading(comparison, "Peak memory by layout"))


def draw_checkpoint(comparison: Comparison) -> Figure | None:
    """Size of each layout's checkpoint, and time to save and to restore it."""
    cells = shown_cells(comparison)
    found = {i: c.checkpoint for i, c in enumerate(cells) if c.checkpoint}
    if not found:
        return None
    sizes = bytes_unit(c.total_bytes for c in found.values())
    times = time_unit(t for c in found.values() for t in (c.save_time_s, c.restore_time_s))
    figure, (left, right) = cell_rows(cells, panels=2)
    left.barh(list(found), [c.total_bytes / sizes.divisor for c in found.values()], height=0.6, color=BLUE)
    write_values(left, {i: (c.total_bytes / sizes.divisor, sizes.text(c.total_bytes)) for i, c in found.items()})
    left.set_xlabel(f"size on disk, {sizes.name}")
    saves = [c.save_time_s / times.divisor for c in found.values()]
    restores = [c.restore_time_s / times.divisor for c in found.values()]
    right.barh([i - 0.2 for i in found], saves, height=0.36, color=SKY, label="save")
    right.barh(
        [i + 0.2 for i in found], restores, height=0.36, color=ORANGE, hatch="//", edgecolor="white", label="restore"
    )
    right.set_xlabel(f"time of the slowest rank, {times.name}")
    for axes in (left, right):
        mark_missing(axes, [i for i in range(len(cells)) if i not in found])
    return finished(figure, right, heading(comparison, "Checkpoint with optimizer state by layout"))


PICTURES: Mapping[str, Callable[[Comparison], Figure | None]] = {
    "tokens_per_s": draw_speed,
    "speed_memory": draw_frontier,
    "step_breakdown": draw_breakdown,
    "peak_memory": draw_memory,
    "memory_by_kind": draw_memory_kinds,
    "memory_heat": draw_memory_ranks,
    "predicted": draw_predicted,
    "checkpoint": draw_checkpoint,
    "traffic": draw_traffic,
    "mesh": draw_mesh,
    "checkpoint_matrix": draw_checkpoint_matrix,
}

DESCRIPTIONS: Mapping[str, str] = {
    "tokens_per_s": "tokens per second of each layout with 95% intervals",
    "speed_memory": "speed against peak memory, with the frontier",
    "step_breakdown": "what a step of each layout is made of: compute, optimizer, waiting, exposed communication",
    "peak_memory": "peak memory of each layout",
    "memory_by_kind": "peak memory of each layout by kind",
    "memory_heat": "peak memory of each rank, odd ranks framed",
    "predicted": "predicted peak memory of each layout beside the measured one",
    "checkpoint": "checkpoint size, save and restore time of each layout",
    "checkpoint_matrix": "time to restore a checkpoint of each mesh onto each other mesh",
    "traffic": "bytes that each layout sends in a step, by mesh axis and class of link",
    "mesh": "mesh of the fastest layout on its hosts",
    "together": "tokens per second of each layout in each sweep with 95% intervals",
    "scaling": "tokens per second against world size, the best layout of each strategy, with 95% intervals",
}


def describe(name: str) -> str:
    """What a picture shows, in a line."""
    return DESCRIPTIONS.get(name, name.replace("_", " "))
