"""The contract: made from a machine, written, read back, refused."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.errors import UsageError
from harness.layout import AXES, Mesh
from harness.layout.subset import described, grouped
from harness.mesh import MeshContract, contract_mesh, make_contract, read_contract
from harness.mesh.contract import AxisContract, DeviceContract, HostContract
from harness.mesh.toml import contract_toml, parse_contract
from harness.topology.model import Device, Link, LinkClass, Node, Topology
from tests.unit.mesh.machines import pairs, two_by_four

MESH = Mesh(dp_replicate=2, dp_shard=2, tp=2)
SWAPPED = ("tp", "dp_shard", "dp_replicate")


def test_a_machines_contract_states_devices_and_links() -> None:
    contract = make_contract(two_by_four(), MESH, name="pairs")
    assert [(axis, c.size, c.link_class, c.nvlink_count) for axis, c in contract.axes.items()] == [
        ("dp_replicate", 2, LinkClass.NETWORK, None),
        ("dp_shard", 2, LinkClass.OTHER_SOCKET, None),
        ("tp", 2, LinkClass.NVLINK, 4),
    ]
    assert [host.host for host in contract.hosts] == ["node0", "node1"]
    assert contract.hosts[1].devices[2].uuid == "GPU-node1-2"


def test_what_is_unknown_is_left_out() -> None:
    contract = make_contract(described(2, 4), MESH)
    assert contract.axes["tp"].link_class is None
    assert "uuid" not in contract_toml(contract)


def test_places_follow_the_order() -> None:
    plain, swapped = make_contract(two_by_four(), MESH), make_contract(two_by_four(), MESH, SWAPPED)
    assert [tuple(slot) for slot in plain.slots()] == [(host, local) for host in range(2) for local in range(4)]
    assert [tuple(slot) for slot in swapped.slots()][:4] == [(0, 0), (1, 0), (0, 2), (1, 2)]
    assert swapped.axes["tp"].link_class is LinkClass.NETWORK
    assert plain.digest != swapped.digest


def test_the_shape_that_a_machine_suggests() -> None:
    assert contract_mesh(two_by_four()) == Mesh(dp_replicate=2, dp_shard=4)
    one_node = Topology(nodes=two_by_four().nodes[:1])
    assert contract_mesh(one_node) == Mesh(dp_replicate=2, dp_shard=2)
    assert contract_mesh(described(1, 4)) == Mesh(dp_shard=4)
    apart = pairs("n").model_copy(update={"links": ()})
    alone = tuple(device.model_copy(update={"numa_node": device.index}) for device in apart.devices)
    assert contract_mesh(Topology(nodes=(apart.model_copy(update={"devices": alone}),))) == Mesh(dp_shard=4)
    with pytest.raises(UsageError, match="nodes differ"):
        contract_mesh(Topology(nodes=(*one_node.nodes, *described(1, 3).nodes)))
    with pytest.raises(UsageError, match="no devices"):
        contract_mesh(Topology(nodes=(Node(host="login"),)))


def test_nvlink_pairs_that_cross_numbers_come_side_by_side() -> None:
    links = tuple(
        Link(a=a, b=b, link_class=LinkClass.NVLINK if (b - a) == 2 else LinkClass.OTHER_SOCKET)
        for a in range(4)
        for b in range(a + 1, 4)
    )
    crossed = Topology(nodes=(Node(host="n", devices=tuple(Device(index=i) for i in range(4)), links=links),))
    contract = make_contract(grouped(crossed), Mesh(dp_replicate=2, dp_shard=2))
    assert [device.index for device in contract.hosts[0].devices] == [0, 2, 1, 3]
    assert contract.axes["dp_shard"].link_class is LinkClass.NVLINK
    assert make_contract(crossed, Mesh(dp_replicate=2, dp_shard=2)).axes["dp_shard"].link_class is (
        LinkClass.OTHER_SOCKET
    )


def test_a_mesh_of_another_size_is_refused() -> None:
    with pytest.raises(UsageError, match="mesh s4 has 4 ranks and the machine 8 devices; choose devices"):
        make_contract(two_by_four(), Mesh(dp_shard=4))


TEXT = st.text(min_size=1, max_size=8)


@st.composite
def contracts(draw: st.DrawFn) -> MeshContract:
    sizes = draw(st.tuples(*[st.integers(1, 3)] * 3))
    left, hosts = sizes[0] * sizes[1] * sizes[2], list[HostContract]()
    names = iter(draw(st.lists(TEXT.filter(lambda t: t != "*"), min_size=left, max_size=left, unique=True)))
    while left:
        count = draw(st.integers(1, left))
        device = st.builds(DeviceContract, index=st.just(0), name=st.none() | TEXT, uuid=st.none() | TEXT)
        devices = tuple(draw(device).model_copy(update={"index": at}) for at in range(count))
        hosts.append(HostContract(host=draw(st.sampled_from(["*", next(names)])), devices=devices))
        left -= count
    link = st.none() | st.sampled_from(LinkClass)
    axes = {axis: AxisContract(size=size, link_class=draw(link)) for axis, size in zip(AXES, sizes, strict=True)}
    order = tuple(draw(st.permutations(AXES)))
    return MeshContract(name=draw(TEXT), order=order, axes=axes, hosts=tuple(hosts))


@settings(max_examples=30)
@given(contracts())
def test_any_contract_is_read_back_from_its_text(contract: MeshContract) -> None:
    assert parse_contract(contract_toml(contract)) == contract
    assert parse_contract(contract_toml(contract)).digest == contract.digest


def test_files(tmp_path: Path) -> None:
    path = tmp_path / "mesh.toml"
    path.write_text(contract_toml(make_contract(two_by_four(), MESH)))
    assert read_contract(path) == make_contract(two_by_four(), MESH)
    with pytest.raises(UsageError, match=r"cannot read .*other.toml: No such file.*'meshsweep mesh init --out"):
        read_contract(tmp_path / "other.toml")
    path.write_bytes(b"\xff\xfe")
    with pytest.raises(UsageError, match="it is not UTF-8"):
        read_contract(path)


GOOD = contract_toml(make_contract(two_by_four(), MESH))


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("schema = 1", "schema = 2", "schema is 2 and this version reads 1"),
        ("schema = 1", "schema 1", "is not TOML"),
        ("[axes.tp]\nsize = 2", "[axes.tp]\nsize = 4", "axes 2 x 2 x 4 need 16 devices and the hosts list 8"),
        ("[axes.tp]\nsize = 2", "[axes.tp]\nsize = 0", "axes.tp.size: Input should be greater than or equal to 1"),
        ("[axes.tp]", "[axes.pp]", "axes must be dp_replicate, dp_shard, tp"),
        ('"dp_shard", "tp"]', '"dp_shard"]', "order must name each of dp_replicate, dp_shard, tp once"),
        ('host = "node1"', 'host = "node0"', "host node0 is listed twice"),
        ("index = 3", "index = 2", "host node0 lists a device twice"),
        ("size = 2", "size = 2\nsizes = 3", "axes.dp_replicate.sizes: Extra inputs are not permitted"),
    ],
)
def test_a_wrong_shape_fails_when_it_is_read(old: str, new: str, words: str) -> None:
    with pytest.raises(UsageError) as raised:
        parse_contract(GOOD.replace(old, new, 1), "mesh.toml")
    assert words in str(raised.value)
    assert str(raised.value).startswith("mesh.toml")
    assert "\n" not in str(raised.value)


@given(st.text())
def test_no_text_raises_anything_else(text: str) -> None:
    with pytest.raises(UsageError):
        parse_contract(text)
