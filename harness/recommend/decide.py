"""The decision: which measured layouts may be chosen, which of them is best, what each constraint cost."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import exp

from harness.compare import CellResult
from harness.recommend.alike import differences
from harness.recommend.field import Field, Measured, gather
from harness.recommend.limits import CHECKS, Limits, broken, headroom, memory_bytes
from harness.recommend.models import Choice, ConstraintCost, Excluded, Recommendation
from harness.recommend.objective import TERMS, Objective, price_of
from harness.recommend.words import certainty_of, sentence_of, sureness_of
from harness.record import RunRecord
from harness.spec import SweepPlan
from harness.stats import Ratio


@dataclass(frozen=True)
class _Judged:
    """The candidates and what they are judged by."""

    field: Field
    objective: Objective

    def order(self, results: Sequence[CellResult]) -> list[CellResult]:
        """Best first; equal scores keep the order of speed."""
        scores = {r.label: self.objective.score(r) for r in results}
        return sorted(results, key=lambda r: -(scores[r.label] or 0.0))

    def advantage(self, a: CellResult, b: CellResult) -> Ratio:
        """Score of ``a`` over that of ``b``; the interval holds what is known of their speeds' ratio."""
        score_a, score_b = self.objective.score(a), self.objective.score(b)
        value = exp((score_a or 0.0) - (score_b or 0.0))
        weight = self.objective.weights.get("speed", 0.0)
        if weight == 0:
            return Ratio(ratio=value, low=value, high=value, rounds=1, samples=1, paired=False, one_round=True)
        speeds = self.field.speeds(a, b)
        speed_a, speed_b = TERMS["speed"].value(a), TERMS["speed"].value(b)
        rest = value / ((speed_a or 1.0) / (speed_b or 1.0)) ** weight
        ends = {name: getattr(speeds, name) ** weight * rest for name in ("ratio", "low", "high")}
        return speeds.model_copy(update=ends)


def recommend(
    plan: SweepPlan, records: Sequence[RunRecord], objective: Objective, limits: Limits | None = None
) -> Recommendation:
    """``recommend_of`` one sweep."""
    return recommend_of([Measured(plan.name, plan, records)], objective, limits)


def recommend_of(sweeps: Sequence[Measured], objective: Objective, limits: Limits | None = None) -> Recommendation:
    """The best of the ranked layouts of all sweeps that meet every limit. Pure; reads and writes nothing.

    Layouts whose advantage over the winner cannot be told from none are its ties. A layout that lacks a figure which
    the objective or a limit needs is excluded, never assumed to be good.

    Raises:
        UsageError: the sweeps did other work or ran on other devices; the field and both values are named.
    """
    limits = limits or Limits()
    unlike = differences(sweeps, objective)
    field = gather(sweeps)
    judged = _Judged(field, objective)
    given = limits.given()
    problems = {r.label: broken(r, field.ground(r), given) for r in field.ranked}
    scored = [r for r in field.ranked if objective.score(r) is not None]
    admitted = judged.order([r for r in scored if not problems[r.label]])
    choices = tuple(_choice(r, admitted[0], judged) for r in admitted)
    certainty = certainty_of(choices, objective)
    costs = tuple(_cost(name, limit, scored, problems, admitted, judged) for name, limit in given.items())
    excluded = tuple(_excluded(r, problems[r.label], objective) for r in field.ranked if r not in admitted)
    return Recommendation(
        sweeps=tuple(one.name for one in sweeps),
        objective=objective,
        limits=limits,
        certainty=certainty,
        sentence=sentence_of(choices, certainty, objective, excluded),
        sureness=sureness_of(choices, certainty, objective, field, unlike),
        choices=choices,
        excluded=excluded,
        constraints=costs,
        differences=unlike,
    )


def _choice(result: CellResult, winner: CellResult, judged: _Judged) -> Choice:
    advantage = None if result is winner else judged.advantage(winner, result)
    price = judged.objective.price
    # an interval below 1 contradicts the order of the point estimates, so it decides nothing either
    told_apart = advantage is not None and (advantage.low > 1 and (advantage.separated or not _has_interval(judged)))
    return Choice(
        label=result.label,
        layout=result.layout,
        world_size=result.world_size,
        device=judged.field.groups[result.label].plan.ranks.device,
        sweeps=judged.field.groups[result.label].sweeps,
        tokens_per_s=result.tokens_per_s,
        tokens_per_s_per_rank=result.tokens_per_s_per_rank,
        memory_bytes=memory_bytes(result),
        headroom=headroom(result, judged.field.ground(result)),
        restore_s=result.checkpoint.restore_time_s if result.checkpoint else None,
        gpu_hours_per_million_tokens=price_of(result),
        cost_per_million_tokens=price_of(result, price) if price is not None else None,
        advantage=advantage,
        tie=advantage is not None and not told_apart,
    )


def _has_interval(judged: _Judged) -> bool:
    return "speed" in judged.objective.weights


def _excluded(result: CellResult, problems: Mapping[str, str], objective: Objective) -> Excluded:
    missing = [t for t in objective.weights if (value := TERMS[t].value(result)) is None or value <= 0]
    reasons = [*problems.values(), *(f"its {TERMS[t].meaning} was not measured" for t in missing)]
    return Excluded(label=result.label, constraints=tuple(problems), reason="; ".join(reasons))


def _cost(
    name: str,
    limit: float,
    scored: Sequence[CellResult],
    problems: Mapping[str, Mapping[str, str]],
    admitted: Sequence[CellResult],
    judged: _Judged,
) -> ConstraintCost:
    """Who would win if this constraint alone were lifted."""
    text = CHECKS[name].text(limit)
    count = sum(name in problems[r.label] for r in judged.field.ranked)
    free = judged.order([r for r in scored if not set(problems[r.label]) - {name}])
    if not free or (admitted and free[0] is admitted[0]):
        return ConstraintCost(constraint=name, limit=text, excluded=count)
    advantage = judged.advantage(free[0], admitted[0]) if admitted else None
    return ConstraintCost(constraint=name, limit=text, excluded=count, label=free[0].label, advantage=advantage)
