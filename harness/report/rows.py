"""Pictures with one row a cell: the empty rows, what is written beside them, title and legend."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from harness.compare import CellResult
from harness.report.canvas import FONT_SIZE, GREY, GRID, INK, LABEL_WIDTH, new_figure, separate_thousands
from harness.report.units import fold

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

LABEL_LINES = 3


def cell_rows(cells: Sequence[CellResult], panels: int = 1) -> tuple[Figure, list[Axes]]:
    """A figure with one row a cell, the first on top, that grows with their number."""
    names = [c.label + (" (reference)" if c.rank is None and c.is_reference else "") for c in cells]
    labels = [fold(name, LABEL_WIDTH)[:LABEL_LINES] for name in names]
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


def write_values(axes: Axes, values: Mapping[int, tuple[float, str]], gap: float = 4.0) -> None:
    """The value of each row, ``gap`` points right of where its drawing ends."""
    for row, (end, text) in values.items():
        at = (gap, 0)
        axes.annotate(text, (end, row), at, textcoords="offset points", va="center", fontsize=FONT_SIZE, color=INK)
    axes.margins(x=0.13)


def mark_missing(axes: Axes, rows: Sequence[int]) -> None:
    """Say of rows that there is no value."""
    for row in rows:
        axes.text(
            0.01, row, "not measured", color=GREY, fontsize=FONT_SIZE, va="center", transform=axes.get_yaxis_transform()
        )


def finished(figure: Figure, axes: Axes, title: str, columns: int | None = None) -> Figure:
    """Title above, legend below, both clear of the rows."""
    figure.suptitle(title, x=0.01, ha="left", fontsize=12, parse_math=False)
    handles, labels = axes.get_legend_handles_labels()
    if labels:
        figure.legend(
            handles, labels, loc="outside lower right", ncols=columns or len(labels), frameon=False, fontsize=9
        )
    return figure
