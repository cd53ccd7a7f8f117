"""What a recommendation says."""

from __future__ import annotations

from typing import Literal

from harness.base import Frozen
from harness.compare import Estimate
from harness.layout import Layout
from harness.recommend.limits import Limits
from harness.recommend.objective import Objective
from harness.stats import Ratio

Certainty = Literal["decided", "tie", "undecided", "unopposed", "single_values", "none"]


class Choice(Frozen):
    """An admissible layout.

    Attributes:
        advantage: the winner's score over this layout's, a ratio; None for the winner. Its interval is that of the
            speeds alone: times of checkpoints and memory are single measurements.
        tie: whether that cannot be told from 1.
        cost_per_million_tokens: (value, low, high) in the currency of the price; None without a price.
        headroom: share of the device's memory left; None where unknown.
    """

    label: str
    layout: Layout
    tokens_per_s: Estimate | None = None
    memory_bytes: int | None = None
    headroom: float | None = None
    restore_s: float | None = None
    cost_per_million_tokens: tuple[float, float, float] | None = None
    advantage: Ratio | None = None
    tie: bool = False


class Excluded(Frozen):
    """A measured layout that may not be chosen: the constraints that it breaks, or the term that is missing."""

    label: str
    constraints: tuple[str, ...]
    reason: str


class ConstraintCost(Frozen):
    """What one constraint costs: who would win without it, and that layout's score over the winner's.

    ``advantage`` and ``label`` are None where the answer is the same without the constraint, or where there is none.
    """

    constraint: str
    limit: str
    excluded: int
    label: str | None = None
    advantage: Ratio | None = None


class Recommendation(Frozen):
    """The answer; ``choices`` are the admissible layouts, best first, the winner at their head."""

    sweep: str
    objective: Objective
    limits: Limits
    certainty: Certainty
    sentence: str
    sureness: tuple[str, ...]
    choices: tuple[Choice, ...] = ()
    excluded: tuple[Excluded, ...] = ()
    constraints: tuple[ConstraintCost, ...] = ()

    @property
    def winner(self) -> Choice | None:
        return next(iter(self.choices), None)

    @property
    def ties(self) -> tuple[Choice, ...]:
        return tuple(c for c in self.choices if c.tie)
