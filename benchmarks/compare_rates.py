"""How often ``meshsweep compare`` errs: false alarms where nothing changed, and how often a planted loss is found.

``python -m benchmarks.compare_rates [--splits N]`` prints a Markdown table, that of docs/architecture.md. Recorded
rounds are those of ``tests/unit/compare/real`` (see ``test_real_samples.py``), split at random into two sweeps;
simulated ones are lognormal. All seeds are fixed. 1,000 splits of every condition take ten minutes.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from math import sqrt
from typing import NamedTuple

import numpy as np

from harness.compare.change import Change, Rule, judge_values
from harness.compare.effects import Array
from tests.unit.compare.test_real_samples import recorded, slowed

Sides = tuple[Array, Array]
Draw = Callable[[np.random.Generator], Sides]
CELLS = 6


class Condition(NamedTuple):
    """``loss``: what one cell, drawn anew each time, is slowed by; None where nothing changed."""

    name: str
    rounds: str
    draw: Draw
    loss: float | None = None


class Rate(NamedTuple):
    """In how many of ``splits``: any cell slower or faster, or, with a planted loss, that cell slower."""

    condition: Condition
    hits: int
    splits: int

    @property
    def error(self) -> float:
        """Standard error of the share, binomial."""
        share = self.hits / self.splits
        return sqrt(share * (1 - share) / self.splits)


def split(name: str, rounds: int) -> Draw:
    """Two sweeps of so many rounds, none in both, of those recorded in a file."""
    values = recorded(name)

    def draw(rng: np.random.Generator) -> Sides:
        order = rng.permutation(len(values))
        return values[order[:rounds]], values[order[rounds : 2 * rounds]]

    return draw


def simulated(
    rounds: Sequence[int] = (5, 5),
    scatter: Sequence[float] = (0.02, 0.02),
    odd: float = 1.0,
    drift: float = 0.0,
    day: float = 0.0,
    cells: int = CELLS,
) -> Draw:
    """Lognormal rounds: ``scatter`` of each cell on either side, and 5% that a round's cells share.

    ``odd``: how many times as much the first cell scatters. ``drift``: the machine's step from round to round, a random
    walk in place of those 5%. ``day``: what all rounds of a sweep share.
    """

    def draw(rng: np.random.Generator) -> Sides:
        own = np.ones(cells)
        own[0] = odd
        before, after = (
            size * own * rng.standard_normal((count, cells))
            + (_walk(rng, count, drift) if drift else 0.05 * rng.standard_normal((count, 1)))
            + day * rng.standard_normal()
            for count, size in zip(rounds, scatter, strict=True)
        )
        return before, after

    return draw


def _walk(rng: np.random.Generator, rounds: int, step: float) -> Array:
    return np.asarray(step * rng.standard_normal((rounds, 1)).cumsum(axis=0))


QUIET, BUSY, LONG = "quiet.csv", "busy.csv", "long.csv"
OF_100 = "recorded, 100 steps a round"
CONDITIONS = (
    *(Condition("recorded, nothing else running", f"{n} and {n}", split(QUIET, n)) for n in (3, 5, 7)),
    *(Condition("recorded, busy machine", f"{n} and {n}", split(BUSY, n)) for n in (5, 10)),
    *(Condition(OF_100, f"{n} and {n}", split(LONG, n)) for n in (5, 10)),
    *(Condition("simulated, 2% of scatter", f"{n} and {n}", simulated((n, n))) for n in (3, 5, 10)),
    *(Condition("one of six cells scatters 3 times as much", f"{n} and {n}", simulated((n, n), odd=3)) for n in (3, 5)),
    Condition("one side scatters 3 times as much", "5 and 5", simulated(scatter=(0.02, 0.06))),
    Condition("the side of few rounds scatters 3 times as much", "3 and 10", simulated((3, 10), (0.06, 0.02))),
    Condition("two cells only", "5 and 5", simulated(cells=2)),
    Condition("40 cells", "5 and 5", simulated(cells=40)),
    Condition("the machine drifts by 3% a round at random", "5 and 5", simulated(drift=0.03)),
    Condition("the machine differs by 5% from day to day", "5 and 5", simulated(day=0.05)),
    *(Condition("recorded, nothing else running", f"{n} and {n}", split(QUIET, n), 0.10) for n in (3, 5)),
    *(Condition("recorded, nothing else running", f"{n} and {n}", split(QUIET, n), 0.05) for n in (5, 7)),
    *(Condition(OF_100, f"{n} and {n}", split(LONG, n), loss) for n, loss in ((5, 0.10), (5, 0.05), (10, 0.05))),
    Condition("simulated, 2% of scatter", "5 and 5", simulated(), 0.10),
    Condition("simulated, 2% of scatter", "10 and 10", simulated((10, 10)), 0.05),
)


def measure(condition: Condition, splits: int, seed: int = 0) -> Rate:
    """The rate over ``splits`` draws."""
    rng = np.random.default_rng(seed)
    hits = 0
    for _ in range(splits):
        before, after = condition.draw(rng)
        slow = int(rng.integers(before.shape[1]))
        if condition.loss is not None:
            after = slowed(after, slow, 1 + condition.loss)
        cells, _common = judge_values(before, after, Rule())
        changed = [cell.change in (Change.SLOWER, Change.FASTER) for cell in cells]
        hits += any(changed) if condition.loss is None else cells[slow].change is Change.SLOWER
    return Rate(condition, hits, splits)


def line(rate: Rate) -> str:
    """A row of the table."""
    condition = rate.condition
    what = "any alarm" if condition.loss is None else f"a loss of {condition.loss:.0%} found"
    return f"| {condition.name} | {condition.rounds} | {what} | {rate.hits / rate.splits:.1%} ± {rate.error:.1%} |"


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--splits", type=int, default=1000, help="comparisons of every condition")
    splits = parser.parse_args(arguments).splits
    print("| rounds of | rounds | in comparisons | share |\n|---|---|---|---|")
    for condition in CONDITIONS:
        print(line(measure(condition, splits)), flush=True)


if __name__ == "__main__":
    main()
