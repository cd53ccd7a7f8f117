"""What the figures mean, in plain sentences: the same in Markdown and on the page."""

from __future__ import annotations

from collections.abc import Mapping

from harness.compare import Comparison
from harness.report.tables import AGAINST, AGAINST_ORDER, RACED_SPEED, shown_cells, shown_marks
from harness.report.units import plain

MEANINGS: Mapping[str, str] = {
    "diverged": "Losses or gradient norms do not follow the reference: never to be chosen, however fast.",
    "failed": "Ended by an error.",
    "not_run": "No complete result yet.",
    "pruned": "Ruled out before anything ran.",
}


def table_notes(comparison: Comparison) -> list[str]:
    """How to read the columns of the ranking."""
    notes = [
        "Speed, which orders the rows, is the tokens of a global batch over the median step time of the slowest rank, "
        f"with a bootstrap 95% interval{f'; {RACED_SPEED}' if comparison.race else ''}."
    ]
    if len(comparison.ranked) > 1:
        notes.append(f"Against fastest is {AGAINST}, with its 95% interval; {AGAINST_ORDER}.")
    notes += [f"{mark} {meaning}." for mark, meaning in shown_marks(comparison).items()]
    notes += [
        "Memory is the peak of the fullest rank; * marks layouts that no other beats in both speed and memory.",
        "Checkpoints hold the optimizer state; their times are the slowest rank's.",
    ]
    return notes


def unranked_notes(comparison: Comparison) -> list[str]:
    """Why a measured layout has no place."""
    return [
        f"{'The reference ' if c.is_reference else ''}{plain(c.label)} is not ranked: it {plain(c.unranked)}."
        for c in shown_cells(comparison)
        if c.unranked
    ]
