"""Parts of a step from times made by hand."""

from __future__ import annotations

import pytest

from harness.exposure import Exposure, break_down

# Two ranks, three steps. Rank 1 computes longer: 60 ms against 40 ms, of which 10 and 20 ms are the optimizer's.
EXPOSURE = Exposure(
    method="without_communication",
    step_time_s=((0.100, 0.110, 0.300), (0.099, 0.112, 0.298)),
    compute_s=((0.040, 0.040, 0.040), (0.060, 0.070, 0.060)),
    optimizer_s=((0.010, 0.010, 0.010), (0.020, 0.020, 0.020)),
    without_axis_s={
        "dp_replicate": ((0.090, 0.100, 0.290), (0.080, 0.090, 0.200)),
        "dp_shard": ((0.070, 0.082, 0.270), (0.060, 0.070, 0.200)),
    },
)


def test_the_parts_of_a_step() -> None:
    found = break_down(EXPOSURE, ("dp_replicate", "dp_shard"))
    # the slowest rank's steps: 100, 112, 300; its compute: 60, 70, 60; differences 40, 42, 240
    assert found.step_time_s == pytest.approx(0.112)
    assert found.exposed_s == pytest.approx(0.042)
    assert found.optimizer_s == pytest.approx(0.020)
    assert found.compute_s == pytest.approx(0.112 - 0.042 - 0.020)
    # 10, 12, 10 and 30, 30, 30
    assert found.exposed_by_axis_s == pytest.approx({"dp_replicate": 0.010, "dp_shard": 0.030})
    assert found.shared_s == pytest.approx(0.002)
    assert found.idle_s == pytest.approx((0.020, 0.0))
    assert found.exposed_share == pytest.approx(0.042 / 0.112)
    assert found.idle_share == pytest.approx(0.010 / 0.112)


def test_all_that_is_exposed_belongs_to_an_only_axis() -> None:
    found = break_down(EXPOSURE.model_copy(update={"without_axis_s": {}}), ("dp_shard",))
    assert found.exposed_by_axis_s == {"dp_shard": found.exposed_s}
    assert found.shared_s == 0.0
