"""The night in a few lines, fit for a mail or a chat message."""

from __future__ import annotations

from collections.abc import Sequence

from harness.compare import Comparison, sentence
from harness.compare.change import Change, SweepChange
from harness.report.changes import WORDS, cell_text, effect_text, ordered


def exit_code(tonight: Comparison, changes: Sequence[SweepChange]) -> int:
    """0 clean; 1 a cell is slower than in any of the earlier sweeps; 2 nothing was measured, or a cell broke.

    Sweeps that stand on another ground, such as those before an upgrade, decide nothing.
    """
    if tonight.best is None or any(change.having(Change.BROKEN) for change in changes):
        return 2
    return 1 if any(change.having(Change.SLOWER) for change in changes) else 0


def summary(tonight: Comparison, changes: Sequence[SweepChange], code: int) -> str:
    """One line of outcome, the ranking's sentence, then what changed against each earlier sweep."""
    lines = [f"meshsweep nightly {tonight.plan.name}: {WORDS[code]}", sentence(tonight)]
    if not changes:
        lines.append("no earlier sweep of this suite; tonight's is the baseline")
    for change in changes:
        ties = len(change.having(Change.TIE))
        common = f", all together {effect_text(change.common)}" if change.common else ""
        lines.append(f"against {change.before}: {ties} of {len(change.cells)} cells unchanged{common}")
        lines += [f"  {c.label}: {cell_text(c)}" for c in ordered(change) if c.change is not Change.TIE]
    return "\n".join(lines)
