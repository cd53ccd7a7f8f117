"""The night in a few lines, fit for a mail or a chat message."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

from harness.compare import Comparison, sentence
from harness.compare.change import Change, SweepChange
from harness.history.nights import History
from harness.history.trend import FEWEST_NIGHTS
from harness.report.changes import WORDS, cell_text, effect_text, ordered
from harness.report.history import event_lines, heading

RECENT_DAYS = 28


def recent(past: History) -> int:
    """Number of the first night of the last RECENT_DAYS."""
    edge = past.nights[-1].created_at - timedelta(days=RECENT_DAYS)
    return next(number for number, night in enumerate(past.nights) if night.created_at >= edge)


def exit_code(tonight: Comparison, changes: Sequence[SweepChange]) -> int:
    """0 clean; 1 a cell is slower than in any of the earlier sweeps; 2 nothing was measured, or a cell broke.

    Sweeps that stand on another ground, such as those before an upgrade, decide nothing.
    """
    if tonight.best is None or any(change.having(Change.BROKEN) for change in changes):
        return 2
    return 1 if any(change.having(Change.SLOWER) for change in changes) else 0


def summary(tonight: Comparison, changes: Sequence[SweepChange], code: int, past: History | None = None) -> str:
    """Outcome, the ranking's sentence, what changed against each earlier sweep, and what changed in the last weeks."""
    lines = [f"meshsweep nightly {tonight.plan.name}: {WORDS[code]}", sentence(tonight)]
    if not changes:
        lines.append("no earlier sweep of this suite; tonight's is the baseline")
    for change in changes:
        ties = len(change.having(Change.TIE))
        common = f", all together {effect_text(change.common)}" if change.common else ""
        lines.append(f"against {change.before}: {ties} of {len(change.cells)} cells unchanged{common}")
        lines += [f"  {c.label}: {cell_text(c)}" for c in ordered(change) if c.change is not Change.TIE]
    if past is not None and len(past.nights) >= 2 * FEWEST_NIGHTS:
        lines.append(f"history, {heading(past)}; changes of the last {RECENT_DAYS} days:")
        lines += [f"  {line}" for line in event_lines(past, recent(past))]
    return "\n".join(lines)
