"""A sweep's race: which layouts go on, which were stopped and by which numbers, and what that saved."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from statistics import fmean, median

import numpy as np

from harness.base import Frozen
from harness.compare.collect import Cell, Round
from harness.compare.history import History
from harness.compare.pairs import by_cycle, speed_ratio
from harness.compare.race_verdict import SURE_ERROR, End, RaceSavings, RaceVerdict, Stopped
from harness.race import BlockFit, fit_blocks, look_level
from harness.spec import Race, SweepPlan


class RaceState(Frozen):
    """A verdict, and the (round, label) pairs that the next look waits for; none once the race has ended."""

    verdict: RaceVerdict
    waiting: tuple[tuple[int, str], ...] = ()


def race_of(history: History) -> RaceState | None:
    """The race of a sweep as its records leave it; None for a sweep that does not race.

    Every look rests on the rounds before it alone, so later records change no earlier stop.
    """
    plan = history.plan
    if plan.race is None:
        return None
    runs = {layout.label: layout for layout in plan.layouts}
    cells = [cell for cell in history.rankable() if cell.world_size == plan.ranks.world_size]

    def waits(label: str, repeat: int) -> bool:
        return history.pending(plan.run(runs[label], "time", repeat))

    return _run(plan.race, cells, waits)


def _run(race: Race, cells: Sequence[Cell], waits: Callable[[str, int], bool]) -> RaceState:
    alive, stopped, fit = list(cells), list[Stopped](), BlockFit(effects={}, pooled=None)

    def state(ended: End, rounds: int, waiting: tuple[tuple[int, str], ...] = ()) -> RaceState:
        racing = tuple(cell.label for cell in _in_order(alive, fit))
        verdict = RaceVerdict(race=race, ended=ended, looked_at=rounds, racing=racing, stopped=tuple(stopped), fit=fit)
        return RaceState(verdict=verdict, waiting=waiting)

    for rounds in range(race.opening_rounds, race.most_rounds + 1):
        waiting = tuple((at, cell.label) for at in range(rounds) for cell in alive if waits(cell.label, at))
        if waiting:
            return state("under_way", rounds - 1, waiting)
        fit = fit_blocks(list(_rows(_until(cells, rounds))))
        seen = _in_order(_until(alive, rounds), fit)
        stops, tied = _look(race, seen, fit, rivals=len(cells) - 1, rounds=rounds)
        stopped += stops
        alive = [cell for cell in alive if cell.label not in {stop.label for stop in stops}]
        if rounds >= race.least_rounds and (len(alive) == 1 or tied):
            return state("separated" if len(alive) == 1 else "tie", rounds)
    return state("rounds_used", race.most_rounds)


def _until(cells: Sequence[Cell], rounds: int) -> list[Cell]:
    return [replace(c, rounds=tuple(r for r in c.rounds if r.record.spec.repeat < rounds)) for c in cells]


def _in_order(cells: Sequence[Cell], fit: BlockFit) -> list[Cell]:
    return sorted(cells, key=lambda cell: fit.effects.get(cell.label, float("inf")))


def _look(race: Race, cells: Sequence[Cell], fit: BlockFit, rivals: int, rounds: int) -> tuple[list[Stopped], bool]:
    """Who stops, and whether all that go on are a tie. ``cells`` lie in order, the leader first."""
    if fit.pooled is None or len(cells) < 2 or not cells[0].rounds:
        return [], False
    leader, level = cells[0], look_level(race.error, race.looks, rivals)
    ratios = {
        cell.label: speed_ratio(cell, leader, pooled=fit.pooled, level=level) for cell in cells[1:] if cell.rounds
    }
    # before that, the fastest and its closest rival go on whatever the rule says
    safe = {cells[1].label} if rounds < race.least_rounds else set[str]()
    stops = [
        Stopped(
            label=label,
            leader=leader.label,
            after_rounds=rounds,
            speed_ratio=ratio,
            confidence=(1 + level) / 2,
            error=race.error,
            comparisons=race.looks * rivals,
        )
        for label, ratio in ratios.items()
        if ratio.separated and ratio.high < 1 and label not in safe
    ]
    left = [cell for cell in cells[1:] if cell.label not in {stop.label for stop in stops}]
    margin = 1 + race.tie_margin
    tied = all(c.label in ratios and 1 / margin <= ratios[c.label].low <= ratios[c.label].high <= margin for c in left)
    return stops, tied


def _rows(cells: Sequence[Cell]) -> Iterator[dict[str, float]]:
    """Log step times by round: of layouts timed side by side, else of all rounds of the same number."""
    groups: dict[object, dict[str, Round]] = {}
    for cell in cells:
        for timed in cell.rounds:
            groups.setdefault(timed.key, {})[cell.label] = timed
    if any(len(group) > 1 for group in groups.values()):
        yield from (_centred(group) for group in groups.values())
        return
    apart: dict[int, dict[str, float]] = {}
    for cell in cells:
        for timed in cell.rounds:
            apart.setdefault(timed.record.spec.repeat, {})[cell.label] = float(np.log(median(timed.times)))
    yield from apart.values()


def _centred(group: dict[str, Round]) -> dict[str, float]:
    """Of each layout the median over cycles of its log time less the cycle's median over layouts."""
    times = {label: by_cycle(timed) for label, timed in group.items()}
    cycles = set.intersection(*(set(found) for found in times.values()))
    if not cycles:
        return {label: float(np.log(median(found.values()))) for label, found in times.items()}
    middle = {cycle: median(float(np.log(found[cycle])) for found in times.values()) for cycle in cycles}
    return {
        label: median(float(np.log(found[cycle])) - middle[cycle] for cycle in cycles) for label, found in times.items()
    }


def with_savings(plan: SweepPlan, verdict: RaceVerdict, cells: Sequence[Cell]) -> RaceVerdict:
    """The verdict with what the race saved and what it could have cost."""
    by_label = {cell.label: cell for cell in cells}
    raced = [by_label[label] for label in (*verdict.racing, *(s.label for s in verdict.stopped))]
    every = plan.settings.rounds * plan.settings.timed_steps
    saved_s = 0.0
    for cell in raced:
        if cell.rounds:
            warmup = fmean(len(r.timing.warmup_s) for r in cell.rounds)
            steps = every - _steps(cell) + warmup * (plan.settings.rounds - len(cell.rounds))
            saved_s += steps * median(t for r in cell.rounds for t in r.times)
    wrong = _wrong(verdict, by_label)
    savings = RaceSavings(
        measured_steps=sum(_steps(cell) for cell in raced),
        exhaustive_steps=every * len(raced),
        saved_s=saved_s,
        wrong_label=wrong[1] if wrong else None,
        wrong_ratio=wrong[0] if wrong else None,
    )
    return verdict.model_copy(update={"savings": savings})


def _steps(cell: Cell) -> int:
    return sum(len(r.steps) for r in cell.rounds)


def _wrong(verdict: RaceVerdict, cells: dict[str, Cell]) -> tuple[float, str] | None:
    """The largest upper bound at ``SURE_ERROR`` of a stopped layout's speed over the fastest's, and whose it is."""
    if not verdict.stopped or not verdict.racing or verdict.fit.pooled is None:
        return None
    best = cells[verdict.racing[0]]
    rivals = len(verdict.racing) + len(verdict.stopped) - 1
    level = look_level(SURE_ERROR, verdict.race.looks, rivals)
    return max(
        (speed_ratio(cells[stop.label], best, pooled=verdict.fit.pooled, level=level).high, stop.label)
        for stop in verdict.stopped
    )
