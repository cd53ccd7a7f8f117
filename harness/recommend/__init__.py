"""From a comparison to a decision: an objective, constraints, the winner, its ties, and how sure that is."""

from harness.recommend.decide import recommend, recommend_of
from harness.recommend.field import Measured
from harness.recommend.limits import Limits
from harness.recommend.models import Choice, ConstraintCost, Excluded, Recommendation
from harness.recommend.objective import OBJECTIVES, TERMS, Objective, make_objective

__all__ = [
    "OBJECTIVES",
    "TERMS",
    "Choice",
    "ConstraintCost",
    "Excluded",
    "Limits",
    "Measured",
    "Objective",
    "Recommendation",
    "make_objective",
    "recommend",
    "recommend_of",
]
