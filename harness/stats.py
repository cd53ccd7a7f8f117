"""Summaries, intervals and ratios of step times. Pure functions; every interval is a 95% one unless a level is given.

Step times within one round share the state of the machine, and rounds differ by more than steps do, so the round is
the unit that intervals count (Kalibera and Jones 2013, "Rigorous benchmarking in reasonable time"). Medians stand
for a round, so one outlier step moves nothing. The unit of every result is that of its input.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from harness.base import Frozen

Array = npt.NDArray[np.float64]
Pairs = Sequence[Sequence[tuple[float, float]]]
Rounds = Sequence[Sequence[float]]

LEVEL = 0.95
DRAWS = 2000
_CHUNK = 4_000_000  # resampled values held at once
_MAX_TREND_POINTS = 200


class Summary(Frozen):
    """Spread of all values of all rounds. ``low`` and ``high`` bound the median; ``cv`` is a fraction."""

    median: float
    low: float
    high: float
    minimum: float
    maximum: float
    cv: float
    rounds: int
    steps: int


class Ratio(Frozen):
    """A ratio with its interval. ``rounds`` and ``samples`` (pairs, or steps of both sides) are what it rests on."""

    ratio: float
    low: float
    high: float
    rounds: int
    samples: int
    paired: bool
    one_round: bool

    @property
    def separated(self) -> bool:
        """Whether the two sides differ: the interval leaves out 1 and rests on more than one round."""
        return not self.one_round and (self.low > 1 or self.high < 1)

    def inverse(self) -> Ratio:
        """The ratio the other way round."""
        values = {"ratio": 1 / self.ratio, "low": 1 / self.high, "high": 1 / self.low}
        return self.model_copy(update=values)


class Pooled(Frozen):
    """Standard deviation of a layout's log time from round to round, estimated over layouts together."""

    sd: float
    degrees: int


class Trend(Frozen):
    """Change within one round: ``relative`` last third over first third, minus 1; ``z`` of the Mann-Kendall test."""

    relative: float
    z: float


def summarize(rounds: Rounds, *, draws: int = DRAWS, seed: int = 0) -> Summary:
    """Median of all values with a cluster-bootstrap interval, range, and coefficient of variation.

    Each draw takes R of the R rounds with replacement, then within each of them as many steps as it has, with
    replacement, and the median of all (two-stage bootstrap, Davison and Hinkley 1997, section 3.8). The interval is
    median * exp(+- t(R-1, 0.975) * SE), SE the standard deviation of the draws' logarithms: few rounds drawn from
    themselves scatter too little. Quantiles of the draws cover 81% with 3 rounds; this covers 97%, and with 5 rounds
    95% (simulated: rounds and steps lognormal with equal spread). With one round only its steps are drawn, the
    interval lies between the 2.5% and 97.5% quantiles of the draws, and it does not know how rounds differ.
    cv = sample standard deviation / mean.

    Raises:
        ValueError: no value at all.
    """
    arrays = _arrays(rounds)
    values = np.concatenate(arrays)
    middle = float(np.median(values))
    medians = _cluster_medians(arrays, draws, np.random.default_rng(seed))
    count = len(arrays)
    if count == 1:
        low, high = (float(q) for q in np.quantile(medians, _tails(LEVEL)))
    else:
        factor = float(np.exp(_student(count - 1) * float(np.log(medians).std(ddof=1))))
        low, high = middle / factor, middle * factor
    mean = float(values.mean())
    return Summary(
        median=middle,
        low=min(low, middle),
        high=max(high, middle),
        minimum=float(values.min()),
        maximum=float(values.max()),
        cv=float(values.std(ddof=1)) / mean if len(values) > 1 and mean else 0.0,
        rounds=len(arrays),
        steps=len(values),
    )


def paired_ratio(
    pairs_by_round: Pairs,
    *,
    pooled: Pooled | None = None,
    level: float = LEVEL,
    draws: int = DRAWS,
    seed: int = 0,
) -> Ratio:
    """Ratio first / second of values that were taken next to each other, e.g. steps of one cycle. Values are > 0.

    x_r = median over round r of ln(first / second); the estimate is exp(mean x_r). Its interval is
    exp(mean x_r +- t(R-1, 0.975) * SE) with SE = max(s(x) / sqrt(R), w / sqrt(R)): s the standard deviation of the
    round values (Student's t on R cluster values), w the root mean square of each round's bootstrap standard error
    of x_r. The floor by w keeps a chance agreement of few rounds from making the interval narrower than the noise
    within a round allows. One round only: quantiles of its bootstrap draws, flagged ``one_round``. With ``pooled``,
    s is no less than sqrt(2) times its standard deviation, and t has its degrees of freedom.

    Raises:
        ValueError: no pair at all.
    """
    logs = _arrays([[np.log(a) - np.log(b) for a, b in pairs] for pairs in pairs_by_round])
    means = _RoundMeans(logs, draws, np.random.default_rng(seed))
    one_round = len(logs) == 1
    if one_round:
        low, high = (float(q) for q in np.quantile(means.draws, _tails(level)))
    else:
        half = _student(pooled.degrees if pooled else len(logs) - 1, level) * means.error(pooled, share=2)
        low, high = means.value - half, means.value + half
    samples = sum(len(x) for x in logs)
    return _ratio(means.value, low, high, rounds=len(logs), samples=samples, paired=True, one_round=one_round)


def unpaired_ratio(
    first: Rounds,
    second: Rounds,
    *,
    pooled: Pooled | None = None,
    level: float = LEVEL,
    draws: int = DRAWS,
    seed: int = 0,
) -> Ratio:
    """Ratio first / second of values that were taken apart, in launches of their own. Values are > 0.

    Each side has the mean over rounds of ln(median of the round) and its SE as in ``paired_ratio``; the variances
    add, SE^2 = SE_1^2 + SE_2^2, and the degrees of freedom are Welch and Satterthwaite's. This interval is wider
    than a paired one, since what both sides share does not cancel. Where either side has one round only: quantiles
    of bootstrap draws of the steps, flagged ``one_round``. With ``pooled``, neither side scatters by less
    than its standard deviation from round to round, and t has its degrees of freedom.

    Raises:
        ValueError: a side has no value.
    """
    rng = np.random.default_rng(seed)
    sides = [_RoundMeans([np.log(x) for x in _arrays(rounds)], draws, rng) for rounds in (first, second)]
    value = sides[0].value - sides[1].value
    fewest = min(side.rounds for side in sides)
    if fewest == 1:
        low, high = (float(q) for q in np.quantile(sides[0].draws - sides[1].draws, _tails(level)))
    else:
        variances = [side.error(pooled) ** 2 for side in sides]
        total = sum(variances)
        parts = sum(v**2 / (side.rounds - 1) for v, side in zip(variances, sides, strict=True))
        degrees = total**2 / parts if parts > 0 else float(fewest - 1)
        half = _student(degrees if pooled is None else pooled.degrees, level) * total**0.5
        low, high = value - half, value + half
    samples = sum(side.samples for side in sides)
    return _ratio(value, low, high, rounds=fewest, samples=samples, paired=False, one_round=fewest == 1)


def spread_of_rounds(rounds: Rounds) -> float:
    """Factor f by which the geometric mean of rounds' medians is uncertain: its 95% interval is mean / f to mean * f.

    Student's t on the rounds' ln(median), with SE as in ``paired_ratio``. Where rounds come from several sweeps, what
    differed between those is in it.

    Raises:
        ValueError: fewer than two rounds with a value.
    """
    arrays = [np.log(values) for values in _arrays(rounds)]
    if len(arrays) < 2:
        raise ValueError("one round does not tell how rounds scatter; give two or more")
    means = _RoundMeans(arrays, DRAWS, np.random.default_rng(0))
    return float(np.exp(_student(means.rounds - 1) * means.error()))


def trend(values: Sequence[float]) -> Trend:
    """Size and z of a trend in values that follow each other (Mann 1945; Kendall 1975; ties not corrected for).

    A long series is first reduced to the medians of 200 blocks. Fewer than 3 values have no trend.
    """
    series = np.asarray(values, dtype=np.float64)
    if len(series) < 3:
        return Trend(relative=0.0, z=0.0)
    third = len(series) // 3
    start = float(np.median(series[:third]))
    relative = float(np.median(series[-third:])) / start - 1 if start else 0.0
    if len(series) > _MAX_TREND_POINTS:
        series = np.array([np.median(block) for block in np.array_split(series, _MAX_TREND_POINTS)])
    n = len(series)
    score = float(np.triu(np.sign(series[None, :] - series[:, None]), 1).sum())
    variance = n * (n - 1) * (2 * n + 5) / 18
    return Trend(relative=relative, z=float(np.sign(score)) * max(abs(score) - 1, 0.0) / variance**0.5)


class _RoundMeans:
    """Mean over rounds of each round's median, its standard error, and bootstrap draws of steps within rounds."""

    def __init__(self, rounds: Sequence[Array], draws: int, rng: np.random.Generator) -> None:
        medians = np.array([np.median(values) for values in rounds])
        resampled = np.stack([_cluster_medians([values], draws, rng) for values in rounds])
        self.rounds = len(rounds)
        self.samples = sum(len(values) for values in rounds)
        self.value = float(medians.mean())
        self.draws: Array = resampled.mean(axis=0)
        self.within = float(np.sqrt(resampled.var(axis=1).mean()))
        self.between = float(medians.std(ddof=1)) if self.rounds > 1 else 0.0

    def error(self, pooled: Pooled | None = None, share: int = 1) -> float:
        """Standard error of the mean: rounds scatter no less than steps explain, nor than ``share`` pooled values."""
        floor = 0.0 if pooled is None else float(pooled.sd * share**0.5)
        return float(max(self.within, self.between, floor) / self.rounds**0.5)


def _arrays(rounds: Rounds) -> list[Array]:
    arrays = [np.asarray(values, dtype=np.float64) for values in rounds if len(values)]
    if not arrays:
        raise ValueError("no values to summarise; give at least one round with one step")
    return arrays


def _cluster_medians(rounds: Sequence[Array], draws: int, rng: np.random.Generator) -> Array:
    """Medians of ``draws`` two-stage resamples, shape (draws,)."""
    sizes = np.array([len(values) for values in rounds])
    padded = np.full((len(rounds), int(sizes.max())), np.nan)
    for row, values in zip(padded, rounds, strict=True):
        row[: len(values)] = values
    step = max(1, _CHUNK // padded.size)
    parts = [_draw(padded, sizes, min(step, draws - done), rng) for done in range(0, draws, step)]
    return np.concatenate(parts)


def _draw(padded: Array, sizes: npt.NDArray[np.int64], draws: int, rng: np.random.Generator) -> Array:
    rounds, width = padded.shape
    chosen = rng.integers(0, rounds, (draws, rounds))
    size = sizes[chosen][..., None]
    index = (rng.random((draws, rounds, width)) * size).astype(np.int64)
    picked = padded[chosen[..., None], index]
    picked[np.broadcast_to(np.arange(width), picked.shape) >= size] = np.nan
    ordered = np.sort(picked.reshape(draws, -1), axis=1)  # NaN sorts last
    count = size.sum(axis=(1, 2))
    rows = np.arange(draws)
    middle: Array = (ordered[rows, (count - 1) // 2] + ordered[rows, count // 2]) / 2
    return middle


def _student(degrees: float, level: float = LEVEL) -> float:
    from scipy.special import stdtrit  # here, since importing it takes longer than a command that needs no interval

    return float(stdtrit(degrees, _tails(level)[1]))


def _tails(level: float) -> tuple[float, float]:
    return ((1 - level) / 2, (1 + level) / 2)


def _ratio(value: float, low: float, high: float, *, rounds: int, samples: int, paired: bool, one_round: bool) -> Ratio:
    ends = (value, min(low, value), max(high, value))
    ratio, lower, upper = (float(np.exp(np.clip(x, -700, 700))) for x in ends)
    return Ratio(ratio=ratio, low=lower, high=upper, rounds=rounds, samples=samples, paired=paired, one_round=one_round)
