"""The decision in one sentence, which opens every report and every recommendation."""

from __future__ import annotations

from collections.abc import Sequence

from harness.base import Frozen
from harness.compare.wording import lead_text, listed
from harness.stats import Ratio


class Rival(Frozen):
    """A layout that might have been chosen; ``lead``: the winner's score over its own, None where unknown.

    ``undecided``: whether one round is all there is of it beside the winner; else ``tie`` says that the two cannot be
    told apart.
    """

    label: str
    lead: Ratio | None
    tie: bool = False
    undecided: bool = False


def headline(winner: str, figure: str, rivals: Sequence[Rival], good: str = "fast") -> str:
    """``Train with ddp r4: 14,062 tokens/s [11,296, 17,506], 178% [146, 215] ahead of hsdp r2s2.``

    The lead is that over the next which can be told from the winner. ``rivals`` are in their order, ``good`` is what a
    higher score means: ``5x as fast as``.
    """
    head = f"Train with {winner}: {figure}"
    if not rivals:
        return f"{head}; there is no other layout to compare it with."
    undecided = [r.label for r in rivals if r.undecided]
    ties = [r.label for r in rivals if r.tie and not r.undecided]
    behind = next((r for r in rivals if not r.tie and not r.undecided), None)
    nearest = behind or next((r for r in rivals if r.label in ties), rivals[0])
    only, place = ("", "") if behind else ("only ", "") if ties else ("", " in the only round")
    head += f", {only}{_lead(nearest, good)}{place}"
    head += ", which" if ties == [nearest.label] else f"; {listed(ties)}" if ties else ""
    head += " cannot be told from it" if ties else ""
    more = ", run at least 3 (--rounds 3)" if not ties and behind is None else ""
    head += f"; one round cannot tell it from {listed(undecided)}{more}" if undecided else ""
    return f"{head}."


def _lead(rival: Rival, good: str) -> str:
    return f"ahead of {rival.label}" if rival.lead is None else lead_text(rival.lead, rival.label, good)
