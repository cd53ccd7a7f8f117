"""Which layouts a sweep tries, with and without a topology."""

from __future__ import annotations

import pytest

from harness.errors import IllegalLayoutError, UsageError
from harness.layout import parse_layout
from harness.layout.candidates import Candidates, candidates, default_requests, with_order
from harness.layout.order import parse_order
from harness.layout.subset import described, use_gpus
from harness.topology.model import Device, Node, Topology
from harness.workload import PRESETS, Workload

TINY = Workload(model=PRESETS["tiny"], global_batch=48, seq_len=64)
TWO_BY_EIGHT = described(2, 8)


def uneven(*counts: int) -> Topology:
    return Topology(
        nodes=tuple(
            Node(host=f"node{at}", devices=tuple(Device(index=index) for index in range(count)))
            for at, count in enumerate(counts)
        )
    )


def rules(found: Candidates) -> dict[str, str]:
    return {e.layout.text: e.rule for e in found.excluded}


def test_without_a_topology_nothing_is_placed() -> None:
    found = candidates((), TINY, 4)
    assert not found.placements
    assert not found.notes
    assert [layout.text for layout in found.layouts] == [
        *("ddp:r4", "fsdp:s4", "hsdp:r2s2", "tp:t4", "fsdp_tp:s2t2", "ddp_tp:r2t2"),
    ]
    assert rules(found) == {"hsdp_tp:r1": "world_size"}


def test_one_rank_is_the_reference_alone() -> None:
    assert [layout.text for layout in candidates((), TINY, 1, described(1, 1)).layouts] == ["single:r1"]


def test_of_sixteen_thousand_gpus_no_shape_comes_twice() -> None:
    workload = Workload(model=PRESETS["405b"], global_batch=16384, seq_len=8192)
    found = candidates((), workload, 16384, described(2048, 8))
    every = [*found.layouts, *(e.layout for e in found.excluded)]
    assert len({layout.mesh for layout in every}) == len(every) == 120
    assert all(layout.mesh.world_size == 16384 for layout in every)
    assert len(found.placements) == len(found.layouts)
    assert found.layouts[0].text == "hsdp:r2048s8"


def test_node_aligned_shapes_come_first_and_flat_ones_later() -> None:
    found = candidates((), TINY, 16, TWO_BY_EIGHT)
    aligned = [placement.node_aligned for placement in found.placements]
    assert aligned == sorted(aligned, reverse=True)
    order = [layout.text for layout in found.layouts]
    assert order[0] == "hsdp:r2s8"
    assert order.index("hsdp:r4s4") < order.index("fsdp:s16")


def test_on_one_node_the_order_of_the_requests_stays() -> None:
    plain, placed = candidates((), TINY, 4), candidates((), TINY, 4, described(1, 4))
    assert plain.layouts == placed.layouts


def test_tp_across_nodes_is_excluded_by_rule_unless_allowed() -> None:
    small = described(4, 2)
    found = candidates((), TINY, 8, small)
    assert {text for text, rule in rules(found).items() if rule == "cross_node_tp"} == {"fsdp_tp:s2t4", "ddp_tp:r2t4"}
    reason = next(e.reason for e in found.excluded if e.rule == "cross_node_tp")
    assert "tp=4 crosses nodes of 2 devices; tp=2 stays inside a node, or pass --allow-cross-node-tp" in reason
    allowed = candidates((), TINY, 8, small, allow_cross_node_tp=True)
    assert "cross_node_tp" not in rules(allowed).values()
    assert allowed.layouts[-1].mesh.tp == 4


def test_a_mesh_asked_for_with_tp_across_nodes_is_refused() -> None:
    request = parse_layout("fsdp_tp:s2t4")
    with pytest.raises(IllegalLayoutError, match="--allow-cross-node-tp") as raised:
        candidates((request,), TINY, 8, described(4, 2))
    assert raised.value.rule == "cross_node_tp"
    assert candidates((request,), TINY, 8, described(4, 2), allow_cross_node_tp=True).layouts[0].mesh.tp == 4
    with pytest.raises(IllegalLayoutError, match="use a layout without tp, or pass --allow-cross-node-tp"):
        candidates((parse_layout("ddp_tp:r2t2"),), TINY, 4, described(4, 1))


def test_an_order_with_tp_outermost_makes_tp_cross() -> None:
    found = candidates(
        with_order(default_requests(16), parse_order("tp,dp_shard,dp_replicate")), TINY, 16, TWO_BY_EIGHT
    )
    assert all(layout.mesh.tp == 1 for layout in found.layouts)
    assert "let tp run fastest with --order dp_replicate,dp_shard,tp" in next(
        e.reason for e in found.excluded if e.rule == "cross_node_tp"
    )


def test_nodes_of_eight_and_four() -> None:
    found = candidates((), TINY, 12, uneven(8, 4))
    assert found.notes == (
        "nodes have 8 (node0) and 4 (node1) devices; take 4 on each node with --use-gpus 0-3, or fewer",
    )
    assert {text for text, rule in rules(found).items() if rule == "uneven_nodes"} == {
        *("hsdp:r2s6", "hsdp:r4s3", "hsdp_tp:r2s3t2"),
    }
    assert found.layouts[0].text == "hsdp:r3s4"
    even = use_gpus(uneven(8, 4), "0-3")
    assert candidates((), TINY, 8, even).notes == ()


def test_a_missing_gpu_leaves_flat_layouts_or_a_subset() -> None:
    workload = Workload(model=PRESETS["tiny"], global_batch=15, seq_len=64)
    found = candidates((), workload, 15, uneven(8, 7))
    assert [layout.text for layout in found.layouts] == ["ddp:r15", "fsdp:s15"]
    assert rules(found)["hsdp:r3s5"] == "uneven_nodes"
    assert "--use-gpus 0-6" in found.notes[0]
    with pytest.raises(IllegalLayoutError, match="--use-gpus 0-6"):
        candidates((parse_layout("hsdp:r3s5"),), workload, 15, uneven(8, 7))


def test_fewer_ranks_use_the_first_devices() -> None:
    found = candidates((), TINY, 8, TWO_BY_EIGHT)
    assert not any(axis.crosses_nodes for placement in found.placements for axis in placement.axes)
    with pytest.raises(UsageError, match="32 ranks, but the machine has 16 devices"):
        candidates((), TINY, 32, TWO_BY_EIGHT)


def test_layouts_asked_for_twice_come_once() -> None:
    requests = [parse_layout(text) for text in ("fsdp", "fsdp:s4", "fsdp")]
    assert [layout.text for layout in candidates(requests, TINY, 4, described(2, 2)).layouts] == ["fsdp:s4"]


def test_nothing_legal_is_one_line_with_the_reasons() -> None:
    with pytest.raises(UsageError, match=r"no layout is legal on 7 ranks .*change --ranks, --batch or --model"):
        candidates((), Workload(model=PRESETS["tiny"], global_batch=8, seq_len=64), 7)
