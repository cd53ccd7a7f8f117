"""The heat map of meshes: saved on one, restored on another."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from harness.checkpoint.study import Pair
from harness.compare import Comparison
from harness.report.canvas import FONT_SIZE, GREY, INK, heading, new_figure

if TYPE_CHECKING:
    from matplotlib.figure import Figure

ROW_IN, FRAME_IN = 0.36, 2.2
NOTE = "= every tensor, optimizer state and step equal, and training goes on;  X not so;  - cannot work, see the text"
DARK = 0.6  # share of the colour scale above which text on it is white


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
    figure = new_figure(FRAME_IN + ROW_IN * len(sources))
    axes = figure.subplots()
    shown = axes.imshow(times, cmap="Blues", aspect="auto", vmin=0)
    axes.set_xticks(range(len(targets)), targets, rotation=30, ha="right", fontsize=FONT_SIZE)
    axes.set_yticks(range(len(sources)), sources, fontsize=FONT_SIZE)
    axes.set_xlabel(f"restored on\n\n{NOTE}", fontsize=FONT_SIZE)
    axes.set_ylabel("saved on", fontsize=FONT_SIZE)
    most = np.nanmax(times) if np.isfinite(times).any() else 1.0
    for (row, column), word in words.items():
        value = times[row, column]
        colour = GREY if np.isnan(value) else "white" if value > DARK * most else INK
        axes.text(
            column,
            row,
            word,
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


def pair_word(pair: Pair) -> str:
    """``= 12``, ``X 12`` or ``-``."""
    if pair.time_s is None:
        return "-"
    return f"{'=' if pair.good else 'X'} {pair.time_s * 1e3:.0f}"
