"""What memory is made of, and how it lies over ranks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from math import ceil
from typing import TYPE_CHECKING

from harness.compare import CellResult, Comparison
from harness.compare.odd import RULE, odd_ranks
from harness.memory_kinds import MEMORY_KINDS, MemoryKind, PeakMemory, RankMemory
from harness.report.canvas import BLUE, FONT_SIZE, GREY, INK, LABEL_WIDTH, ORANGE, SKY, heading, new_figure
from harness.report.rows import LABEL_LINES, cell_rows, finished, mark_missing, write_values
from harness.report.tables import shown_cells
from harness.report.units import bytes_unit, fold, number, plain

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Okabe and Ito's; kinds of the model's state in blues, what a step adds in the others
KIND_COLOURS: Mapping[MemoryKind, tuple[str, str]] = {
    "parameters": (BLUE, ""),
    "optimizer_state": (SKY, ""),
    "gradients": ("#009E73", ""),
    "unsharded_parameters": (BLUE, "//"),
    "activations": (ORANGE, ""),
    "communication_buffers": ("#D55E00", ""),
    "temporaries": ("#F0E442", ""),
    "other": ("#BBBBBB", ".."),
}
_COLUMNS = 2
_MOST_NUMBERS = 12  # of a host's ranks; more have no room beside each other


def kind_name(kind: MemoryKind) -> str:
    """The kind for people."""
    return kind.replace("_", " ")


def moment_text(peak: PeakMemory) -> str:
    """``backward of layers.1.ffn``; ``building`` before the first step."""
    if peak.phase is None:
        return "building" if peak.step is None else "between steps"
    where = "" if peak.module is None else f" of {peak.module or 'the whole model'}"
    return f"{peak.phase}{where}"


def fullest(ranks: tuple[RankMemory, ...]) -> RankMemory:
    """The rank with the largest peak."""
    return max(ranks, key=lambda rank: rank.peak.peak_bytes)


def draw_memory_kinds(comparison: Comparison) -> Figure | None:
    """The fullest rank's peak by kind, a stack a layout, with the moment of the peak."""
    cells = shown_cells(comparison)
    peaks = {i: fullest(c.rank_memory).peak for i, c in enumerate(cells) if c.rank_memory}
    if not peaks:
        return None
    unit = bytes_unit(p.peak_bytes for p in peaks.values())
    figure, (axes,) = cell_rows(cells)
    ends = dict.fromkeys(peaks, 0.0)
    for kind in MEMORY_KINDS:
        sizes = {i: p.bytes_by_kind[kind] / unit.divisor for i, p in peaks.items() if p.bytes_by_kind[kind]}
        if not sizes:
            continue
        colour, hatch = KIND_COLOURS[kind]
        lefts = [ends[i] for i in sizes]
        axes.barh(
            list(sizes),
            list(sizes.values()),
            left=lefts,
            height=0.62,
            color=colour,
            hatch=hatch,
            edgecolor="white",
            linewidth=0.5,
            label=kind_name(kind),
        )
        ends |= {i: ends[i] + size for i, size in sizes.items()}
    shown = {i: (ends[i], f"{unit.text(p.peak_bytes)}, {plain(moment_text(p), 40)}") for i, p in peaks.items()}
    write_values(axes, shown)
    axes.margins(x=0.45)
    axes.set_xlim(left=0)
    mark_missing(axes, [i for i in range(len(cells)) if i not in peaks])
    axes.set_xlabel(f"peak memory of the fullest rank, {unit.name}, and the part of the step in which it lies")
    return finished(figure, axes, heading(comparison, "What peak memory is made of"), columns=4)


def draw_memory_ranks(comparison: Comparison) -> Figure | None:
    """A heat map a layout: rows are hosts, columns local ranks; odd ranks are framed."""
    cells = [c for c in shown_cells(comparison) if len(c.rank_memory) > 1]
    if not cells:
        return None
    unit = bytes_unit(r.peak.peak_bytes for c in cells for r in c.rank_memory)
    hosts = max(len(dict.fromkeys(c.hosts)) for c in cells)
    rows = ceil(len(cells) / _COLUMNS)
    peaks = [_peaks(c, unit.divisor) for c in cells]
    lines = max(_title(c, odd_ranks(own), own).count("\n") for c, own in zip(cells, peaks, strict=True))
    figure = new_figure(1.2 + rows * (0.75 + 0.13 * lines + 0.28 * hosts))
    panels = figure.subplots(rows, _COLUMNS, squeeze=False).flatten()
    largest = max(r.peak.peak_bytes for c in cells for r in c.rank_memory) / unit.divisor
    for axes, cell in zip(panels, cells, strict=False):
        _heat_map(axes, cell, unit.divisor, largest)
    for axes in panels[len(cells) :]:
        axes.set_visible(False)
    figure.suptitle(heading(comparison, f"Peak memory of each rank, {unit.name}"), x=0.01, ha="left", fontsize=12)
    figure.supxlabel("\n".join(fold(f"columns: local ranks; framed ranks are {RULE}", 130)), fontsize=FONT_SIZE)
    return figure


def _heat_map(axes: Axes, cell: CellResult, divisor: float, largest: float) -> None:
    from matplotlib.patches import Rectangle

    hosts = list(dict.fromkeys(cell.hosts))
    values = _peaks(cell, divisor)
    odd = odd_ranks(values)
    width = max(cell.hosts.count(host) for host in hosts)
    grid = [[float("nan")] * width for _ in hosts]
    places: list[tuple[int, int]] = []
    for host in cell.hosts:
        row = hosts.index(host)
        places.append((row, sum(place[0] == row for place in places)))
    for value, (row, column) in zip(values, places, strict=True):
        grid[row][column] = value
    axes.imshow(grid, cmap="Blues", vmin=0, vmax=largest * 1.3, aspect="auto")
    for rank, (value, (row, column)) in enumerate(zip(values, places, strict=True)):
        if width <= _MOST_NUMBERS:
            colour = "white" if value > 0.75 * largest else INK
            axes.text(column, row, number(value), ha="center", va="center", fontsize=FONT_SIZE, color=colour)
        if rank in odd:
            frame = Rectangle((column - 0.46, row - 0.42), 0.92, 0.84, fill=False, edgecolor="#D55E00", linewidth=2)
            axes.add_patch(frame)
    axes.set_xticks(range(0, width, ceil(width / _MOST_NUMBERS)))
    axes.set_yticks(range(len(hosts)), [plain(host, 16) for host in hosts], parse_math=False)
    axes.tick_params(length=0, labelsize=FONT_SIZE)
    colour = INK if odd else GREY
    axes.set_title(_title(cell, odd, values), fontsize=FONT_SIZE + 1, loc="left", parse_math=False, color=colour)
    axes.spines[:].set_visible(False)


def _peaks(cell: CellResult, divisor: float) -> list[float]:
    return [rank.peak.peak_bytes / divisor for rank in cell.rank_memory]


def _title(cell: CellResult, odd: Sequence[int], values: Sequence[float]) -> str:
    """The layout, its odd ranks, and the range of ranks that are too many for a number each, as wide as a panel."""
    crowded = max(Counter(cell.hosts).values()) > _MOST_NUMBERS
    facts = [f"{number(min(values))} to {number(max(values))}"] if crowded else []
    facts += [f"odd rank {', '.join(map(str, odd))}"] if odd else []
    named = fold(f"{cell.label}: {', '.join(facts)}" if facts else cell.label, LABEL_WIDTH)
    if len(named) > LABEL_LINES:
        named = [*fold(cell.label, LABEL_WIDTH)[:LABEL_LINES], *fold(", ".join(facts), LABEL_WIDTH)[:1]]
    return "\n".join(named)
