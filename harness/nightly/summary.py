"""The night in a few lines, fit for a mail or a chat message."""

from __future__ import annotations

from collections.abc import Sequence

from harness.compare import Comparison, sentence
from harness.nightly.verdict import CellChange, Change, NightVerdict

_SHOWN = (Change.BROKEN, Change.SLOWER, Change.FASTER, Change.INCOMPARABLE, Change.TOO_FEW, Change.NEW)


def summary(tonight: Comparison, verdicts: Sequence[NightVerdict], code: int) -> str:
    """One line of outcome, the ranking's sentence, then what changed against each earlier sweep."""
    word = {0: "clean", 1: "REGRESSION", 2: "BROKEN"}[code]
    lines = [f"meshsweep nightly {tonight.plan.name}: {word}", sentence(tonight)]
    if not verdicts:
        lines.append("no earlier sweep of this suite; tonight's is the baseline")
    for verdict in verdicts:
        shown = [cell for change in _SHOWN for cell in verdict.having(change)]
        ties = len(verdict.having(Change.TIE))
        lines.append(f"against {verdict.against}: {ties} of {len(verdict.cells)} cells unchanged")
        lines += [f"  {_line(cell)}" for cell in shown]
    return "\n".join(lines)


def _line(cell: CellChange) -> str:
    text = f"{cell.label}: {cell.change}"
    if cell.speed is not None:
        low, ratio, high = (100 * (value - 1) for value in (cell.speed.low, cell.speed.ratio, cell.speed.high))
        text += f", speed {ratio:+.1f}% [{low:+.1f}, {high:+.1f}]"
    return f"{text} ({' '.join(cell.reason.split())})" if cell.reason else text
