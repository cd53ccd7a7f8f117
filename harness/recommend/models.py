"""What a recommendation says."""

from __future__ import annotations

from typing import Literal

from harness.base import Frozen
from harness.compare import Estimate
from harness.layout import Layout
from harness.recommend.alike import GroundDifference
from harness.recommend.limits import Limits
from harness.recommend.objective import Objective
from harness.spec import DeviceKind
from harness.stats import Ratio

Certainty = Literal["decided", "tie", "undecided", "unopposed", "single_values", "none"]


class Choice(Frozen):
    """An admissible layout.

    Attributes:
        label: its name; where sweeps of several sizes are chosen from, with its size: ``fsdp s8 on 8 ranks``.
        sweeps: where it was timed.
        advantage: the winner's score over this layout's, a ratio; None for the winner. Its interval is that of the
            speeds alone: times of checkpoints and memory are single measurements.
        tie: whether that cannot be told from 1.
        gpu_hours_per_million_tokens: (value, low, high); of ranks on CPUs it is the ranks' hours.
        cost_per_million_tokens: the same in the currency of the price; None without a price.
        headroom: share of the device's memory left; None where unknown.
    """

    label: str
    layout: Layout
    world_size: int
    device: DeviceKind
    sweeps: tuple[str, ...]
    tokens_per_s: Estimate | None = None
    tokens_per_s_per_rank: Estimate | None = None
    memory_bytes: int | None = None
    headroom: float | None = None
    restore_s: float | None = None
    gpu_hours_per_million_tokens: tuple[float, float, float] | None = None
    cost_per_million_tokens: tuple[float, float, float] | None = None
    advantage: Ratio | None = None
    tie: bool = False

    @property
    def one(self) -> str:
        """What its world size counts: ``GPU``, or ``rank`` on CPUs."""
        return "GPU" if self.device == "cuda" else "rank"


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
    """The answer; ``choices`` are the admissible layouts, best first, the winner at their head.

    ``differences``: in what the sweeps differ though they were chosen from together.
    """

    sweeps: tuple[str, ...]
    objective: Objective
    limits: Limits
    certainty: Certainty
    sentence: str
    sureness: tuple[str, ...]
    choices: tuple[Choice, ...] = ()
    excluded: tuple[Excluded, ...] = ()
    constraints: tuple[ConstraintCost, ...] = ()
    differences: tuple[GroundDifference, ...] = ()

    @property
    def winner(self) -> Choice | None:
        return next(iter(self.choices), None)

    @property
    def ties(self) -> tuple[Choice, ...]:
        return tuple(c for c in self.choices if c.tie)
