"""Summaries, ratios and trends."""

from __future__ import annotations

import math
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.stats import paired_ratio, spread_of_rounds, summarize, trend, unpaired_ratio


def noise(rng: random.Random, size: float, n: int = 20) -> list[float]:
    return [math.exp(rng.gauss(0, size)) for _ in range(n)]


def noisy_pairs(
    rng: random.Random, ratio: float, rounds: int, between: float, within: float
) -> list[list[tuple[float, float]]]:
    """Pairs whose log ratio varies by ``between`` from round to round and by ``within`` from pair to pair."""
    shifts = [ratio * math.exp(rng.gauss(0, between)) for _ in range(rounds)]
    return [[(shift * x, 1.0) for x in noise(rng, within)] for shift in shifts]


def test_summary_of_known_values() -> None:
    summary = summarize([[1.0, 2.0, 3.0], [4.0, 5.0]])
    assert (summary.median, summary.minimum, summary.maximum) == (3.0, 1.0, 5.0)
    assert (summary.rounds, summary.steps) == (2, 5)
    assert summary.cv == pytest.approx(math.sqrt(2.5) / 3)
    assert summary.low < 3.0 < summary.high
    assert math.log(summary.high / 3.0) == pytest.approx(math.log(3.0 / summary.low))


def test_summary_interval_covers_what_it_says() -> None:
    """Two seeded simulations of three rounds each with the truth 1: at least nine in ten intervals hold it."""
    rng = random.Random(7)
    held = 0
    for _ in range(60):
        rounds = [[math.exp(shift) * x for x in noise(rng, 0.05)] for shift in (rng.gauss(0, 0.05) for _ in range(3))]
        summary = summarize(rounds, draws=200)
        held += summary.low <= 1 <= summary.high
    assert held >= 54


def test_summary_of_equal_values_has_no_width() -> None:
    summary = summarize([[0.1] * 5, [0.1] * 7])
    assert [summary.low, summary.median, summary.high] == pytest.approx([0.1] * 3)
    assert summary.cv == pytest.approx(0, abs=1e-12)


def test_summary_of_one_step() -> None:
    summary = summarize([[0.25]])
    assert (summary.low, summary.median, summary.high, summary.cv, summary.steps) == (0.25, 0.25, 0.25, 0.0, 1)


def test_summary_is_seeded() -> None:
    values = [noise(random.Random(1), 0.1), noise(random.Random(2), 0.1)]
    assert summarize(values) == summarize(values)
    assert summarize(values, seed=1) != summarize(values, seed=2)


def test_rounds_that_differ_widen_the_summary() -> None:
    steps = noise(random.Random(1), 0.01)
    alike = summarize([steps, steps, steps])
    apart = summarize([steps, [1.1 * x for x in steps], [1.2 * x for x in steps]])
    assert apart.high - apart.low > 5 * (alike.high - alike.low)


def test_no_values_are_refused() -> None:
    for call in (
        lambda: summarize([]),
        lambda: summarize([[]]),
        lambda: paired_ratio([[]]),
        lambda: unpaired_ratio([[1.0]], []),
    ):
        with pytest.raises(ValueError, match="no values"):
            call()


def test_paired_ratio_of_constant_pairs_is_exact() -> None:
    ratio = paired_ratio([[(3.0, 2.0)] * 4, [(1.5, 1.0)] * 4])
    assert ratio.ratio == pytest.approx(1.5)
    assert ratio.low == pytest.approx(1.5)
    assert ratio.high == pytest.approx(1.5)
    assert ratio.paired
    assert ratio.separated
    assert (ratio.rounds, ratio.samples) == (2, 8)


def test_what_pairs_share_cancels() -> None:
    """The machine's speed swings by 30%, the ratio by nothing."""
    rng = random.Random(4)
    rounds = [noise(rng, 0.3) for _ in range(3)]
    paired = paired_ratio([[(1.05 * x, x) for x in steps] for steps in rounds])
    unpaired = unpaired_ratio([[1.05 * x for x in steps] for steps in rounds], [noise(rng, 0.3) for _ in range(3)])
    assert paired.separated
    assert not unpaired.separated


def test_unpaired_is_wider_than_paired_on_the_same_values() -> None:
    rng = random.Random(5)
    rounds = [noise(rng, 0.05) for _ in range(4)]
    others = [[x * y for x, y in zip(steps, noise(rng, 0.01), strict=True)] for steps in rounds]
    paired = paired_ratio([list(zip(a, b, strict=True)) for a, b in zip(rounds, others, strict=True)])
    unpaired = unpaired_ratio(rounds, others)
    assert unpaired.high / unpaired.low > paired.high / paired.low
    assert not unpaired.paired


def test_one_round_never_separates() -> None:
    for ratio in (paired_ratio([[(2.0, 1.0)] * 20]), unpaired_ratio([[2.0] * 20], [[1.0] * 20, [1.0] * 20])):
        assert ratio.one_round
        assert ratio.low > 1
        assert not ratio.separated


def test_rounds_that_agree_by_chance_do_not_beat_the_noise_within() -> None:
    """All rounds have the same median, so only the floor gives the interval its width."""
    steps = [(x, 1.0) for x in noise(random.Random(6), 0.2)]
    ratio = paired_ratio([steps, steps, steps])
    assert ratio.high / ratio.low > 1.1


def test_an_outlier_flips_nothing() -> None:
    rng = random.Random(7)
    rounds = noisy_pairs(rng, 1.1, rounds=3, between=0.005, within=0.02)
    spoiled = [[(1000.0, 1.0), *steps[1:]] for steps in rounds]
    clean, dirty = paired_ratio(rounds), paired_ratio(spoiled)
    assert clean.separated
    assert dirty.separated
    assert dirty.ratio == pytest.approx(clean.ratio, rel=0.01)


def test_inverse_turns_the_interval_round() -> None:
    ratio = paired_ratio(noisy_pairs(random.Random(8), 1.2, rounds=3, between=0.01, within=0.02))
    inverse = ratio.inverse()
    assert inverse.ratio == pytest.approx(1 / ratio.ratio)
    assert (inverse.low, inverse.high) == (1 / ratio.high, 1 / ratio.low)
    assert inverse.inverse().ratio == pytest.approx(ratio.ratio)


@pytest.mark.parametrize(("between", "within"), [(0.02, 0.05), (0.05, 0.01)])
def test_three_rounds_cover_the_truth_in_95_of_100(between: float, within: float) -> None:
    rng = random.Random(9)
    trials = 200
    hits = 0
    for trial in range(trials):
        ratio = paired_ratio(noisy_pairs(rng, 1.1, 3, between, within), draws=100, seed=trial)
        hits += ratio.low <= 1.1 <= ratio.high
    # three standard errors of a share of 0.95; the floor may only make it more
    assert hits / trials >= 0.95 - 3 * math.sqrt(0.95 * 0.05 / trials)


def test_unpaired_rounds_cover_the_truth_too() -> None:
    rng = random.Random(10)
    trials = 200
    hits = 0
    for trial in range(trials):
        sides = [[[shift * x for x in noise(rng, 0.05)] for shift in noise(rng, 0.05, n=3)] for _ in range(2)]
        ratio = unpaired_ratio(sides[0], sides[1], draws=100, seed=trial)
        hits += ratio.low <= 1 <= ratio.high
    assert hits / trials >= 0.95 - 3 * math.sqrt(0.95 * 0.05 / trials)


def test_trend_sees_drift_and_not_noise() -> None:
    rng = random.Random(11)
    flat = trend(noise(rng, 0.05))
    rising = trend([x * (1 + 0.02 * step) for step, x in enumerate(noise(rng, 0.01))])
    assert abs(flat.z) < 2
    assert rising.z > 4
    assert rising.relative == pytest.approx(0.25, abs=0.05)
    assert trend([1.0, 2.0]).z == 0
    assert trend([0.1] * 10).z == 0
    assert trend([1 + step / 5000 for step in range(5000)]).z > 10


values = st.lists(st.lists(st.floats(1e-9, 1e9), min_size=1, max_size=6), min_size=1, max_size=4)


@settings(max_examples=40)
@given(values, values)
def test_any_times_have_ordered_finite_intervals(first: list[list[float]], second: list[list[float]]) -> None:
    summary = summarize(first, draws=50)
    assert 0 < summary.low <= summary.median <= summary.high
    assert summary.minimum <= summary.median <= summary.maximum
    unpaired = unpaired_ratio(first, second, draws=50)
    paired = paired_ratio([[(a, 1.0) for a in steps] for steps in first], draws=50)
    for ratio in (unpaired, paired, unpaired.inverse(), paired.inverse()):
        assert 0 < ratio.low <= ratio.ratio <= ratio.high < math.inf


def test_the_spread_of_rounds_is_students_on_their_medians() -> None:
    # ln of medians: 0, 0.1, 0.2; s = 0.1, t(2) = 4.303, so the half width is 4.303 x 0.1 / sqrt(3)
    rounds = [[math.exp(x)] * 5 for x in (0.0, 0.1, 0.2)]
    assert spread_of_rounds(rounds) == pytest.approx(math.exp(4.3027 * 0.1 / 3**0.5), rel=1e-4)
    with pytest.raises(ValueError, match="one round does not tell"):
        spread_of_rounds(rounds[:1])
