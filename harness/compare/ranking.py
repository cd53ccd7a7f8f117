"""Order by speed, ratios to the fastest, ties, and the frontier of speed against memory."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import median

from harness.compare.collect import Cell, Round
from harness.compare.models import CellResult
from harness.stats import Pairs, Ratio, paired_ratio, unpaired_ratio


def rank(results: Sequence[CellResult], cells: Mapping[str, Cell]) -> list[CellResult]:
    """The rankable results, fastest first, each with rank, ratio to the fastest, tie and frontier."""
    order = sorted(results, key=lambda r: -(r.tokens_per_s.value if r.tokens_per_s else 0.0))
    placed = []
    for place, result in enumerate(order, start=1):
        ratio = None if place == 1 else speed_ratio(cells[result.label], cells[order[0].label])
        placed.append(
            result.model_copy(
                update={
                    "rank": place,
                    "ratio_to_best": ratio,
                    # an interval above 1 contradicts the order of the point estimates, so it decides nothing either
                    "tie": ratio is not None and not (ratio.separated and ratio.high < 1),
                    "frontier": _on_frontier(result, order),
                }
            )
        )
    return placed


def speed_ratio(cell: Cell, other: Cell) -> Ratio:
    """Speed of ``cell`` over that of ``other``: from pairs where at least two rounds have them, else unpaired."""
    pairs = [p for p in pairs_by_round(other, cell) if p]
    if len(pairs) >= 2 or (pairs and min(len(cell.rounds), len(other.rounds)) < 2):
        return paired_ratio(pairs)
    return unpaired_ratio([r.times for r in other.rounds], [r.times for r in cell.rounds])


def pairs_by_round(first: Cell, second: Cell) -> Pairs:
    """Step times (s) of both cells in the same cycle of the same launch; a cycle of several steps gives its median."""
    partners = {r.key: r for r in second.rounds}
    found = []
    for own in first.rounds:
        partner = partners.get(own.key)
        if partner is not None:
            a, b = _by_cycle(own), _by_cycle(partner)
            found.append([(a[cycle], b[cycle]) for cycle in a if cycle in b])
    return found


def _by_cycle(timed: Round) -> dict[int, float]:
    cycles: dict[int, list[float]] = {}
    for cycle, time in timed.steps:
        cycles.setdefault(cycle, []).append(time)
    return {cycle: median(times) for cycle, times in cycles.items()}


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
