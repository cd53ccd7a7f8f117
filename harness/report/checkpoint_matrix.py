"""The heat map of meshes: saved on one, restored on another."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from harness.checkpoint.study import Pair
from harness.compare import Comparison
from harness.report.canvas import FONT_SIZE, GREY, INK, heading, new_figure
from harness.report.units import fold, plain

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

ROW_IN, SMALL_ROW_IN, FRAME_IN = 0.36, 0.2, 2.2
NOTE = "= every tensor, optimizer state and step equal, and training goes on;  X not so;  - cannot work, see the text"
MANY = "columns have the numbers of rows; a shade alone stands for ="
DARK = 0.6  # share of the colour scale above which text on it is white
MOST_NAMED = 14  # meshes a side with room for their names below and for times inside


def draw_checkpoint_matrix(comparison: Comparison) -> Figure | None:
    """Time to restore each pair; a pair that is unequal or cannot work says so in its place."""
    study = comparison.checkpoint_study
    if study is None or not study.pairs:
        return None
    return draw_pairs(study.pairs, heading(comparison, "Restore time, saved on one mesh and restored on another"))


def draw_pairs(pairs: Sequence[Pair], title: str) -> Figure:
    """The picture of ``pairs``."""
    import numpy as np

    sources = list(dict.fromkeys(p.source for p in pairs))
    targets = list(dict.fromkeys(p.target for p in pairs))
    times = np.full((len(sources), len(targets)), np.nan)
    words = {(s, t): "-" for s in range(len(sources)) for t in range(len(targets))}
    for pair in pairs:
        place = sources.index(pair.source), targets.index(pair.target)
        if pair.time_s is not None:
            times[place] = pair.time_s * 1e3
        words[place] = pair_word(pair)
    many = max(len(sources), len(targets)) > MOST_NAMED
    figure = new_figure(FRAME_IN + (SMALL_ROW_IN if many else ROW_IN) * len(sources))
    axes = figure.subplots()
    shown = axes.imshow(times, cmap="Blues", aspect="auto", vmin=0)
    (_number_axes if many else _name_axes)(axes, sources, targets)
    axes.set_ylabel("saved on", fontsize=FONT_SIZE)
    most = np.nanmax(times) if np.isfinite(times).any() else 1.0
    for (row, column), word in words.items():
        value = times[row, column]
        colour = GREY if np.isnan(value) else "white" if value > DARK * most else INK
        axes.text(
            column,
            row,
            word[0].strip("=") if many else word,
            ha="center",
            va="center",
            fontsize=FONT_SIZE,
            color=colour,
            weight="bold" if word[0] == "X" else None,
        )
    axes.spines[:].set_visible(False)
    figure.colorbar(shown, ax=axes, label="slowest rank, ms", fraction=0.04)
    figure.suptitle(title, x=0.01, ha="left", fontsize=12, parse_math=False)
    return figure


def _name_axes(axes: Axes, sources: Sequence[str], targets: Sequence[str]) -> None:
    axes.set_xticks(range(len(targets)), targets, rotation=30, ha="right", fontsize=FONT_SIZE, parse_math=False)
    axes.set_yticks(range(len(sources)), sources, fontsize=FONT_SIZE, parse_math=False)
    axes.set_xlabel(f"restored on\n\n{NOTE}", fontsize=FONT_SIZE)


def _number_axes(axes: Axes, sources: Sequence[str], targets: Sequence[str]) -> None:
    """Rows with name and number, columns with numbers: names of many columns would lie over each other."""
    number = {name: place for place, name in enumerate(dict.fromkeys((*sources, *targets)), start=1)}
    unlisted = [f"{number[name]} {plain(name, 60)}" for name in targets if name not in sources]
    rows = [f"{plain(name, 60)}  {number[name]}" for name in sources]
    axes.set_yticks(range(len(sources)), rows, fontsize=FONT_SIZE - 1, parse_math=False)
    below = [str(number[name]) for name in targets]
    axes.set_xticks(range(len(targets)), below, rotation=90, fontsize=FONT_SIZE - 1)
    lines = [line for note in (NOTE, MANY, *unlisted) for line in fold(note, 64)]
    axes.set_xlabel("\n".join(["restored on", "", *lines]), fontsize=FONT_SIZE)


def pair_word(pair: Pair) -> str:
    """``= 12``, ``X 12`` or ``-``."""
    if pair.time_s is None:
        return "-"
    return f"{'=' if pair.good else 'X'} {pair.time_s * 1e3:.0f}"
