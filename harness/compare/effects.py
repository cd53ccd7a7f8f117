"""How step times changed between two sweeps that were run apart: effects, intervals, and p-values for many cells.

A round is one observation: its steps share the state of the machine (Kalibera and Jones 2013, "Rigorous benchmarking
in reasonable time"). Its value is the mean of the middle half of ln(step time). Every change has two parts:

- *relative*: a cell's change less the median cell's, which cancels what all cells of a round share, such as a busier
  machine. One test a cell.
- *common*: the mean change of all cells. One test a sweep, and the only one that a slower machine can set off.

The tests are one permutation test: if nothing changed, which rounds belong to which sweep is arbitrary, so the largest
of all statistics is held against its distribution over other assignments. With the step-down of Westfall and Young
(1993, algorithm 2.8), which is Holm's with the true joint distribution in place of Bonferroni's bound, the probability
of any false alarm, over all cells together, is at most alpha, whatever the distribution of step times.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from math import comb

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float64]
Mask = npt.NDArray[np.bool_]

FEWEST_CELLS = 3  # with two cells the median cell lies between them: which of the two changed cannot be told
ASSIGNMENTS = 2000  # all of them are gone through where there are no more
_SEED = 0
_ROUNDING = 1e-9  # ln s; a spread below it is the rounding of floats


@dataclass(frozen=True)
class Effects:
    """After minus before, ln of seconds, one value a cell (NaN where it was not tested), with its standard error.

    ``p`` is corrected for all tests of the comparison together.
    """

    value: Array
    error: Array
    degrees: Array
    p: Array

    def half_width(self, level: float = 0.95) -> Array:
        """Half of the interval that holds each effect by itself with this confidence: Student's t on rounds."""
        from scipy.special import stdtrit  # here, since importing it takes longer than a command without intervals

        return np.asarray(stdtrit(self.degrees, (1 + level) / 2) * self.error)


@dataclass(frozen=True)
class Changes:
    """``absolute`` is the clock's and carries no p; ``relative`` is None where cells cannot be told apart.

    With fewer than three cells the tests are those of the absolute effects, which then carry p.
    """

    absolute: Effects
    relative: Effects | None
    common: Effects | None


def round_value(times: Sequence[float]) -> float:
    """Mean of the middle half of ln(time); outliers move it no more than a median, and it is the quieter."""
    ordered = np.sort(np.log(times))
    quarter = len(ordered) // 4
    return float(ordered[quarter : len(ordered) - quarter].mean())


def round_values(rounds: Sequence[Mapping[str, Sequence[float]]], cells: Sequence[str]) -> Array:
    """Values of step times (s), shape (rounds, cells), NaN where a cell was not timed in a round."""
    values = np.full((len(rounds), len(cells)), np.nan)
    for row, timed in enumerate(rounds):
        for column, cell in enumerate(cells):
            if cell in timed:
                values[row, column] = round_value(timed[cell])
    return values


def changes(before: Array, after: Array) -> Changes:
    """Effects and p-values from the values (rounds, cells) of two sweeps; each cell has two rounds on each side."""
    own = welch(before, after)
    core = core_cells(before, after)
    kept = [side[~np.isnan(side[:, core]).any(axis=1)] for side in (before, after)]
    if core.sum() < FEWEST_CELLS or min(map(len, kept)) < 2:
        statistics, counted = _statistics(before, after, [(np.concatenate([before, after]), None)])
        p = step_down(statistics, counted)
        return Changes(Effects(own.value, own.error, own.degrees, p), None, None)
    whole = np.concatenate(kept)
    mean = whole[:, core].mean(axis=1, keepdims=True)
    statistics, counted = _statistics(kept[0], kept[1], [(whole - mean, core), (mean, None)])
    p = step_down(statistics, counted)
    split = len(kept[0])
    against = welch(*np.split(whole - mean, [split]))
    relative = Effects(against.value - np.median(against.value[core]), against.error, against.degrees, p[:-1])
    shared = welch(*np.split(mean, [split]))
    return Changes(own, relative, Effects(shared.value, shared.error, shared.degrees, p[-1:]))


def core_cells(before: Array, after: Array) -> Mask:
    """The cells that the others are held against: those with the most rounds on both sides, three at least."""
    rounds = np.minimum(*((~np.isnan(side)).sum(axis=0) for side in (before, after)))
    third = np.sort(rounds)[::-1][min(FEWEST_CELLS, len(rounds)) - 1]
    return np.asarray(rounds >= third)


def assignments(before: int, after: int) -> Mask:
    """Which rounds could have been the first sweep's, shape (assignments, rounds); the first row is the truth."""
    total = before + after
    if comb(total, before) <= ASSIGNMENTS:
        found = np.zeros((comb(total, before), total), dtype=bool)
        for row, chosen in enumerate(combinations(range(total), before)):
            found[row, list(chosen)] = True
        return found
    found = np.argsort(np.random.default_rng(_SEED).random((ASSIGNMENTS, total)), axis=1) < before
    found[0] = np.arange(total) < before
    return found


def smallest_p(before: int, after: int) -> float:
    """The smallest p-value that so many rounds can give; a swap of equally many gives the same statistic again."""
    return max((1 + (before == after)) / comb(before + after, before), 1 / ASSIGNMENTS)


def step_down(statistics: Array, counted: Mask) -> Array:
    """P-values of |statistics| (assignments, tests), the first row observed, corrected over all ``counted`` tests."""
    size = np.where(counted, np.nan_to_num(np.abs(statistics)), 0.0)
    order = np.argsort(-size[0], kind="stable")
    largest = np.maximum.accumulate(size[:, order][:, ::-1], axis=1)[:, ::-1]
    p = np.maximum.accumulate((largest >= largest[0] * (1 - 1e-9)).mean(axis=0))
    adjusted = np.empty_like(p)
    adjusted[order] = p
    return np.where(counted, adjusted, 1.0)


def _statistics(before: Array, after: Array, parts: Sequence[tuple[Array, Mask | None]]) -> tuple[Array, Mask]:
    """Statistics (assignments, tests) of all parts beside each other, and which of them vary at all."""
    first = assignments(len(before), len(after))
    found = [_statistic(values, first, core) for values, core in parts]
    together = np.concatenate(found, axis=1)
    return together, np.abs(np.nan_to_num(together)).max(axis=0) > 0


def _statistic(values: Array, first: Mask, core: Mask | None) -> Array:
    """Difference of means over its error, (assignments, cells). With ``core``: less the median of the core cells.

    The variance is halfway between the cell's own and the mean of all cells: the own one alone is hardly known from few
    rounds (Tusher et al. 2001 and Smyth 2004 moderate it likewise); any choice keeps the test's level.
    """
    present = ~np.isnan(values)
    known = np.nan_to_num(values - np.nanmean(values, axis=0))
    sides = []
    for chosen in (first, ~first):
        mask = chosen.astype(np.float64)
        count = mask @ present
        with np.errstate(divide="ignore", invalid="ignore"):
            mean = (mask @ known) / count
            squares = (mask @ known**2) - count * mean**2
        sides.append((count, mean, np.maximum(squares, 0.0)))
    (n, mean, squares), (m, other, others) = sides
    change = other - mean
    if core is not None:
        change = change - np.median(change[:, core], axis=1, keepdims=True)
    with np.errstate(divide="ignore", invalid="ignore"):
        variance = (squares + others) / (n + m - 2)
        moderated = (variance + np.nanmean(variance, axis=1, keepdims=True)) / 2
        error = np.sqrt(moderated * (1 / n + 1 / m))
    change = np.where(np.abs(change) < _ROUNDING, 0.0, change)
    return np.asarray(change / np.maximum(error, _ROUNDING))


def welch(before: Array, after: Array) -> Effects:
    """Difference of means with Welch's error and degrees of freedom (Welch 1947); p is not his."""
    value, error, degrees = (np.full(before.shape[1], np.nan) for _ in range(3))
    for column in range(before.shape[1]):
        sides = [side[~np.isnan(side[:, column]), column] for side in (before, after)]
        if min(map(len, sides)) < 2:
            continue
        parts = [float(side.var(ddof=1)) / len(side) for side in sides]
        below = sum(part**2 / (len(side) - 1) for part, side in zip(parts, sides, strict=True))
        value[column] = sides[1].mean() - sides[0].mean()
        error[column] = sum(parts) ** 0.5
        degrees[column] = sum(parts) ** 2 / below if below > 0 else min(map(len, sides)) - 1
    return Effects(value, error, degrees, np.ones_like(value))
