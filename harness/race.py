"""When a layout is plainly slower than the fastest: the rule of a race, on numbers alone.

All layouts run a few rounds; after each look, those that are slower beyond doubt stop and the others go on (racing:
Maron and Moore 1994, "Hoeffding races"; successive elimination: Even-Dar, Mannor and Mansour 2006). Rounds are the
blocks of a randomised block design, as in F-race (Birattari et al. 2002): the logarithm of a layout's median step time
in a round is the layout's effect, plus the round's, plus an error whose size is pooled over layouts, since the two or
three rounds of a single pair say little about it (with 2 rounds a pair has 1 degree of freedom, 6 layouts together
have 5).

A layout stops at a look if its time over the leader's exceeds 1 at one-sided confidence 1 - error / (looks x rivals).
The fastest layout can be stopped only by a comparison that it is part of; there are ``rivals`` of those at each of
``looks`` looks, so by Bonferroni's inequality it is stopped with probability ``error`` at most, given errors that are
normal and alike. Since they need not be alike, a pair that scatters more than the pooled error says is judged by its
own scatter; six equal layouts, of which the fastest scatters 3 times as much as the others, then lose it in 8% of
simulated races instead of 3%.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from harness.base import Frozen
from harness.stats import Pooled

Row = Mapping[str, float]


class BlockFit(Frozen):
    """``effects``: each layout's log time less the mean of all; ``pooled`` is None without a degree of freedom."""

    effects: dict[str, float]
    pooled: Pooled | None


def fit_blocks(rows: Sequence[Row]) -> BlockFit:
    """Least squares of value = layout's effect + round's effect (Searle 1971, chapter 7).

    ``rows`` is one mapping a round from layout to the logarithm of its step time; not every layout need be in every
    round. The pooled error is the root of the residual sum of squares over its degrees of freedom, values less the
    rank of the design.
    """
    names = sorted({name for row in rows for name in row})
    cells = [(at, name) for at, row in enumerate(rows) for name in row]
    if not cells:
        return BlockFit(effects={}, pooled=None)
    design = np.zeros((len(cells), len(rows) + len(names)))
    for line, (at, name) in enumerate(cells):
        design[line, at] = design[line, len(rows) + names.index(name)] = 1.0
    values = np.array([rows[at][name] for at, name in cells])
    solution, _, rank, _ = np.linalg.lstsq(design, values, rcond=None)
    found = solution[len(rows) :] - solution[len(rows) :].mean()
    effects = {name: float(effect) for name, effect in zip(names, found, strict=True)}
    degrees = len(values) - int(rank)
    if degrees < 1:
        return BlockFit(effects=effects, pooled=None)
    squares = float(np.square(values - design @ solution).sum())
    return BlockFit(effects=effects, pooled=Pooled(sd=(squares / degrees) ** 0.5, degrees=degrees))


def look_level(error: float, looks: int, rivals: int) -> float:
    """Two-sided confidence of one comparison at one look, so that all together err with ``error`` on one side."""
    return 1 - 2 * error / (looks * max(1, rivals))
