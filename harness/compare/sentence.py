"""The answer of one sweep in one sentence, with its interval and its ties; or why there is none."""

from __future__ import annotations

from collections.abc import Sequence

from harness.compare.headline import Rival, headline
from harness.compare.models import OUTCOMES, CellResult, Comparison
from harness.compare.wording import speed_text, standing


def sentence(comparison: Comparison) -> str:
    """Which layout to train with, by how much it leads the next that is not a tie, and who ties."""
    ranked = comparison.ranked
    if not ranked:
        return _nothing(comparison)
    return headline(ranked[0].label, speed_text(ranked[0]), [_rival(r) for r in ranked[1:]])


def sentence_of_several(comparisons: Sequence[Comparison]) -> str:
    """The layout that is fastest, or a tie with the fastest, in all of several sweeps; else the fastest of each."""
    answered = [(c.plan.name, c.best, {cell.label for cell in (c.best, *c.ties)}) for c in comparisons if c.best]
    if not answered:
        return "No layout was measured in any of the sweeps."
    everywhere = [best.label for _, best, _ in answered if all(best.label in near for _, _, near in answered)]
    if everywhere and len(answered) > 1:
        speeds = "; ".join(f"{speed_text(best)} in {name}" for name, best, _ in answered)
        who = f"fastest, or a tie with the fastest, in all {len(answered)} sweeps"
        return f"Train with {everywhere[0]}: {who}. The fastest: {speeds}."
    return f"Train with {'; '.join(f'{best.label} in {name}: {speed_text(best)}' for name, best, _ in answered)}."


def _rival(cell: CellResult) -> Rival:
    stands = standing(cell)
    lead = cell.ratio_to_best.inverse() if cell.ratio_to_best else None
    return Rival(label=cell.label, lead=lead, tie=stands == "tie", undecided=stands == "undecided")


def _nothing(comparison: Comparison) -> str:
    """``No layout was measured: 1 diverged, 2 failed.``; a reference that only verified is no layout to choose."""
    counts = {outcome: len(comparison.with_outcome(outcome)) for outcome in OUTCOMES if outcome != "measured"}
    found = [f"{count} {outcome.replace('_', ' ')}" for outcome, count in counts.items() if count]
    return f"No layout was measured: {', '.join(found) or 'the plan has none'}."
