"""Ranks that stand out."""

from __future__ import annotations

import pytest

from harness.compare.odd import odd_ranks


@pytest.mark.parametrize(
    ("values", "odd"),
    [
        ([100, 100, 100, 120], (3,)),  # MAD 0: 20% off
        ([100, 100, 100, 104], ()),  # 4% off is nothing to act on
        ([100, 101, 99, 100, 70, 102, 98, 100], (4,)),
        # median 100, MAD 10: 30 off is a z-score of 2.0
        ([90, 110, 100, 130, 85, 112, 100, 92], ()),
        ([100, 200], ()),  # of two, neither is odd
        ([], ()),
        ([0, 0, 0, 5], (3,)),
        ([100, 100, 50, 50], ()),  # two kinds of ranks, none of them odd
    ],
)
def test_odd_ranks(values: list[float], odd: tuple[int, ...]) -> None:
    assert odd_ranks(values) == odd


def test_the_limit_of_the_score() -> None:
    """Median 100, MAD 2: 0.6745 * 10.4 / 2 = 3.507 is beyond 3.5, 0.6745 * 10.3 / 2 = 3.474 is not."""
    assert odd_ranks([98, 98, 100, 102, 102, 100, 110.4]) == (6,)
    assert odd_ranks([98, 98, 100, 102, 102, 100, 110.3]) == ()
