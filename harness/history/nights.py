"""Trends over nights: the level of every cell, where it changed, and which layout stopped beating which."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from itertools import pairwise
from statistics import fmean, median
from typing import TYPE_CHECKING

import numpy as np

from harness.base import Frozen
from harness.compare.change import Effect
from harness.compare.effects import FEWEST_CELLS, welch
from harness.errors import StoreError, UnknownNameError
from harness.history.trend import ALPHA, FEWEST_NIGHTS, change_points

if TYPE_CHECKING:
    import pyarrow as pa

ALL_CELLS = "all cells together"
Series = Mapping[int, float]  # night -> ln of seconds a step
Levels = Sequence[Sequence[int]]  # the nights of each level


class Night(Frozen):
    """One sweep. Nights of another ``ground`` (GPU, driver, torch) begin a new stretch, in which levels begin anew."""

    sweep: str
    created_at: datetime
    ground: str | None
    commit: str | None
    torch: str | None


class LevelChange(Frozen):
    """A change of level; ``night`` is the first of the new one, ``speed`` the new level over the one before it.

    ``label`` is a cell, whose change is one against the other cells, or ``ALL_CELLS``.
    """

    label: str
    night: int
    speed: Effect


class Overtaking(Frozen):
    """``leader`` was faster than ``other`` until ``night``, since then no longer; speed of leader over other."""

    leader: str
    other: str
    night: int
    before: Effect
    after: Effect


class CellTrend(Frozen):
    """One cell over all nights: None where it was not measured.

    ``relative_speed``: speed over that of the cell's mean night of the stretch, after what all cells share is taken
    out; None with under three cells.
    """

    label: str
    tokens_per_s: tuple[float | None, ...]
    relative_speed: tuple[float | None, ...]


class History(Frozen):
    """Nights of equal work, oldest first. ``left_out``: how many sweeps of the folder did other work."""

    work: str
    nights: tuple[Night, ...]
    cells: tuple[CellTrend, ...]
    changes: tuple[LevelChange, ...]
    overtakings: tuple[Overtaking, ...]
    left_out: int = 0


def history(cells: pa.Table, prefix: str = "", labels: Sequence[str] = ()) -> History:
    """Trends of the sweeps whose names begin with ``prefix``, of the work that most of them did.

    Changes of level are searched in each cell against the others and in all cells together (with under three cells in
    each by the clock), with a false-alarm rate of 5% over all of them. ``labels``: show these cells only; the search is
    the same.

    Raises:
        StoreError: no such sweep.
        UnknownNameError: no cell of such a label.
    """
    wanted = (
        "sweep",
        "created_at",
        "work",
        "ground",
        "commit",
        "torch",
        "cell",
        "outcome",
        "level_step_time_s",
        "tokens_per_s",
    )
    rows = [row for row in cells.select(list(wanted)).to_pylist() if row["sweep"].startswith(prefix)]
    if not rows:
        raise StoreError(f"no sweep whose name begins with {prefix!r}; 'meshsweep history' without a name takes all")
    by_sweep = {row["sweep"]: row for row in rows if row["created_at"] is not None}
    works = [row["work"] for row in by_sweep.values()]
    work = max(dict.fromkeys(works), key=works.count)
    heads = sorted((h for h in by_sweep.values() if h["work"] == work), key=lambda h: (h["created_at"], h["sweep"]))
    nights = tuple(Night(**{name: head[name] for name in Night.model_fields}) for head in heads)
    place = {night.sweep: number for number, night in enumerate(nights)}
    measured = [
        r for r in rows if r["sweep"] in place and r["outcome"] == "measured" and r["level_step_time_s"] is not None
    ]
    times: dict[str, dict[int, float]] = {}
    speeds: dict[str, dict[int, float]] = {}
    for row in measured:
        times.setdefault(row["cell"], {})[place[row["sweep"]]] = float(np.log(row["level_step_time_s"]))
        speeds.setdefault(row["cell"], {})[place[row["sweep"]]] = row["tokens_per_s"]
    for label in labels:
        if label not in times:
            raise UnknownNameError("cell", label, times)
    return _history(work, nights, times, speeds, labels or tuple(times), len(by_sweep) - len(nights))


def _history(
    work: str,
    nights: tuple[Night, ...],
    times: Mapping[str, Series],
    speeds: Mapping[str, Series],
    labels: Sequence[str],
    left_out: int,
) -> History:
    relative: dict[str, dict[int, float]] = {label: {} for label in times}
    changes: list[LevelChange] = []
    overtakings: list[Overtaking] = []
    for stretch in stretches(nights):
        here = {label: {n: series[n] for n in stretch if n in series} for label, series in times.items()}
        here = {label: series for label, series in here.items() if series}
        searched, levels = _levels(here)
        for label in here if ALL_CELLS in searched else ():
            middle = fmean(searched[label].values())
            relative[label].update({n: float(np.exp(middle - y)) for n, y in searched[label].items()})
        for label, parts in levels.items():
            changes += _changes(label, searched[label], parts)
            if label != ALL_CELLS:
                overtakings += _overtakings(label, here, parts)
    shown = [
        CellTrend(
            label=label,
            tokens_per_s=tuple(speeds[label].get(n) for n in range(len(nights))),
            relative_speed=tuple(relative[label].get(n) for n in range(len(nights))),
        )
        for label in labels
    ]
    kept = (*labels, ALL_CELLS)
    return History(
        work=work,
        nights=nights,
        cells=tuple(shown),
        changes=tuple(sorted((c for c in changes if c.label in kept), key=lambda c: (c.night, c.label))),
        overtakings=tuple(o for o in _last_of_each_pair(overtakings) if o.leader in labels or o.other in labels),
        left_out=left_out,
    )


def stretches(nights: Sequence[Night]) -> list[range]:
    """Runs of nights of one ground."""
    starts = [n for n in range(len(nights)) if n == 0 or nights[n].ground != nights[n - 1].ground]
    return [range(a, b) for a, b in zip(starts, [*starts[1:], len(nights)], strict=True)]


def _levels(times: Mapping[str, Series]) -> tuple[dict[str, Series], dict[str, Levels]]:
    """The series that are searched, of each cell against the others and of all together, and the levels of each.

    A cell that changed would pull at what the others are held against, so cells are taken one by one, the greatest
    change first, each is centred on its own levels, and the rest is searched anew. With under three cells a night the
    series are those of the clock.
    """
    levels: dict[str, Levels] = {label: [sorted(series)] for label, series in times.items()}
    alpha = ALPHA / (len(times) + 1)
    while True:
        shared = _shared(times, levels)
        if shared is None:
            return dict(times), {label: _search(series, alpha) for label, series in times.items()}
        against = {label: {n: y - shared[n] for n, y in series.items()} for label, series in times.items()}
        found = {label: _search(against[label], alpha) for label in times if len(levels[label]) == 1}
        greatest = max(found, key=lambda label: _greatest_change(against[label], found[label]), default=None)
        if greatest is None or len(found[greatest]) == 1:
            return {**against, ALL_CELLS: shared}, {**levels, ALL_CELLS: _search(shared, alpha)}
        levels[greatest] = found[greatest]


def _shared(times: Mapping[str, Series], levels: Mapping[str, Levels]) -> dict[int, float] | None:
    """By night the median over cells of ln(time) less the cell's level; None if a night has under three cells."""
    by_night: dict[int, list[float]] = {}
    for label, series in times.items():
        for nights in levels[label]:
            level = fmean(series[night] for night in nights)
            for night in nights:
                by_night.setdefault(night, []).append(series[night] - level)
    if not by_night or min(map(len, by_night.values())) < FEWEST_CELLS:
        return None
    return {night: median(found) for night, found in sorted(by_night.items())}


def _search(series: Series, alpha: float) -> Levels:
    order = sorted(series)
    cuts = [0, *change_points([series[n] for n in order], alpha), len(order)]
    return [order[a:b] for a, b in pairwise(cuts)]


def _greatest_change(series: Series, levels: Levels) -> float:
    means = [fmean(series[n] for n in nights) for nights in levels]
    return max((abs(b - a) for a, b in pairwise(means)), default=0.0)


def _changes(label: str, series: Series, levels: Levels) -> list[LevelChange]:
    return [
        LevelChange(label=label, night=after[0], speed=_speed([series[n] for n in before], [series[n] for n in after]))
        for before, after in pairwise(levels)
    ]


def _overtakings(label: str, times: Mapping[str, Series], levels: Levels) -> list[Overtaking]:
    """Pairs with this cell whose order was certain before one of its changes, and is not the same after it."""
    found = []
    for before, after in pairwise(levels):
        for other, series in times.items():
            parts = [[times[label][n] - series[n] for n in nights if n in series] for nights in (before, after)]
            if other == label or min(map(len, parts)) < FEWEST_NIGHTS:
                continue
            then, now = (_speed([0.0] * len(part), part) for part in parts)  # speed of this cell over the other's
            if then.low > 1 and not now.low > 1:
                found.append(Overtaking(leader=label, other=other, night=after[0], before=then, after=now))
            if then.high < 1 and not now.high < 1:
                turned = [_inverse(effect) for effect in (then, now)]
                found.append(Overtaking(leader=other, other=label, night=after[0], before=turned[0], after=turned[1]))
    return found


def _last_of_each_pair(found: Sequence[Overtaking]) -> list[Overtaking]:
    """A pair whose order changed more than once, or in whose cells both changed, is told of once: its last."""
    last: dict[frozenset[str], Overtaking] = {}
    for one in sorted(found, key=lambda o: o.night):
        last[frozenset((one.leader, one.other))] = one
    return sorted(last.values(), key=lambda o: (-o.night, o.leader, o.other))


def _speed(before: Sequence[float], after: Sequence[float]) -> Effect:
    """Speed after over before from ln of times, with Welch's 95% interval over nights."""
    effect = welch(np.array(before)[:, None], np.array(after)[:, None])
    value, half = float(effect.value[0]), float(effect.half_width()[0])
    ratio, low, high = (float(np.exp(x)) for x in (-value, -value - half, -value + half))
    return Effect(ratio=ratio, low=low, high=high)


def _inverse(effect: Effect) -> Effect:
    return Effect(ratio=1 / effect.ratio, low=1 / effect.high, high=1 / effect.low)
