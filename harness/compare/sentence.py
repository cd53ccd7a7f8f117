"""The answer in one sentence, with its interval and its ties."""

from __future__ import annotations

from collections.abc import Sequence

from harness.compare.models import OUTCOMES, CellResult, Comparison
from harness.compare.wording import lead_text, listed, speed_text, standing


def sentence(comparison: Comparison) -> str:
    """Who is fastest, by how much over the next that is not a tie, and who ties; or why there is no answer."""
    ranked = comparison.ranked
    if not ranked:
        return _nothing(comparison)
    best, rivals = ranked[0], ranked[1:]
    if not rivals:
        return f"{best.label} is the only layout ranked, at {speed_text(best)}; there is nothing to compare it with."
    undecided = [r.label for r in rivals if standing(r) == "undecided"]
    if len(undecided) == len(rivals):
        return (
            f"{best.label} was fastest in the only round, {_lead(rivals[0])}, but one round cannot tell layouts apart; "
            "run at least 3 (--rounds 3)."
        )
    behind = next((r for r in rivals if not r.tie), None)
    ties = [r.label for r in rivals if standing(r) == "tie"]
    if behind is None and not undecided:
        who = f"All {len(ranked)} layouts" if len(ranked) > 2 else f"{best.label} and {rivals[0].label}"
        return f"{who} are a tie: {best.label} is only {_lead(rivals[0])}."
    rest = f"; {listed(ties)} {_is(ties)} a tie with it" if ties else ""
    rest += f"; {listed(undecided)} {_is(undecided)} not decided (one round)" if undecided else ""
    return f"{best.label} is fastest{f', {_lead(behind)}' if behind else ''}{rest}."


def _is(labels: Sequence[str]) -> str:
    return "is" if len(labels) == 1 else "are"


def _lead(rival: CellResult) -> str:
    if rival.ratio_to_best is None:
        return f"ahead of {rival.label}"
    return lead_text(rival.ratio_to_best.inverse(), rival.label)


def _nothing(comparison: Comparison) -> str:
    """``No layout was measured: 1 diverged, 2 failed.``; a reference that only verified is no layout to choose."""
    counts = {outcome: len(comparison.with_outcome(outcome)) for outcome in OUTCOMES if outcome != "measured"}
    found = [f"{count} {outcome.replace('_', ' ')}" for outcome, count in counts.items() if count]
    return f"No layout was measured: {', '.join(found) or 'the plan has none'}."
