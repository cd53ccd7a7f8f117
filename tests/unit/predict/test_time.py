"""Time predictions against arithmetic by hand and against what must hold of any cluster."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.accelerators import accelerator
from harness.errors import UsageError
from harness.predict.compute import BACKWARD_ATTENTION, block_time, matmul_s, optimizer_s
from harness.predict.device import Device, device_of
from harness.predict.job import Architecture, Job
from harness.predict.jobmemory import predict_job_memory
from harness.predict.network import EFA_H100, LINK_SHARE, NIC_SHARE, Network, read_curve
from harness.predict.software import NOMINAL
from harness.predict.time import predict_time

LLAMA_8B = Architecture(layers=32, hidden=4096, ffn=14336, heads=32, kv_heads=8, vocab=128256)
DEVICE = Device(
    name="made",
    peak=1e15,
    attention=1e15,
    matmul=8e14,
    matmul_fp8=16e14,
    memory_bandwidth=3e12,
    memory_bytes=80 << 30,
    compute_units=132,
    source="made up for tests",
)
NETWORK = Network(link=450e9, nic=50e9, source="made up for tests")


def job(**changes: object) -> Job:
    values: dict[str, object] = {"model": LLAMA_8B, "seq_len": 8192, "micro_batch": 1, "dp_shard": 8}
    return Job.model_validate({**values, **changes})


def test_parameters_are_those_of_the_published_model() -> None:
    assert LLAMA_8B.params == pytest.approx(8.03e9, rel=1e-3)


def test_a_large_product_takes_its_flops_at_the_reached_rate() -> None:
    # 132 tiles of 128 x 256, 10 waves, and an inner dimension so long that its ends do not count
    m, n, k = 128 * 132, 256 * 10, 1 << 16
    assert matmul_s(m, n, k, DEVICE, NOMINAL) == pytest.approx(2 * m * n * k / (8e14 * NOMINAL.matmul), rel=3e-3)


def test_a_thin_product_is_bound_by_memory() -> None:
    # one row: the matrix is read once
    seconds = matmul_s(1, 16384, 16384, DEVICE, NOMINAL)
    assert seconds == pytest.approx(2 * 16384 * 16384 / (3e12 * 0.85), rel=0.05)


def test_one_row_more_than_fits_a_wave_costs() -> None:
    full = matmul_s(128 * 132, 256, 8192, DEVICE, NOMINAL)
    more = matmul_s(128 * 133, 256, 8192, DEVICE, NOMINAL)
    assert more / full > 133 / 132


def test_a_block_costs_three_forwards_and_recomputation_one_more() -> None:
    plain, full = block_time(job(), DEVICE, NOMINAL), block_time(job(recompute="full"), DEVICE, NOMINAL)
    assert 1.8 < plain.backward / plain.forward < BACKWARD_ATTENTION
    assert full.backward == pytest.approx(plain.backward + plain.forward)


def test_ring_time_by_hand() -> None:
    # 8 ranks of a node: 7/8 of 1 GB through each link, and 7 hops
    seconds = NETWORK.collective_s(1e9, 8, 1)
    assert seconds == pytest.approx(0.875e9 / (450e9 * LINK_SHARE) + 7 * 2e-6)
    # one rank on each of two nodes has one NIC
    assert NETWORK.bus(2, 2) == pytest.approx(50e9 * NIC_SHARE)
    # four ranks a node have four
    assert NETWORK.bus(8, 2) == pytest.approx(4 * 50e9 * NIC_SHARE)
    assert NETWORK.collective_s(1e9, 1, 1) == 0


def test_a_curve_is_met_at_its_points_and_between() -> None:
    assert EFA_H100.at(8, True) == pytest.approx(99.6e9)
    assert EFA_H100.at(8, False) == pytest.approx(69e9)
    assert EFA_H100.at(6, True) == pytest.approx(121.3e9, rel=1e-3)  # 160.1 ** .415 * 99.6 ** .585
    assert EFA_H100.at(1000, True) == pytest.approx(32.9e9)


def test_curve_file(tmp_path: Path) -> None:
    path = tmp_path / "curve.csv"
    path.write_text("collective,nodes,mean_or_median_GBps\nAllReduce,1,400\nAllGather,1,200\nAllReduce,2,100\n")
    curve = read_curve(path)
    assert (curve.nodes, curve.all_reduce, curve.all_gather) == ((1,), (400e9,), (200e9,))
    path.write_text("collective,bandwidth\nAllReduce,1\n")
    with pytest.raises(UsageError, match="give columns"):
        read_curve(path)


def test_parts_sum_to_the_step() -> None:
    one = job(dp_shard=16, dp_replicate=4, tp=2, gpus_per_node=8, micro_batches=4)
    found = predict_time(one, DEVICE, NETWORK, NOMINAL)
    parts = found.compute_s + sum(found.exposed_s.values()) + found.bubble_s + found.optimizer_s
    assert found.step_time_s == pytest.approx(parts)
    assert set(found.communication_s) == {"tp", "dp_shard", "dp_replicate"}
    assert all(found.exposed_s[axis] <= found.communication_s[axis] * (1 + 1e-9) for axis in found.exposed_s)
    assert found.tokens_per_s_per_rank == pytest.approx(4 * 8192 / 2 / found.step_time_s)


def test_a_slow_network_is_exposed_and_a_mesh_hides_it() -> None:
    slow = Network(link=450e9, nic=1e9, source="made up for tests")
    flat = predict_time(job(dp_shard=32), DEVICE, slow, NOMINAL)
    mesh = predict_time(job(dp_shard=8, dp_replicate=4), DEVICE, slow, NOMINAL)
    assert flat.exposed_s["dp_shard"] > 10 * mesh.exposed_s["dp_shard"]
    assert mesh.step_time_s < flat.step_time_s


def test_pipeline_bubble() -> None:
    # Narayanan et al. 2021: (p - 1) / (v m) of the time without it
    one = job(dp_shard=1, sharding="none", pp=4, micro_batches=8, gpus_per_node=4)
    plain, interleaved = (
        predict_time(one.model_copy(update={"virtual_stages": v}), DEVICE, NETWORK, NOMINAL) for v in (1, 2)
    )
    assert plain.bubble_s / interleaved.bubble_s == pytest.approx(2)
    assert plain.bubble_s == pytest.approx(3 / 8 * plain.compute_s, rel=0.25)


def test_optimizer_reads_and_writes_its_state() -> None:
    assert optimizer_s(1e9, DEVICE) == pytest.approx(44e9 / (3e12 * 0.85))


def test_a_power_limit_slows_matrix_products_only() -> None:
    full, limited = device_of(accelerator("h100-sxm")), device_of(accelerator("h100-sxm"), power=0.7)
    assert 0.7 < limited.matmul / full.matmul < 1
    assert limited.memory_bandwidth == full.memory_bandwidth


def test_state_of_megatron_and_of_fsdp() -> None:
    params = LLAMA_8B.params
    sharded = predict_job_memory(job(dp_shard=8), master_copy=False)
    assert sharded.state_bytes == pytest.approx(2 * params)  # 16 bytes over 8 ranks
    replicated = predict_job_memory(job(dp_shard=1, dp_replicate=8, sharding="zero1"), master_copy=True)
    assert replicated.state_bytes == pytest.approx((6 + 12 / 8) * params)
    assert replicated.unsharded_bytes == 0
