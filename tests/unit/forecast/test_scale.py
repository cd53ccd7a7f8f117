"""Growing measured layouts to more nodes."""

from __future__ import annotations

from itertools import pairwise

import pytest

from harness.errors import UsageError
from harness.forecast.calibrated import nic_of
from harness.forecast.scale import Measured, Scaling, grown, scale
from harness.layout import Layout, parse_layout
from harness.predict.device import Device
from harness.predict.network import Line, MeasuredGroup, Network
from harness.predict.software import NOMINAL
from harness.workload import make_workload

SLOW = Device(
    name="made",
    peak=1e15,
    attention=1e15,
    matmul=8e14,
    matmul_fp8=8e14,
    memory_bandwidth=3e12,
    memory_bytes=None,
    compute_units=132,
    source="made up for tests",
)
NETWORK = Network(link=450e9, nic=1e9, source="made up for tests")


def layout(text: str) -> Layout:
    request = parse_layout(text)
    assert request.mesh is not None
    return Layout(strategy=request.strategy, mesh=request.mesh, options=request.options)


def measured(text: str, step: float) -> Measured:
    return Measured(layout=layout(text), step_time_s=step, low_s=0.99 * step, high_s=1.01 * step)


def grow(*cells: Measured, nodes: int = 16) -> Scaling:
    return scale(cells, make_workload("8b", 16, 2048), 8, nodes, SLOW, NETWORK, NOMINAL)


def test_the_outermost_data_parallel_axis_grows() -> None:
    texts = {"ddp:r4": "ddp:r16", "fsdp:s4": "fsdp:s16", "hsdp:r2s2": "hsdp:r8s2", "fsdp_tp:s2t2": "fsdp_tp:s8t2"}
    for before, after in texts.items():
        bigger = grown(layout(before), 4)
        assert bigger is not None
        assert bigger.text == after
    assert grown(layout("tp:t4"), 4) is None


def test_at_the_measured_nodes_nothing_is_added() -> None:
    found = grow(measured("fsdp:s16", 1.0))
    first = found.at(2)[0]
    assert (first.step_time_s, first.low_s, first.high_s, first.change_s) == (1.0, 0.99, 1.01, 0.0)


def test_intervals_grow_with_distance() -> None:
    found = grow(measured("hsdp:r2s8", 1.0))
    widths = [found.at(count)[0].high_s - found.at(count)[0].low_s for count in found.nodes]
    assert found.nodes == (2, 4, 8, 16)
    assert all(later > earlier for earlier, later in pairwise(widths))
    # three doublings, by hand
    last = found.at(16)[0]
    doubt = ((0.5 * last.change_s) ** 2 + 0.09**2 + 0.01**2) ** 0.5
    assert last.high_s == pytest.approx(last.step_time_s + doubt)


def test_another_layout_wins_from_some_node_on() -> None:
    # flat sharding is a little faster on two nodes; its gathers cross all nodes, a mesh's only its gradients
    network = NETWORK.model_copy(update={"nic": 20e9})
    cells = (measured("fsdp:s16", 1.0), measured("hsdp:r2s8", 1.01))
    found = scale(cells, make_workload("8b", 16, 2048), 8, 512, SLOW, network, NOMINAL)
    assert [(change.before.split(":")[0], change.winner.split(":")[0]) for change in found.changes] == [
        ("fsdp", "hsdp")
    ]


def test_wrong_use() -> None:
    with pytest.raises(UsageError, match="multiple of the 2 nodes"):
        grow(measured("fsdp:s16", 1.0), nodes=5)
    with pytest.raises(UsageError, match="could grow"):
        grow(measured("tp:t4", 1.0))


def test_nic_of_a_calibration() -> None:
    # 8 ranks on 2 nodes: 1.75 of the tensor through each rank, over 4 NICs a node
    group = MeasuredGroup(ranks=8, nodes=2, all_reduce=Line(latency_s=0.0, bandwidth=1e9))
    inside = MeasuredGroup(ranks=4, nodes=1, all_reduce=Line(latency_s=0.0, bandwidth=9e9))
    assert nic_of((group, inside)) == pytest.approx(1.75e9 / 4)
    assert nic_of((inside,)) is None
