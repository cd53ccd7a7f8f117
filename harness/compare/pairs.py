"""Step times of two cells side by side, and the ratio of their speeds."""

from __future__ import annotations

from math import exp, log
from statistics import fmean, median

from harness.compare.collect import Cell, Round
from harness.stats import LEVEL, Pairs, Pooled, Ratio, paired_ratio, unpaired_ratio


def speed_ratio(cell: Cell, other: Cell, *, pooled: Pooled | None = None, level: float = LEVEL) -> Ratio:
    """Speed of ``cell`` over that of ``other``: from pairs where at least two rounds have them, else unpaired.

    ``pooled`` replaces what the two cells' own few rounds say of how rounds scatter.
    """
    if pairs := _enough_pairs(cell, other):
        return paired_ratio(pairs, pooled=pooled, level=level)
    return unpaired_ratio([r.times for r in other.rounds], [r.times for r in cell.rounds], pooled=pooled, level=level)


def point_ratio(cell: Cell, other: Cell) -> float:
    """The ratio that ``speed_ratio`` gives, without its interval, which is what takes the time."""
    if pairs := _enough_pairs(cell, other):
        return exp(fmean(median(log(a / b) for a, b in timed) for timed in pairs))
    levels = [fmean(median(log(time) for time in r.times) for r in one.rounds) for one in (other, cell)]
    return exp(levels[0] - levels[1])


def _enough_pairs(cell: Cell, other: Cell) -> Pairs:
    """The pairs of two cells, empty where there are too few for a ratio of their own."""
    pairs = [p for p in pairs_by_round(other, cell) if p]
    return pairs if len(pairs) >= 2 or min(len(cell.rounds), len(other.rounds)) < 2 else []


def pairs_by_round(first: Cell, second: Cell) -> Pairs:
    """Step times (s) of both cells in the same cycle of the same launch; a cycle of several steps gives its median."""
    partners = {r.key: r for r in second.rounds}
    found = []
    for own in first.rounds:
        partner = partners.get(own.key)
        if partner is not None:
            a, b = by_cycle(own), by_cycle(partner)
            found.append([(a[cycle], b[cycle]) for cycle in a if cycle in b])
    return found


def by_cycle(timed: Round) -> dict[int, float]:
    """The median step time (s) of each cycle of a round."""
    cycles: dict[int, list[float]] = {}
    for cycle, time in timed.steps:
        cycles.setdefault(cycle, []).append(time)
    return {cycle: median(times) for cycle, times in cycles.items()}
