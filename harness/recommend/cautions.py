"""What keeps a recommendation from being taken over as it stands, for the heads of exported files."""

from __future__ import annotations

from collections.abc import Iterator

from harness.compare.wording import listed
from harness.recommend.models import Recommendation
from harness.spec import SweepPlan

SMALL_MODEL = 100_000_000  # parameters; below, steps are mostly latency, and another model's order may be another


def cautions(found: Recommendation, plan: SweepPlan) -> tuple[str, ...]:
    """A clause each; none where the sweep is like training and the winner is told apart."""
    return tuple(_cautions(found, plan))


def _cautions(found: Recommendation, plan: SweepPlan) -> Iterator[str]:
    model = plan.workload.model
    if model.param_count < SMALL_MODEL:
        yield f"measured with a model of {model.param_count / 1e6:,.3g} M parameters ({model.name})"
    if plan.ranks.device == "cpu":
        yield "measured on CPU ranks"
    if found.certainty == "single_values":
        yield "chosen by figures that were measured once each"
    elif any(one.advantage is not None and one.advantage.one_round for one in found.choices):
        yield "measured in one round, which tells no layouts apart"
    elif found.ties:
        yield f"not told apart from {listed([one.label for one in found.ties])}"
    if found.certainty == "unopposed":
        yield "compared with no other layout that may be chosen"
    if found.differences:
        yield "chosen from sweeps that stand on different grounds"
