"""Lines through times that were made from a known latency and bandwidth, and nccl-tests' bus bandwidth."""

from __future__ import annotations

import pytest

from harness.calibration import (
    CALIBRATED,
    AxisFit,
    AxisUse,
    Calibration,
    GroupFit,
    OperationFit,
    SizeTimes,
    axis_groups,
    bus_factor,
    fit,
    hosts_of,
    sizes_up_to,
)
from harness.predict.messages import largest_message_bytes
from harness.workload import make_workload
from tests.unit.factories import layout

SIZES = (1024, 16384, 262144, 4194304)


def made(latency_s: float, bandwidth: float, factors: tuple[float, ...] = (1.0, 1.0, 1.0)) -> dict[int, list[float]]:
    return {size: [f * (latency_s + size / bandwidth) for f in factors] for size in SIZES}


@pytest.mark.parametrize(("latency_s", "bandwidth"), [(20e-6, 1e9), (2e-3, 25e6), (1e-6, 400e9)])
def test_exact_times_give_their_latency_and_bandwidth(latency_s: float, bandwidth: float) -> None:
    found = fit("all_reduce", made(latency_s, bandwidth))
    assert found.latency_s == pytest.approx(latency_s, rel=1e-4)
    assert found.bandwidth_bytes_per_s == pytest.approx(bandwidth, rel=1e-4)
    assert found.max_relative_error < 1e-4
    assert found.time_s(10**6) == pytest.approx(latency_s + 1e6 / bandwidth, rel=1e-4)


def test_a_pause_in_some_samples_and_one_size_off_the_line_hardly_count() -> None:
    times = made(50e-6, 1e8, factors=(1.0, 1.02, 30.0, 0.98, 1.0))
    clean = fit("all_gather", times)
    assert clean.latency_s == pytest.approx(50e-6, rel=0.01)
    assert clean.bandwidth_bytes_per_s == pytest.approx(1e8, rel=0.01)
    more = {size: [50e-6 + size / 1e8] * 3 for size in sizes_up_to(4194304)}
    more[sorted(more)[3]] = [1.0] * 3  # a whole size is wrong
    bent = fit("all_gather", more)
    assert bent.bandwidth_bytes_per_s == pytest.approx(1e8, rel=0.1)
    assert bent.max_relative_error > 0.9


def test_times_that_do_not_grow_have_a_latency_and_no_bandwidth() -> None:
    found = fit("broadcast", {size: [1e-4] * 3 for size in SIZES})
    assert found.latency_s == pytest.approx(1e-4)
    assert found.bandwidth_bytes_per_s is None
    assert found.time_s(10**9) == pytest.approx(1e-4)


def test_bus_bandwidth_is_that_of_nccl_tests() -> None:
    """doc/PERFORMANCE.md: all-reduce 2(n-1)/n, all-gather and reduce-scatter (n-1)/n, broadcast 1."""
    assert [bus_factor(operation, 8) for operation in CALIBRATED] == [7 / 8, 7 / 8, 14 / 8, 1.0]
    group = GroupFit(ranks=(0, 1, 2, 3), hosts=2, fits=(fit("all_reduce", made(1e-5, 2e8)),))
    assert group.bus_bandwidth_bytes_per_s("all_reduce") == pytest.approx(3e8, rel=1e-4)
    assert group.bus_bandwidth_bytes_per_s("broadcast") is None


def test_sizes_are_spaced_by_ratio_and_hold_both_ends() -> None:
    assert sizes_up_to(1024 * 4**5) == (1024, 4096, 16384, 65536, 262144, 1048576)
    found = sizes_up_to(3_000_001)
    assert (found[0], found[-1]) == (1024, 3_000_064)
    assert sizes_up_to(100) == (1024,)


def test_hosts_are_those_of_the_ranks() -> None:
    assert [hosts_of(ranks, (2, 4)) for ranks in ((0, 1), (1, 2), (2, 5), (0, 2, 4))] == [1, 2, 1, 2]


def test_a_calibration_finds_an_axis_and_its_slowest_group() -> None:
    def line(latency_s: float, bandwidth: float) -> OperationFit:
        samples = (SizeTimes(size_bytes=1024, time_s=(latency_s,)),)
        return OperationFit(
            operation="all_gather",
            latency_s=latency_s,
            bandwidth_bytes_per_s=bandwidth,
            max_relative_error=0.0,
            samples=samples,
        )

    axis = AxisFit(
        uses=(AxisUse("fsdp_tp:s2t2", "dp_shard"), AxisUse("hsdp:r2s2", "dp_replicate")),
        groups=(
            GroupFit(ranks=(0, 2), hosts=2, fits=(line(1e-3, 1e9),)),
            GroupFit(ranks=(1, 3), hosts=2, fits=(line(1e-4, 1e8),)),
        ),
    )
    calibration = Calibration(
        created_at="2026-01-02T03:04:05+00:00", device="cpu", backend="gloo", hosts=("a", "b"), axes=(axis,)
    )
    assert Calibration.model_validate_json(calibration.model_dump_json()) == calibration
    assert calibration.axis("hsdp:r2s2", "dp_replicate") is not None
    assert calibration.axis("hsdp:r2s2", "dp_shard") is None
    assert calibration.alike(2, 2) == axis
    assert calibration.alike(2, 1) is None
    small, large = axis.slowest("all_gather", 1000), axis.slowest("all_gather", 10**7)
    assert small is not None
    assert large is not None
    assert (small.latency_s, large.latency_s) == (1e-3, 1e-4)
    assert axis.slowest("all_reduce", 1) is None


def test_layouts_with_the_same_groups_share_them() -> None:
    found = axis_groups([layout(text) for text in ("ddp:r4", "fsdp:s4", "hsdp:r2s2", "fsdp_tp:s2t2", "single")])
    by_groups = {one.groups: [(user.strategy, axis) for user, axis in one.users] for one in found}
    assert by_groups == {
        ((0, 1, 2, 3),): [("ddp", "dp_replicate"), ("fsdp", "dp_shard")],
        ((0, 2), (1, 3)): [("hsdp", "dp_replicate"), ("fsdp_tp", "dp_shard")],
        ((0, 1), (2, 3)): [("hsdp", "dp_shard"), ("fsdp_tp", "tp")],
    }


def test_another_order_of_axes_lies_on_other_process_ranks() -> None:
    usual, turned = axis_groups([layout("hsdp:r2s2+order=dp_shard/dp_replicate/tp")])
    assert (usual.groups, usual.users[0][1]) == (((0, 1), (2, 3)), "dp_replicate")
    assert (turned.groups, turned.users[0][1]) == (((0, 2), (1, 3)), "dp_shard")


@pytest.mark.parametrize(
    ("text", "axis", "expected"),
    [
        # tiny: dim 64, ffn 192, vocabulary 512, 8 heads of 8, 4 KV heads: a block has 64*64*2 + 64*32*2 + 3*64*192 +
        # 2*64 = 49,280 parameters, the root 2*512*64 + 64 = 65,600
        ("fsdp:s4", "dp_shard", 4 * 65_600),
        ("hsdp:r2s2", "dp_replicate", 2 * 65_600),
        ("ddp:r4", "dp_replicate", 4 * (2 * 49_280 + 65_600)),
        ("tp:t4", "tp", 4 * 8 * 32 * 512),
        ("tp:t4+loss_parallel=true", "tp", 4 * 8 * 32 * 64),
        ("fsdp_tp:s2t2", "tp", 4 * 4 * 32 * 512),
    ],
)
def test_the_largest_message_of_an_axis(text: str, axis: str, expected: int) -> None:
    assert largest_message_bytes(make_workload("tiny", 8, 32), layout(text), axis) == expected
