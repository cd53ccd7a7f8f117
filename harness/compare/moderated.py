"""How much each cell scatters from round to round, known better from all cells together than from its own few rounds.

Smyth 2004, "Linear models and empirical Bayes methods for assessing differential expression": the cells' variances are
draws from a scaled inverse chi-square distribution, whose centre and degrees of freedom follow from the mean and the
variance of the logarithms of those measured (section 6.2, ``fitFDist`` and ``squeezeVar`` of limma). Each cell's
variance is then the mean of its own and the centre, weighted by degrees of freedom: cells that scatter alike share one
variance, cells that do not keep their own.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float64]

_NEWTON_STEPS = 20


class Prior(NamedTuple):
    """Centre of the cells' variances and the degrees of freedom that it counts for, infinite where all are alike."""

    variance: float
    degrees: float


def fit_prior(variances: Array, degrees: Array) -> Prior:
    """The prior of three or more variances > 0, each with its degrees of freedom > 0."""
    from scipy.special import digamma, polygamma  # here, since importing it takes longer than a command without tests

    logs = np.log(variances) - digamma(degrees / 2) + np.log(degrees / 2)
    excess = float(logs.var(ddof=1) - polygamma(1, degrees / 2).mean())
    if excess <= 0:  # variances differ no more than samples of one variance do
        return Prior(float(np.average(variances, weights=degrees)), np.inf)
    half = _inverse_trigamma(excess)
    return Prior(float(np.exp(logs.mean() + digamma(half) - np.log(half))), 2 * half)


def moderate(variances: Array, degrees: Array) -> tuple[Array, Array]:
    """Variances moderated over cells, and the degrees of freedom of each, its own and the prior's."""
    prior = fit_prior(variances, degrees)
    if np.isinf(prior.degrees):
        return np.full_like(variances, prior.variance), np.full_like(degrees, np.inf)
    total = prior.degrees + degrees
    return (prior.degrees * prior.variance + degrees * variances) / total, total


def _inverse_trigamma(value: float) -> float:
    """The y with trigamma(y) = value > 0, by Newton's method on 1 / trigamma (Smyth 2004, appendix)."""
    from scipy.special import polygamma

    y = 0.5 + 1 / value
    for _ in range(_NEWTON_STEPS):
        trigamma = float(polygamma(1, y))
        y += trigamma * (1 - trigamma / value) / float(polygamma(2, y))
    return y
