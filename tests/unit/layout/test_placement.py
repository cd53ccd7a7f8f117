"""Where each axis lies: checked against groups listed one by one, on machines where the answer is known."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.errors import UsageError
from harness.layout import AXES, Layout, Mesh, parse_mesh
from harness.layout.layout import LayoutOptions
from harness.layout.mesh import strided_groups
from harness.layout.order import ordered_places, parse_order, ranks_by_slot, slots, strides
from harness.layout.placement import CLOSENESS, Placement, Placer
from harness.layout.subset import described, filled, first_devices, use_gpus
from harness.topology.links import link_between
from harness.topology.model import Device, Link, LinkClass, Node, Topology

SWAPPED = ("tp", "dp_shard", "dp_replicate")


def pairs_node(host: str, switch: str | None = None, path: tuple[str, ...] = ()) -> Node:
    """Four GPUs: NVLink joins 0-1 and 2-3, the socket interconnect all else."""
    return Node(
        host=host,
        devices=tuple(Device(index=index) for index in range(4)),
        links=tuple(
            Link(a=a, b=b, link_class=LinkClass.NVLINK if a // 2 == b // 2 else LinkClass.OTHER_SOCKET)
            for a in range(4)
            for b in range(a + 1, 4)
        ),
        switch=switch,
        switch_path=path,
    )


def place(topology: Topology, short: str, order: tuple[str, ...] = AXES) -> Placement:
    return Placer(topology, order).place(Layout(strategy="hsdp_tp", mesh=parse_mesh(short)))


def classes(placement: Placement) -> dict[str, str]:
    return {one.axis: one.link_class.value for one in placement.axes}


def test_axes_follow_nvlink_pairs_and_nodes() -> None:
    topology = Topology(nodes=(pairs_node("a"), pairs_node("b")))
    placement = place(topology, "r2s2t2")
    assert classes(placement) == {"dp_replicate": "network", "dp_shard": "other_socket", "tp": "nvlink"}
    assert placement.remark == (
        "dp_replicate crosses nodes (network); dp_shard stays inside a node (other_socket); "
        "tp stays inside a node (nvlink)"
    )
    assert placement.node_aligned
    bad = place(topology, "r2s2t2", SWAPPED)
    assert classes(bad) == {"dp_replicate": "nvlink", "dp_shard": "other_socket", "tp": "network"}
    assert bad.remark.endswith("tp crosses nodes (network): excluded unless --allow-cross-node-tp")


def test_what_each_axis_carries() -> None:
    placement = place(described(2, 4), "r2s2t2")
    assert {one.axis: one.carries for one in placement.axes} == {
        "dp_replicate": ("gradients all-reduce",),
        "dp_shard": ("parameters all-gather", "gradients reduce-scatter"),
        "tp": ("activations all-reduce",),
    }
    layout = Layout(strategy="tp", mesh=Mesh(tp=4), options=LayoutOptions(sequence_parallel=True))
    (tp,) = Placer(described(1, 4)).place(layout).axes
    assert tp.carries == ("activations all-gather", "activations reduce-scatter")


def test_switches_decide_the_class_between_nodes() -> None:
    def cluster(*switches: str) -> Topology:
        return Topology(nodes=tuple(pairs_node(f"n{i}", s, (s, "root")) for i, s in enumerate(switches)))

    assert classes(place(cluster("a", "a", "b", "b"), "r2s8"))["dp_shard"] == "same_switch"
    assert classes(place(cluster("a", "a", "b", "b"), "r2s8"))["dp_replicate"] == "other_switch"
    assert classes(place(cluster("a", "b", "a", "b"), "r2s8"))["dp_shard"] == "other_switch"
    assert classes(place(cluster("a", "b", "a", "b"), "r2s8"))["dp_replicate"] == "same_switch"
    apart = Topology(nodes=(pairs_node("x", "a", ("a",)), pairs_node("y", "b", ("b",))))
    assert classes(place(apart, "r2s4"))["dp_replicate"] == "network"


def test_groups_that_node_boundaries_cut_are_said_and_come_last() -> None:
    cut = place(described(3, 8), "r8s3")
    assert cut.axis("dp_shard") is not None
    assert "dp_shard is cut by node boundaries" in cut.remark
    assert cut.sort_key > place(described(3, 8), "s24").sort_key > place(described(3, 8), "r3s8").sort_key


@st.composite
def machines_and_meshes(draw: st.DrawFn) -> tuple[Topology, Mesh, tuple[str, ...]]:
    """A machine with random switches and pair links, and a mesh over exactly its devices."""
    sizes = draw(st.tuples(*[st.integers(1, 4)] * 3))
    mesh = Mesh(**dict(zip(AXES, sizes, strict=True)))
    nodes: list[Node] = []
    left = mesh.world_size
    while left:
        count = draw(st.integers(1, left))
        links = tuple(
            Link(a=a, b=b, link_class=draw(st.sampled_from([LinkClass.NVLINK, LinkClass.NUMA_NODE])))
            for a in range(count)
            for b in range(a + 1, count)
        )
        switch = draw(st.sampled_from([None, "s0", "s1"]))
        path = (switch, "root") if switch else ()
        devices = tuple(Device(index=index) for index in range(count))
        nodes.append(Node(host=f"n{len(nodes)}", devices=devices, links=links, switch=switch, switch_path=path))
        left -= count
    return Topology(nodes=tuple(nodes)), mesh, tuple(draw(st.permutations(AXES)))


@settings(max_examples=60)
@given(machines_and_meshes())
def test_arithmetic_agrees_with_listing_every_pair(case: tuple[Topology, Mesh, tuple[str, ...]]) -> None:
    topology, mesh, order = case
    placement = Placer(topology, order).place(Layout(strategy="hsdp_tp", mesh=mesh))
    devices = [(at, d.index) for at, node in enumerate(topology.nodes) for d in node.devices]
    rank_slots = slots(mesh, order)
    assert sorted(rank_slots) == list(range(mesh.world_size))
    for one in placement.axes:
        groups = [[devices[rank_slots[rank]] for rank in group] for group in mesh.groups(one.axis)]
        pairs = [(a, b) for group in groups for a in group for b in group if a != b]
        found = {link_between(topology, a, b) for a, b in pairs}
        assert one.crosses_nodes == any(a[0] != b[0] for a, b in pairs)
        across = {c for c in found if c.crosses_nodes} or found
        assert one.link_class == max(across, key=CLOSENESS.__getitem__)
        by_node = [sorted(node for node, _ in group) for group in groups]
        if one.crosses_nodes and not one.cut and len(set(topology.devices_per_node)) == 1:
            assert all(len({nodes.count(n) for n in nodes}) == 1 for nodes in by_node)


def test_the_default_order_puts_rank_r_on_slot_r() -> None:
    mesh = Mesh(dp_replicate=2, dp_shard=4)
    assert slots(mesh) == tuple(range(8))
    assert strides(mesh) == {"dp_replicate": 4, "dp_shard": 1, "tp": 1}


def test_another_order_moves_ranks_between_nodes() -> None:
    mesh = Mesh(dp_replicate=2, dp_shard=4)
    order = parse_order("tp,dp_shard,dp_replicate")
    assert slots(mesh, order) == (0, 2, 4, 6, 1, 3, 5, 7)
    assert ranks_by_slot(mesh, order) == (0, 4, 1, 5, 2, 6, 3, 7)
    places = ordered_places(described(2, 4), mesh, order)
    assert [(p.rank, p.host, p.local_rank, p.device) for p in places[:3]] == [
        (0, "node0", 0, 0),
        (1, "node0", 2, 2),
        (2, "node1", 0, 0),
    ]
    on_node = {p.rank: p.node for p in places}
    assert all(len({on_node[rank] for rank in group}) == 1 for group in mesh.groups("dp_replicate"))
    assert all(len({on_node[rank] for rank in group}) == 2 for group in mesh.groups("dp_shard"))


def test_the_order_agrees_with_strided_groups_of_slots() -> None:
    mesh = Mesh(dp_replicate=2, dp_shard=2, tp=3)
    for axis, stride in strides(mesh, SWAPPED).items():
        of_slots = {frozenset(g) for g in strided_groups(mesh.world_size, mesh.sizes[AXES.index(axis)], stride)}
        at = slots(mesh, SWAPPED)
        assert {frozenset(at[rank] for rank in group) for group in mesh.groups(axis)} == of_slots


@pytest.mark.parametrize("text", ["", "tp,dp_shard", "tp,tp,dp_shard", "tp,shard,dp_replicate"])
def test_an_order_must_name_every_axis(text: str) -> None:
    with pytest.raises(UsageError, match="the default is dp_replicate,dp_shard,tp"):
        parse_order(text)


def test_use_gpus_for_all_nodes_and_by_host() -> None:
    topology = Topology(nodes=(pairs_node("a.site"), pairs_node("b.site"), Node(host="login")))
    every = use_gpus(topology, "0-1,3")
    assert [[d.index for d in node.devices] for node in every.nodes] == [[0, 1, 3], [0, 1, 3]]
    assert [(link.a, link.b) for link in every.nodes[0].links] == [(0, 1), (0, 3), (1, 3)]
    one = use_gpus(topology, "b:3,0-1")
    assert [(node.host, [d.index for d in node.devices]) for node in one.nodes] == [("b.site", [3, 0, 1])]
    numbered = use_gpus(described(3, 4), "node[0,2]:0-1")
    assert [(node.host, len(node.devices)) for node in numbered.nodes] == [("node0", 2), ("node2", 2)]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("0-4", "a has no device 4; it has 0-3"),
        ("c:0", "names host c, which is not here; the hosts with devices are a,b"),
        ("0,a:1", "names hosts for some devices only"),
        ("1,1", "names a device twice"),
        ("3-0", "runs backward"),
        ("x", "'x' is no device; write 0-3,5"),
        ("", "'' is no device"),
    ],
)
def test_use_gpus_refuses_with_what_is_there(text: str, words: str) -> None:
    topology = Topology(nodes=(pairs_node("a"), pairs_node("b")))
    with pytest.raises(UsageError) as raised:
        use_gpus(topology, text)
    assert words in str(raised.value)


def test_described_clusters_have_limits() -> None:
    for nodes, gpus in ((0, 8), (1 << 18, 8), (2, 0), (2, 5000)):
        with pytest.raises(UsageError, match="give a number from 1 to"):
            described(nodes, gpus)


def test_nodes_without_device_lists_are_filled_and_cut() -> None:
    bare = Topology(nodes=(Node(host="a"), pairs_node("b")))
    assert filled(bare, 8).devices_per_node == (8, 4)
    assert first_devices(filled(bare, 8), 10).devices_per_node == (8, 2)
