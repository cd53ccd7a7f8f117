"""Bytes on links, worked out by hand for two nodes of two devices."""

from __future__ import annotations

from collections import Counter

import pytest

from harness.predict.collectives import step_collectives
from harness.predict.proof import prove
from harness.predict.wire import Algorithm, edges, groups_on, parent, wire_traffic
from harness.topology.model import Device, LinkClass, Node, Topology
from harness.traffic import Collective, Operation, Port, Traffic
from harness.workload import PRESETS, Workload
from tests.unit.factories import layout

TINY = Workload(model=PRESETS["tiny"], global_batch=8, seq_len=32)


def cluster(nodes: int, per_node: int) -> Topology:
    devices = tuple(Device(index=index, kind="cpu") for index in range(per_node))
    return Topology(nodes=tuple(Node(host=f"node{at}", devices=devices) for at in range(nodes)))


def one(operation: Operation, axis: str, group_size: int, size_bytes: int) -> Collective:
    return Collective(
        operation=operation,
        axis=axis,
        group_size=group_size,
        dtype="float32",
        phase="backward",
        size_bytes=size_bytes,
        count=1,
    )


def test_a_ring_over_two_nodes_crosses_twice() -> None:
    """4 ranks all-reduce 400 bytes: each sends 2 * 3/4 * 400 = 600, two of the four cross."""
    found = wire_traffic([one("all_reduce", "dp_replicate", 4, 400)], layout("ddp:r4"), cluster(2, 2), "gloo")
    assert found.rank_sent_bytes == (600,) * 4
    assert found.node_sent_bytes == found.node_received_bytes == (600, 600)
    assert {(link.link_class, link.sent_bytes) for link in found.links} == {
        (LinkClass.HOST_MEMORY, 1200),
        (LinkClass.NETWORK, 1200),
    }
    assert found.cross_node_share == 0.5


@pytest.mark.parametrize(
    ("algorithm", "operation", "sent"),
    [
        ("nccl_ring", "reduce_scatter", (300, 300, 300, 300)),
        ("gloo", "reduce_scatter", (600, 600, 600, 600)),  # all-reduces the whole
        ("gloo", "all_gather", (300, 300, 300, 300)),
        ("nccl_ring", "broadcast", (400, 400, 400, 0)),  # a chain
        ("gloo", "broadcast", (800, 400, 0, 0)),  # 0 -> 1, then 0 -> 2 and 1 -> 3
        ("gloo", "gather", (0, 100, 100, 100)),
        ("gloo", "scatter", (300, 0, 0, 0)),
        ("gloo", "reduce", (300, 400, 400, 400)),
        ("nccl_ring", "all_to_all", (300, 300, 300, 300)),
    ],
)
def test_who_sends_how_much(algorithm: Algorithm, operation: Operation, sent: tuple[int, ...]) -> None:
    found = wire_traffic([one(operation, "dp_shard", 4, 400)], layout("fsdp:s4"), cluster(2, 2), algorithm)
    assert found.rank_sent_bytes == sent


@pytest.mark.parametrize("nodes", [2, 3, 4, 5, 8])
def test_a_double_tree_sends_the_data_up_and_down_each_joint(nodes: int) -> None:
    """Two devices a node: 2 S over the joint in each node, 2 S over each of nodes - 1 joints between nodes."""
    found = wire_traffic(
        [one("all_reduce", "dp_replicate", 2 * nodes, 400)],
        layout(f"ddp:r{2 * nodes}"),
        cluster(nodes, 2),
        "nccl_tree",
    )
    assert found.cross_node_bytes == 2 * 400 * (nodes - 1)
    assert found.sent_bytes - found.cross_node_bytes == 2 * 400 * nodes


def test_the_trees_are_nccls_own() -> None:
    """Eight nodes, drawn in NCCL's trees.cc: 1 and 3 below 2, 5 and 7 below 6, 2 and 6 below 4, 4 below 0."""
    assert [parent(at, 8) for at in range(1, 8)] == [2, 4, 2, 0, 6, 4, 6]
    assert Counter(edges("tree", range(2))) == Counter({(1, 0): 2, (0, 1): 2})


def test_hsdp_keeps_shards_inside_nodes() -> None:
    """Only the all-reduce of parts over dp_replicate crosses; with two replicas each rank sends its part once."""
    chosen = layout("hsdp:r2s2")
    collectives = step_collectives(chosen, TINY)
    found = wire_traffic(collectives, chosen, cluster(2, 2), "nccl_ring")
    part = sum(c.total_bytes for c in collectives if c.axis == "dp_replicate")
    assert found.node_sent_bytes == (2 * part, 2 * part)
    flat = layout("fsdp:s4")
    other = wire_traffic(step_collectives(flat, TINY), flat, cluster(2, 2), "nccl_ring")
    assert other.cross_node_share == 0.5
    assert found.cross_node_bytes < other.cross_node_bytes


def test_order_moves_groups() -> None:
    assert groups_on(layout("hsdp:r2s2"), "dp_shard", 2) == ((0, 1), (2, 3))
    assert groups_on(layout("hsdp:r2s2+order=dp_shard/dp_replicate/tp"), "dp_shard", 2) == ((0, 2), (1, 3))
    assert groups_on(layout("fsdp:s4"), "dp_shard", 2) == ((0, 1), (2, 3))
    assert groups_on(layout("hsdp:r2s2"), "dp_replicate+dp_shard", 4) == ((0, 1, 2, 3),)


def test_headers_come_off_by_the_packet() -> None:
    """Two steps of 1,200 bytes across, in 10 packets a host."""
    collectives = (one("all_reduce", "dp_replicate", 4, 400),)
    ports = [
        Port(
            host=f"node{at}",
            name=name,
            kind="ethernet",
            carries_ranks=name == "eth0",
            sent_bytes=1200 + 10 * 66 if name == "eth0" else 10**9,
            received_bytes=0,
            sent_packets=10,
            received_packets=0,
        )
        for at in range(2)
        for name in ("eth0", "eth1")
    ]
    traffic = Traffic(collectives=collectives, rank_bytes=(400,) * 4, steps=2, ports=tuple(ports))
    found = prove(traffic, wire_traffic(collectives, layout("ddp:r4"), cluster(2, 2), "gloo"))
    assert found is not None
    assert (found.accounted_bytes, found.measured_bytes, found.header_bytes) == (2400, 2400, 1320)
    assert found.ratio == 1
    assert found.holds


def test_nothing_is_proved_where_nothing_crosses_or_a_host_is_silent() -> None:
    collectives = (one("all_reduce", "dp_replicate", 4, 400),)
    silent = Traffic(collectives=collectives, rank_bytes=(400,) * 4, steps=2)
    assert prove(silent, wire_traffic(collectives, layout("ddp:r4"), cluster(2, 2), "gloo")) is None
    assert prove(silent, wire_traffic(collectives, layout("ddp:r4"), cluster(1, 4), "gloo")) is None
