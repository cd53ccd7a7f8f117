"""What is said of a race: who was stopped and by which numbers, who is left, and what it saved."""

from __future__ import annotations

from typing import Literal

from harness.base import Frozen
from harness.race import BlockFit
from harness.spec import Race
from harness.stats import Ratio

End = Literal["separated", "tie", "rounds_used", "under_way"]

SURE_ERROR = 0.001  # the chance of error at which it is asked what a wrong stop would cost


class Stopped(Frozen):
    """A layout that the race stopped.

    Attributes:
        after_rounds: rounds that it was timed in until then.
        speed_ratio: its speed over the leader's, with the interval of the rule.
        confidence: one-sided, of this comparison.
        comparisons: over which the race's error was spread, looks x rivals.
    """

    label: str
    leader: str
    after_rounds: int
    speed_ratio: Ratio
    confidence: float
    error: float
    comparisons: int

    @property
    def text(self) -> str:
        """The rule's numbers in one line."""
        ratio = self.speed_ratio
        return (
            f"stopped early after {self.after_rounds} rounds: {ratio.ratio:.3g} [{ratio.low:.3g}, {ratio.high:.3g}] "
            f"of the speed of {self.leader}, so slower at {self.confidence:.2%} confidence (chance of error over all "
            f"{self.comparisons} comparisons: {self.error:.0%})"
        )


class RaceSavings(Frozen):
    """What a race saved against timing every layout in every round; seconds are estimated from steps' medians.

    ``wrong_label`` and ``wrong_ratio``: the stopped layout, and its speed over the fastest's, that would be lost in
    the worst case if one allowed only ``SURE_ERROR`` of error.
    """

    measured_steps: int
    exhaustive_steps: int
    saved_s: float
    wrong_label: str | None = None
    wrong_ratio: float | None = None


class RaceVerdict(Frozen):
    """How a race stands. ``looked_at``: rounds that the last look rested on; ``racing``: labels, fastest first."""

    race: Race
    ended: End
    looked_at: int
    racing: tuple[str, ...]
    stopped: tuple[Stopped, ...]
    fit: BlockFit
    savings: RaceSavings | None = None

    def stop_of(self, label: str) -> Stopped | None:
        """How the layout was stopped, None if it was not."""
        return next((s for s in self.stopped if s.label == label), None)
