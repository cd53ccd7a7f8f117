"""When warm-up counts as over."""

from __future__ import annotations

import pytest

from harness.measure.clock import is_steady


@pytest.mark.parametrize(
    ("times", "steady"),
    [
        ([], False),
        ([1.0] * 5, False),  # two windows of three are needed
        ([1.0] * 6, True),
        ([9.0, 5.0, 3.0, 1.0, 1.0, 1.0], False),  # medians 5 and 1: still getting faster
        ([9.0, 1.0, 1.05, 1.0, 1.0, 1.0], True),  # one slow first step does not hide that it is over
        ([1.0, 1.0, 1.0, 0.91, 0.91, 0.91], True),  # 9% faster
        ([1.0, 1.0, 1.0, 0.89, 0.89, 0.89], False),  # 11% faster
        ([1.0, 1.0, 1.0, 2.0, 2.0, 2.0], True),  # slower is noise, not warm-up
    ],
)
def test_steady_means_no_longer_getting_faster(times: list[float], steady: bool) -> None:
    assert is_steady(times) is steady
