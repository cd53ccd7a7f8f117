"""Step times from a calibration made by hand."""

from __future__ import annotations

import pytest

from harness.calibration import CALIBRATED, AxisFit, AxisUse, Calibration, GroupFit, OperationFit, fit
from harness.compute_profile import ComputeProfile
from harness.layout import AXES
from harness.predict.calibrated import Cluster, calibrated_time, compute_of
from harness.predict.network import Network
from harness.predict.software import TORCH, Software
from harness.predict.time import TimePrediction
from harness.workload import Workload, make_workload
from tests.unit.factories import layout

BLOCK, ROOT = 4 * 49_280, 4 * 65_600  # bytes of tiny's block and of its embedding, head and last norm, fp32
DDP = 656_640  # of all its parameters
HALF = Software(name="half", matmul=1.0, attention=1.0, overlap_dp=0.5, source="made up for tests")


def made(work: Workload, *texts: str, hosts: int = 1, device: str = "cpu") -> Calibration:
    """Every collective takes 1 ms and 10 ns a byte at the sizes that fsdp uses; every step 10 + 20 + 4 ms."""
    sizes = (1024, BLOCK, ROOT, DDP, 8 * ROOT)
    fits = tuple(fit(name, {size: [1e-3 + 1e-8 * size] * 3 for size in sizes}) for name in CALIBRATED)
    layouts = [layout(text) for text in texts]
    axes = tuple(
        AxisFit(
            uses=(AxisUse(one.text, axis),),
            groups=(GroupFit(ranks=tuple(range(size)), hosts=hosts, fits=fits),),
        )
        for one in layouts
        for axis, size in zip(AXES, one.mesh.sizes, strict=True)
        if size > 1
    )
    compute = tuple(
        ComputeProfile(layout=one, forward_s=((10e-3,),), backward_s=((20e-3,),), optimizer_s=((4e-3,),))
        for one in layouts
    )
    ground = {"created_at": "now", "device": device, "backend": "gloo", "hosts": ("a", "b")[:hosts]}
    return Calibration.model_validate({**ground, "axes": axes, "workload": work, "compute": compute})


def predicted(text: str, found: Calibration, work: Workload, software: Software = TORCH) -> TimePrediction:
    time = calibrated_time(found, layout(text), work, software)
    assert time is not None
    return time


def test_fsdp_on_cpus_by_hand() -> None:
    """Gathers: root once, two blocks twice; reductions: each once; the norms' 84 bytes as the smallest size."""
    work = make_workload("tiny", 8, 32)
    time = predicted("fsdp:s4", made(work, "fsdp:s4"), work)
    waits = 8 * 1e-3 + 1e-8 * (2 * ROOT + 6 * BLOCK) + 1e-3 + 1e-8 * 1024
    assert time.exposed_s == {"dp_shard": pytest.approx(waits)}
    assert time.communication_s == pytest.approx(time.exposed_s)
    assert [time.compute_s, time.optimizer_s] == pytest.approx([30e-3, 4e-3])
    assert time.step_time_s == pytest.approx(34e-3 + waits)
    assert time.tokens_per_s_per_rank == pytest.approx(8 * 32 / 4 / time.step_time_s)


def test_half_of_what_ranks_waited_by_is_compute() -> None:
    """An all-reduce of 4 bytes in each collective's place: 3 of forward, 5 of backward, 1 of clipping."""
    work = make_workload("tiny", 8, 32)
    found = made(work, "fsdp:s4")
    waits = found.model_copy(update={"compute": tuple(p.model_copy(update={"waits": True}) for p in found.compute)})
    token = 1e-3 + 1e-8 * 1024
    assert compute_of(waits, layout("fsdp:s4"), work) == pytest.approx(
        (10e-3 - 3 * token / 2, 20e-3 - 5 * token / 2, 4e-3 - token / 2)
    )
    alone, together = (predicted("fsdp:s4", one, work).step_time_s for one in (found, waits))
    assert together == pytest.approx(alone - 9 * token / 2)


def test_no_part_of_compute_is_below_zero() -> None:
    """Tokens of 3 and 5 ms in forward and backward, and of 1 ms in clipping."""
    work = make_workload("tiny", 8, 32)
    token = 1e-3 + 1e-8 * 1024
    found = made(work, "fsdp:s4")

    def computed(forward: float, backward: float) -> object:
        times = {"waits": True, "forward_s": ((forward,),), "backward_s": ((backward,),), "optimizer_s": ((5e-4,),)}
        profiles = tuple(one.model_copy(update=times) for one in found.compute)
        return compute_of(found.model_copy(update={"compute": profiles}), layout("fsdp:s4"), work)

    assert computed(2e-3, 20e-3) == pytest.approx((2e-3 / 2, 20e-3 - 5 * token / 2, 5e-4 / 2))
    assert computed(2e-3, 4e-3) is None  # nothing was seen of it, which is not the same as nothing


def test_compute_lies_between_steps_with_and_without_waiting() -> None:
    """9 tokens of 1 ms leave 25 ms of the 34 in which ranks waited; without waiting the step took 30, then 20."""
    work = make_workload("tiny", 8, 32)
    found = made(work, "fsdp:s4")
    (waiting,) = (one.model_copy(update={"waits": True}) for one in found.compute)
    left = compute_of(found.model_copy(update={"compute": (waiting,)}), layout("fsdp:s4"), work)
    assert left is not None
    for backward_s, longer in ((20e-3, True), (10e-3, False)):
        free = waiting.model_copy(update={"waits": False, "forward_s": ((6e-3,),), "backward_s": ((backward_s,),)})
        parts = compute_of(found.model_copy(update={"compute": (free, waiting)}), layout("fsdp:s4"), work)
        assert parts == (pytest.approx((8e-3, 20e-3, 4e-3)) if longer else left)


def test_on_accelerators_compute_hides_half_of_itself() -> None:
    work = make_workload("tiny", 8, 32)
    time = predicted("fsdp:s4", made(work, "fsdp:s4", device="cuda"), work, HALF)
    forward = 3e-3 + 1e-8 * (ROOT + 2 * BLOCK)  # 9.6 ms, of which 5 are hidden
    backward = 5e-3 + 1e-8 * (ROOT + 4 * BLOCK)  # 15.5 ms, of which 10 are
    norms = 1e-3 + 1e-8 * 1024
    assert time.exposed_s["dp_shard"] == pytest.approx(forward - 5e-3 + backward - 10e-3 + norms)
    assert time.communication_s["dp_shard"] == pytest.approx(forward + backward + norms)


def test_buckets_of_ddp_are_on_their_way_while_backward_goes_on() -> None:
    """Only between hosts. tiny has one bucket, which is full when backward ends."""
    tiny = make_workload("tiny", 8, 32)
    one = 1e-3 + 1e-8 * DDP
    assert predicted("ddp:r4", made(tiny, "ddp:r4", hosts=2), tiny).exposed_s["dp_replicate"] == pytest.approx(one)
    # small: the head's gradient, 2 MiB, is the first bucket and 1/8 of all bytes: ready after 2.5 of 20 ms
    small = make_workload("small", 8, 32)
    first, total = 4 * 2048 * 256, 4 * small.model.param_count
    found = made(small, "ddp:r4", hosts=2)
    time = predicted("ddp:r4", found, small)
    hidden = time.communication_s["dp_replicate"] - time.exposed_s["dp_replicate"]
    assert hidden == pytest.approx(20e-3 * (1 - first / total), rel=0.1)
    alone = predicted("ddp:r4", made(small, "ddp:r4"), small)
    assert alone.exposed_s == alone.communication_s


def test_the_same_work_a_rank_has_the_same_compute() -> None:
    """On twice the ranks fsdp's optimizer has half as many parameters; another batch a rank is other work."""
    work = make_workload("tiny", 8, 32)
    found = made(work, "fsdp:s4")
    twice = work.model_copy(update={"global_batch": 16})
    parts = compute_of(found, layout("fsdp:s8"), twice)
    assert parts == pytest.approx((10e-3, 20e-3, 2e-3))
    assert compute_of(found, layout("fsdp:s8"), work) is None
    assert compute_of(found, layout("ddp:r8"), twice) is None
    assert compute_of(found, layout("fsdp:s4"), make_workload("small", 8, 32)) is None


def test_links_stand_in_for_groups_that_were_not_timed() -> None:
    work = make_workload("tiny", 16, 32)
    found = made(make_workload("tiny", 8, 32), "fsdp:s4")
    place = layout("fsdp:s8")
    assert calibrated_time(found, place, work, TORCH) is None
    network = Network(link=1e9, nic=1e8, source="made up for tests")
    time = calibrated_time(found, place, work, TORCH, Cluster(network, 4))
    assert time is not None
    gathers = [network.collective_s(size, 8, 2) for size in (ROOT, *4 * [BLOCK])]
    scatters = [network.collective_s(size, 8, 2, scatter=True) for size in (ROOT, *2 * [BLOCK])]
    norms = network.collective_s(84, 8, 2, all_reduce=True)
    assert time.exposed_s["dp_shard"] == pytest.approx(sum(gathers) + sum(scatters) + norms)


def test_times_between_and_beyond_measured_sizes() -> None:
    found: OperationFit = fit("all_gather", {1000: [1e-3], 4000: [2e-3], 16000: [8e-3]})
    assert [found.measured_s(size) for size in (10, 1000, 4000)] == pytest.approx([1e-3, 1e-3, 2e-3])
    assert found.measured_s(2000) == pytest.approx(2e-3 / 2**0.5)  # half way in logarithms
    assert found.measured_s(8000) == pytest.approx(4e-3)
    grows = found.time_s(32000) / found.time_s(16000)
    assert found.measured_s(32000) == pytest.approx(8e-3 * grows)


def test_a_profile_is_the_slowest_ranks_step() -> None:
    """Two ranks, three steps: the slowest ranks take 3, 5 and 4; the parts share the median as all times do."""
    profile = ComputeProfile(
        layout=layout("ddp:r2"),
        forward_s=((1.0, 1.0, 1.0), (1.0, 1.0, 1.0)),
        backward_s=((1.0, 3.0, 1.0), (1.0, 1.0, 2.0)),
        optimizer_s=((1.0, 1.0, 1.0), (1.0, 1.0, 1.0)),
    )
    assert profile.parts.step == pytest.approx(4.0)
    assert profile.parts == pytest.approx((4 * 6 / 21, 4 * 9 / 21, 4 * 6 / 21))
