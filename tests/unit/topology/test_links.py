from __future__ import annotations

from collections.abc import Iterable

import pytest

from harness.errors import TopologyError
from harness.topology.links import (
    between_nodes,
    domains,
    fully_connected,
    groups,
    islands,
    link_between,
    suggested_mesh,
)
from harness.topology.model import Device, Link, LinkClass, Node, Topology
from harness.topology.slurm_topology import read as read_fabric


def node(
    count: int,
    fast: Iterable[tuple[int, int]] = (),
    numa: list[int] | None = None,
    near: Iterable[tuple[int, int]] = (),
    host: str = "n",
) -> Node:
    """``count`` devices; ``fast`` pairs have NVLink, ``near`` pairs one host bridge, the rest cross sockets."""
    fast, near = set(fast), set(near)
    devices = tuple(Device(index=index, numa_node=numa[index] if numa else None) for index in range(count))
    links = tuple(
        Link(a=a, b=b, link_class=_class((a, b), fast, near)) for a in range(count) for b in range(a + 1, count)
    )
    return Node(host=host, devices=devices, links=links)


def _class(pair: tuple[int, int], fast: set[tuple[int, int]], near: set[tuple[int, int]]) -> LinkClass:
    if pair in fast:
        return LinkClass.NVLINK
    return LinkClass.HOST_BRIDGE if pair in near else LinkClass.OTHER_SOCKET


def every(members: Iterable[int]) -> set[tuple[int, int]]:
    chosen = sorted(members)
    return {(a, b) for at, a in enumerate(chosen) for b in chosen[at + 1 :]}


CUBE = every(range(4)) | every(range(4, 8)) | {(0, 4), (1, 5), (2, 6), (3, 7)}


def test_cube_mesh_is_one_island_and_two_cliques() -> None:
    cube = node(8, CUBE)
    assert islands(cube) == (tuple(range(8)),)
    assert not fully_connected(cube)
    assert groups(cube) == ((0, 1, 2, 3), (4, 5, 6, 7))


def test_ring_of_four_is_two_pairs() -> None:
    assert groups(node(4, {(0, 1), (1, 2), (2, 3), (0, 3)})) == ((0, 1), (2, 3))


def test_islands_go_before_numa_nodes() -> None:
    crossing = node(6, {(0, 3), (1, 4), (2, 5)}, numa=[0, 0, 0, 1, 1, 1])
    assert groups(crossing) == ((0, 3), (1, 4), (2, 5))


def test_numa_nodes_divide_what_nvlink_joins_entirely() -> None:
    assert groups(node(4, every(range(4)), numa=[1, 1, 0, 0])) == ((0, 1), (2, 3))
    assert groups(node(4, every(range(4)), numa=[0, 1, 1, 1])) == ((0, 1, 2, 3),)


def test_a_single_bridge_does_not_make_groups() -> None:
    assert groups(node(3, {(0, 1)}, numa=[0, 0, 0])) == ((0, 1, 2),)
    assert groups(node(4, {(0, 1)}, numa=[0, 0, 1, 1])) == ((0, 1), (2, 3))
    assert groups(node(4, {(0, 2)}, numa=[0, 0, 1, 1])) == ((0, 1, 2, 3),)  # a socket would cut the bridge


def test_without_nvlink_and_numa_the_socket_crossings_tell() -> None:
    assert groups(node(4, near={(0, 1), (2, 3)})) == ((0, 1), (2, 3))
    assert groups(node(4)) == ((0, 1, 2, 3),)  # every pair crosses: a VM, not four sockets
    assert groups(node(5, near=every(range(5)))) == ((0, 1, 2, 3, 4),)


def test_domains_come_from_cpu_lists_only_where_these_differ() -> None:
    def with_cpus(*cpus: str) -> Node:
        return Node(host="n", devices=tuple(Device(index=i, cpus=one) for i, one in enumerate(cpus)))

    assert domains(with_cpus("0-3,8-11", "4-7", "4-7", "0-3,8-11")) == ((0, 3), (1, 2))
    assert domains(with_cpus("0-7", "0-7")) is None
    assert domains(with_cpus("0-7", "4-9")) is None


def test_mesh_over_nodes() -> None:
    eight, four = node(8, every(range(8))), node(4, every(range(4)))
    assert suggested_mesh(Topology(nodes=(eight, eight))) == (2, 8)
    assert suggested_mesh(Topology(nodes=(eight, four))) == (3, 4)
    assert suggested_mesh(Topology(nodes=(eight, node(7, every(range(7)))))) is None
    assert suggested_mesh(Topology(nodes=(Node(host="n"),))) is None


def test_link_between_devices_of_one_node() -> None:
    one = Topology(nodes=(node(4, {(0, 1)}, near={(2, 3)}),))
    assert link_between(one, (0, 1), (0, 0)) is LinkClass.NVLINK
    assert link_between(one, (0, 2), (0, 3)) is LinkClass.HOST_BRIDGE
    for bad in (((0, 1), (0, 1)), ((0, 1), (0, 9)), ((0, 1), (1, 0))):
        with pytest.raises(TopologyError):
            link_between(one, *bad)
    slots = Topology(nodes=(Node(host="c", devices=(Device(index=0, kind="cpu"), Device(index=1, kind="cpu"))),))
    assert link_between(slots, (0, 0), (0, 1)) is LinkClass.HOST_MEMORY


def test_link_between_nodes_follows_the_switches() -> None:
    tree = "SwitchName=top Switches=l[1-2]\nSwitchName=l1 Nodes=a,b\nSwitchName=l2 Nodes=c\nSwitchName=l3 Nodes=d\n"
    topology, fabric = read_fabric(tree)
    a, b, c, d = topology.nodes
    assert between_nodes(a, b) is LinkClass.SAME_SWITCH
    assert between_nodes(a, c) is LinkClass.OTHER_SWITCH
    assert between_nodes(a, d) is LinkClass.NETWORK
    assert between_nodes(Node(host="x"), Node(host="y")) is LinkClass.NETWORK
    assert [fabric.distance("a", other) for other in "abcd"] == [1, 1, 3, None]
    with pytest.raises(TopologyError):
        fabric.distance("a", "nowhere")


def test_distance_in_a_cycle_is_the_shortest() -> None:
    text = "SwitchName=a Switches=b,l1\nSwitchName=b Switches=a,l2\nSwitchName=l1 Nodes=x\nSwitchName=l2 Nodes=y\n"
    topology, fabric = read_fabric(text)
    assert fabric.cyclic and fabric.distance("x", "y") == 4
    assert between_nodes(*topology.nodes) is LinkClass.OTHER_SWITCH


def test_blocks_are_near_and_far() -> None:
    topology, _ = read_fabric("BlockName=b1 Nodes=n[1-2]\nBlockName=b2 Nodes=n3\nBlockSizes=2\n")
    assert between_nodes(topology.nodes[0], topology.nodes[1]) is LinkClass.SAME_SWITCH
    assert between_nodes(topology.nodes[0], topology.nodes[2]) is LinkClass.OTHER_SWITCH
