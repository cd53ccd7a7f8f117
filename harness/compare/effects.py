"""How step times changed between two sweeps that were run apart: effects, intervals, and p-values for many cells.

A round is one observation: its steps share the state of the machine (Kalibera and Jones 2013, "Rigorous benchmarking
in reasonable time"). Its value is the mean of the middle half of ln(step time). Every change has two parts:

- *relative*: a cell's change less the median cell's, which cancels what all cells of a round share, such as a busier
  machine. One test a cell.
- *common*: the change that more than half of the cells share, so that no single cell can carry it. One test a sweep,
  and the only one that a slower machine can set off.

The test is a moderated t test (``harness/compare/moderated.py``): after what a round's cells share is taken out, each
cell's scatter is estimated from all cells together. What the statistics are where nothing changed is drawn: normal
changes of that scatter, less their median as in the data. Each side has its own scatter, weighted by its own number of
rounds (Welch 1947), so that a side of few noisy rounds is not taken to be as quiet as the other. One cell that is found
to have changed does not shift the median that the others are held against: those are tested again without it. Rounds
are taken to be independent: a machine that drifts during a sweep raises more alarms.

A statistic's p is corrected for all tests with the step-down
of Westfall and Young (1993, algorithm 2.8), which is Holm's with the true joint distribution in place of Bonferroni's
bound: the probability of any false alarm, over all tests together, is alpha. Three quarters of it are spent on slower
cells and a quarter on faster ones, since a loss that is missed costs more than a gain.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from harness.compare.moderated import moderate

Array = npt.NDArray[np.float64]
Mask = npt.NDArray[np.bool_]

FEWEST_CELLS = 3  # with two cells the median cell lies between them: which of the two changed cannot be told
FEWEST_ROUNDS = 2  # on either side
FEWEST_DEGREES = 4  # of a cell's own scatter, as 3 and 3 rounds have; fewer do not show that it is the noisier one
DRAWS = 2000
_FEWER_DRAWS = 500  # tell an 80% quantile well enough
SLOWER_SHARE = 0.75  # of alpha; the rest is for faster
FOUND_IN = 0.8  # a loss counts as findable if it is found in this share of comparisons
_SEED = 0
_FAR = 1e6
_ROUNDING = 1e-9  # ln s; a spread below it is the rounding of floats


@dataclass(frozen=True)
class Effects:
    """After minus before, ln of seconds, one value a cell (NaN where it was not tested), with its standard error.

    ``p`` is corrected for all tests of the comparison together. ``findable``: the least slow-down of that cell alone
    that the test would find in ``FOUND_IN`` of all comparisons.
    """

    value: Array
    error: Array
    degrees: Array
    p: Array
    findable: Array

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


def round_value(times: Sequence[float] | Array) -> Array:
    """Mean of the middle half of ln(time), over the last axis: times of one round, or of rounds of as many steps.

    Outliers move it no more than a median, and it is the quieter.
    """
    ordered = np.sort(np.log(times), axis=-1)
    steps = ordered.shape[-1]
    return np.asarray(ordered[..., steps // 4 : steps - steps // 4].mean(axis=-1))


def round_values(rounds: Sequence[Mapping[str, Sequence[float]]], cells: Sequence[str]) -> Array:
    """Values of step times (s), shape (rounds, cells), NaN where a cell was not timed in a round."""
    values = np.full((len(rounds), len(cells)), np.nan)
    for row, timed in enumerate(rounds):
        for column, cell in enumerate(cells):
            if cell in timed:
                values[row, column] = round_value(timed[cell])
    return values


def changes(before: Array, after: Array, alpha: float) -> Changes:
    """Effects and p-values from the values (rounds, cells) of two sweeps; cells with too few rounds get NaN.

    ``alpha``, the false-alarm rate of all tests together, decides what is findable.
    """
    core = core_cells(before, after)
    found = _changes(before, after, alpha, core)
    if found.relative is None:
        return found
    farthest = int(np.nanargmin(np.where(core, found.relative.p, np.inf)))
    if found.relative.p[farthest] > alpha or core.sum() <= FEWEST_CELLS:
        return found
    dropped = np.arange(len(core)) == farthest
    again = _changes(before, after, alpha, core & ~dropped)
    if again.relative is None:
        return found
    first, second = found.relative, again.relative
    fields = ("value", "error", "degrees", "p")
    mixed = {name: np.where(dropped, getattr(first, name), getattr(second, name)) for name in fields}
    return replace(again, relative=replace(first, **mixed))


def _changes(before: Array, after: Array, alpha: float, core: Mask) -> Changes:
    """``changes`` with the cells that the others are held against."""
    kept = [side[~np.isnan(side[:, core]).any(axis=1)] for side in (before, after)]
    if core.sum() < FEWEST_CELLS or not enough(*map(len, kept)):
        absolute, _ = _tested(_Family(scatter(before, after)), alpha)
        return Changes(absolute, None, None)
    means = [side[:, core].mean(axis=1, keepdims=True) for side in kept]
    relative = scatter(*(side - mean for side, mean in zip(kept, means, strict=True)))
    family, shared = _Family(_own_scatter(relative, core), core), scatter(*means)
    against, common = _tested(family, alpha, shared)
    return Changes(welch(before, after), against, common)


def enough(before: Array | int, after: Array | int) -> Any:
    """Whether so many rounds before and after tell how a cell scatters; by element."""
    return (np.minimum(before, after) >= FEWEST_ROUNDS) & (np.add(before, after) - 2 >= FEWEST_DEGREES)


def core_cells(before: Array, after: Array) -> Mask:
    """The cells that the others are held against: those with the most rounds on both sides, three at least."""
    rounds = np.minimum(*((~np.isnan(side)).sum(axis=0) for side in (before, after)))
    third = np.sort(rounds)[::-1][min(FEWEST_CELLS, len(rounds)) - 1]
    return np.asarray(rounds >= third)


class Scatter(NamedTuple):
    """By cell: change (NaN: too few rounds), the change's variance (its standard error squared), degrees of freedom."""

    change: Array
    variance: Array
    degrees: Array


def scatter(before: Array, after: Array) -> Scatter:
    """Change and scatter of each cell, each side with a variance of its own.

    The degrees of freedom are Satterthwaite's (1946), from the sides' variances over all cells, since those of one cell
    hardly tell which side is the noisier. Sides of as many rounds that scatter alike have those of a pooled test.
    """
    counts = [(~np.isnan(side)).sum(axis=0).astype(np.float64) for side in (before, after)]
    tested = enough(*counts)
    means, parts, below = [], [], np.zeros(len(tested))
    for side, count in zip((before, after), counts, strict=True):
        mean = np.nansum(side, axis=0) / np.maximum(count, 1)
        squares = np.nansum((side - mean) ** 2, axis=0)
        degrees = np.maximum(count - 1, 1)
        typical = max(float(squares[tested].sum() / max(degrees[tested].sum(), 1)), _ROUNDING**2)
        means.append(mean)
        parts.append((squares / degrees / np.maximum(count, 1), typical / np.maximum(count, 1)))
        below += parts[-1][1] ** 2 / degrees
    change = means[1] - means[0]
    change = np.where(tested, np.where(np.abs(change) < _ROUNDING, 0.0, change), np.nan)
    own, typical_sum = (sum(part[i] for part in parts) for i in (0, 1))
    return Scatter(
        change,
        np.where(tested, np.maximum(own, _ROUNDING**2), np.nan),
        np.where(tested, np.square(typical_sum) / below, np.nan),
    )


def agreed(changes: Array) -> Array:
    """What more than half of the cells (last axis) changed by at least, in one direction; 0 where there is no such.

    The median of an odd number of cells; of an even number that of the two middle ones which is nearer to no change.
    """
    ordered, cells = np.sort(changes, axis=-1), changes.shape[-1]
    low, high = ordered[..., (cells - 1) // 2], ordered[..., cells // 2]
    return np.asarray(np.maximum(low, 0) + np.minimum(high, 0))


def _own_scatter(relative: Scatter, core: Mask) -> Scatter:
    """A cell's own scatter, moderated, from that about the mean of the core cells, which it has a share of.

    Where cells scatter alike a core cell's variance about the mean of C is (1 - 1/C) of its own, another's (1 + 1/C).
    The mean also costs a degree of freedom of every C, and no prior can count for more than there were in all.
    """
    share = 1 / core.sum()
    variance = relative.variance / np.where(core, 1 - share, 1 + share)
    tested = ~np.isnan(variance)
    moderated, degrees = np.full_like(variance, np.nan), np.full_like(variance, np.nan)
    moderated[tested], degrees[tested] = moderate(variance[tested], relative.degrees[tested])
    most = (1 - share) * relative.degrees[tested].sum()
    return relative._replace(variance=moderated, degrees=np.minimum(degrees, most))


@dataclass(frozen=True)
class _Family:
    """Changes of the cells; with ``core`` they are tested less the median of the core cells' changes."""

    found: Scatter
    core: Mask | None = None

    def centred(self, changes: Array) -> Array:
        """Changes (..., cells) less what they are held against."""
        if self.core is None:
            return changes
        return np.asarray(changes - np.median(changes[..., self.core], axis=-1, keepdims=True))


def _tested(family: _Family, alpha: float, shared: Scatter | None = None) -> tuple[Effects, Effects | None]:
    """Effects of the cells and, with ``shared``, the mean core cell's change, what they have in common.

    p is corrected over all of them together.
    """
    rng, found = np.random.default_rng(_SEED), family.found
    share = alpha / (len(found.change) + (shared is not None))
    noise = _noise(found, rng)
    cells = _Drawn(family.centred(found.change), family.centred(noise), found.degrees, share, rng)
    drawn = [cells]
    if shared is not None:
        # a cell's change is the mean cell's and its own part about that
        own = noise[:, family.core]
        by_chance = _noise(shared, rng) + own - own.mean(axis=1, keepdims=True)
        value = agreed(found.change[family.core] + shared.change)
        error = np.sqrt((np.median(by_chance, axis=1) ** 2).mean(keepdims=True))
        drawn.append(_Drawn(value[None], agreed(by_chance)[:, None], shared.degrees, share, rng, error))
    statistics = np.concatenate([one.statistics for one in drawn], axis=1)
    p = step_down(statistics, counted=~np.isnan(statistics[0]))
    limit = float(np.quantile(np.nanmax(statistics[1:], axis=1), 1 - alpha))
    count = len(found.change)
    effects = cells.effects(p[:count], _findable(family, noise, cells, limit))
    return effects, drawn[1].effects(p[count:], np.array([np.nan])) if shared is not None else None


def _noise(found: Scatter, rng: np.random.Generator) -> Array:
    """Changes by chance if nothing had changed: normal, ``DRAWS`` times."""
    return np.asarray(rng.standard_normal((DRAWS, len(found.change))) * np.sqrt(found.variance))


class _Drawn:
    """Effects, observed and by chance (draws, effects), and the statistics of both, shape (1 + draws, effects).

    A statistic is t over what t would exceed by chance in ``share`` of comparisons; so tests of unequal degrees of
    freedom can stand beside each other, and the two directions have their parts of ``share``.
    """

    def __init__(
        self,
        value: Array,
        by_chance: Array,
        degrees: Array,
        share: float,
        rng: np.random.Generator,
        error: Array | None = None,
    ) -> None:
        from scipy.special import stdtrit

        self.value, self.degrees = value, degrees
        self.error = np.sqrt((by_chance**2).mean(axis=0)) if error is None else error
        some = np.where(np.isnan(degrees), 1.0, degrees)
        self.misjudged = np.sqrt(rng.chisquare(some, by_chance.shape) / some)  # error as estimated over what it is
        self.critical = -stdtrit(degrees, share * SLOWER_SHARE)
        faster = -stdtrit(degrees, share * (1 - SLOWER_SHARE))
        t = np.concatenate([value[None], by_chance / self.misjudged]) / self.error
        self.statistics = np.maximum(t / self.critical, -t / faster)

    def effects(self, p: Array, findable: Array) -> Effects:
        return Effects(self.value, self.error, self.degrees, p, findable)


def _findable(family: _Family, noise: Array, drawn: _Drawn, limit: float) -> Array:
    """The slow-down of each cell by itself whose statistic is at least ``limit`` in ``FOUND_IN`` of the draws."""
    noise, misjudged = noise[:_FEWER_DRAWS], drawn.misjudged[:_FEWER_DRAWS]
    needed = limit * drawn.critical * drawn.error * misjudged
    found = np.empty_like(drawn.value)
    for cell in range(len(found)):
        slowed = noise.copy()
        slowed[:, cell] = _FAR  # so slow that it is none of the middle cells
        reference = slowed[:, cell] - family.centred(slowed)[:, cell]
        found[cell] = np.quantile(needed[:, cell] - noise[:, cell] + reference, FOUND_IN)
    return found


def step_down(statistics: Array, counted: Mask) -> Array:
    """P-values of statistics (1 + draws, tests), the first row observed, corrected over all ``counted`` tests."""
    size = np.where(counted, np.nan_to_num(statistics, nan=-np.inf), -np.inf)
    order = np.argsort(-size[0], kind="stable")
    largest = np.maximum.accumulate(size[:, order][:, ::-1], axis=1)[:, ::-1]
    p = np.maximum.accumulate((largest >= largest[0]).mean(axis=0))
    adjusted = np.empty_like(p)
    adjusted[order] = p
    return np.where(counted, adjusted, 1.0)


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
    return Effects(value, error, degrees, p=np.ones_like(value), findable=np.full_like(value, np.nan))
