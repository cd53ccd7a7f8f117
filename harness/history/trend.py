"""Change points in a series of nights.

A night is one value, so nothing is assumed of how rounds within it agree. The statistic is the largest standardised
difference of means over all places to cut (the CUSUM statistic); its p-value is the share of reorderings of the nights
that reach it, since without a change every order is as likely. A series with a change is cut there and both parts are
looked at again (binary segmentation: Vostrikova 1981; with reorderings: Taylor 2000).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float64]

FEWEST_NIGHTS = 3  # on either side of a change; one odd night is an outlier, and the verdict against it says so
ORDERS = 1999
ALPHA = 0.05  # of the whole history: it is shared out over its series
_SEED = 0
_ROUNDING = 1e-9


def change_points(values: Sequence[float], alpha: float = ALPHA, *, seed: int = _SEED) -> tuple[int, ...]:
    """Positions at which the level of ``values`` changes: each is the first value of the new level.

    The probability that a series without a change shows any is at most ``alpha``.
    """
    series = np.asarray(values, dtype=np.float64)
    rng = np.random.default_rng(seed)
    found: list[int] = []
    parts = [(0, len(series))]
    while parts:
        low, high = parts.pop()
        cut = _cut(series[low:high], alpha, rng)
        if cut is not None:
            found.append(low + cut)
            parts += [(low, low + cut), (low + cut, high)]
    return tuple(sorted(found))


def _cut(values: Array, alpha: float, rng: np.random.Generator) -> int | None:
    """Where to cut the values in two, None if they look like one level."""
    if len(values) < 2 * FEWEST_NIGHTS or float(np.ptp(values)) < _ROUNDING:
        return None
    observed = _statistics(values[None, :])[0]
    cut = int(np.argmax(observed))
    orders = _statistics(rng.permuted(np.tile(values, (ORDERS, 1)), axis=1)).max(axis=1)
    p = (1 + int((orders >= observed[cut] * (1 - 1e-9)).sum())) / (1 + ORDERS)
    return cut + FEWEST_NIGHTS if p <= alpha else None


def _statistics(series: Array) -> Array:
    """Between-part sum of squares, root of it, for every place to cut; shape (orders, places).

    For one set of values it grows with the two-sample t of the parts, so it ranks orders as that does.
    """
    count = series.shape[1]
    left = np.arange(FEWEST_NIGHTS, count - FEWEST_NIGHTS + 1)
    sums = np.cumsum(series - series.mean(), axis=1)[:, left - 1]
    weight = np.sqrt(count / (left * (count - left)))
    return np.asarray(np.abs(sums) * weight)
