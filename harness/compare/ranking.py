"""Order by speed, ratios to the fastest, ties, and the frontier of speed against memory."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import exp, hypot, log

from harness.compare.collect import Cell
from harness.compare.models import CellResult, Estimate
from harness.compare.pairs import point_ratio, speed_ratio
from harness.compare.race_verdict import RaceVerdict
from harness.stats import Ratio


def rank(results: Sequence[CellResult], cells: Mapping[str, Cell], race: RaceVerdict | None = None) -> list[CellResult]:
    """The rankable results, fastest first, each with rank, ratio to the fastest, tie and frontier."""
    order = sorted(results, key=_speed)
    ratios: dict[str, Ratio] = {}
    if race is not None and race.fit.effects and len(order) > 1:
        order, ratios = _raced(order, cells, race)
    placed = []
    for place, result in enumerate(order, start=1):
        ratio = ratios.get(result.label)
        if ratio is None and place > 1:
            ratio = speed_ratio(cells[result.label], cells[order[0].label])
        stopped = race.stop_of(result.label) if race else None
        placed.append(
            result.model_copy(
                update={
                    "rank": place,
                    "ratio_to_best": ratio,
                    # an interval above 1 contradicts the order of the point estimates, so it decides nothing either
                    "tie": ratio is not None and stopped is None and not (ratio.separated and ratio.high < 1),
                    "stopped": stopped,
                    "frontier": _on_frontier(result, order),
                }
            )
        )
    return placed


def _speed(result: CellResult) -> float:
    return -result.tokens_per_s.value if result.tokens_per_s else 0.0


def _raced(
    results: Sequence[CellResult], cells: Mapping[str, Cell], race: RaceVerdict
) -> tuple[list[CellResult], dict[str, Ratio]]:
    """The race's leader, then the others by their ratio to it, with speeds that follow from those ratios.

    Layouts of a race are not all timed in the same rounds, so their own medians would hold the rounds' differences.
    """
    known = {result.label: result for result in results}
    best = known[_leader(list(known), race)]
    ratios = {
        label: speed_ratio(cells[label], cells[best.label], pooled=race.fit.pooled)
        for label in known
        if label != best.label
    }
    rest = [_scaled(known[label], best, ratio) for label, ratio in ratios.items()]
    return [best, *sorted(rest, key=_speed)], ratios


def stated_speeds(own: Mapping[str, float], cells: Mapping[str, Cell], race: RaceVerdict | None) -> dict[str, float]:
    """The tokens/s that ``rank`` states of the layouts that it ranks, from those of their own steps; no intervals."""
    if race is None or not race.fit.effects or len(own) < 2:
        return dict(own)
    best = _leader(sorted(own, key=lambda label: -own[label]), race)
    scaled = {label: own[best] * point_ratio(cells[label], cells[best]) for label in own if label != best}
    return {**scaled, best: own[best]}


def _leader(labels: Sequence[str], race: RaceVerdict) -> str:
    """The race's leader; the first of the labels, fastest first, where none of them races."""
    return next((label for label in race.racing if label in labels), labels[0])


def _scaled(result: CellResult, best: CellResult, ratio: Ratio) -> CellResult:
    """A result with the speed that its ratio to the fastest gives; the variances of both logarithms add."""
    speed, fastest = result.tokens_per_s, best.tokens_per_s
    if speed is None or fastest is None:
        return result
    value = fastest.value * ratio.ratio
    low = value * exp(-hypot(log(fastest.value / fastest.low), log(ratio.ratio / ratio.low)))
    high = value * exp(hypot(log(fastest.high / fastest.value), log(ratio.high / ratio.ratio)))
    return result.model_copy(
        update={
            "tokens_per_s": Estimate(value=value, low=low, high=high),
            "tokens_per_s_per_rank": Estimate(
                value=value / result.world_size, low=low / result.world_size, high=high / result.world_size
            ),
            "mfu": None if result.mfu is None else result.mfu * value / speed.value,
        }
    )


def _on_frontier(result: CellResult, rivals: Sequence[CellResult]) -> bool | None:
    if result.memory is None or result.tokens_per_s is None:
        return None
    return not any(_dominates(other, result) for other in rivals)


def _dominates(a: CellResult, b: CellResult) -> bool:
    if a.memory is None or b.memory is None or a.tokens_per_s is None or b.tokens_per_s is None:
        return False
    speeds = (a.tokens_per_s.value, b.tokens_per_s.value)
    peaks = (a.memory.peak_bytes, b.memory.peak_bytes)
    no_worse = speeds[0] >= speeds[1] and peaks[0] <= peaks[1]
    return no_worse and (speeds[0] > speeds[1] or peaks[0] < peaks[1])
