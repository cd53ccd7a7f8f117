"""The groups that the enumeration predicts are those that torch makes, rank by rank; a wrong contract stops a job."""

from __future__ import annotations

import pytest

from harness.layout import AXES, STRATEGIES, Layout, Mesh, parse_layout
from harness.layout.legality import meshes
from harness.layout.order import slots
from harness.layout.subset import described
from harness.mesh import MeshContract, make_contract
from harness.mesh.show import contract_text
from harness.topology.model import Topology
from tests.contract.conftest import GetGroup

pytestmark = pytest.mark.distributed

WORLD_SIZE = 8
RANKS = "tests.contract.mesh_on_ranks"
LAYOUTS = [
    Layout(strategy=strategy.name, mesh=mesh)
    for strategy in STRATEGIES.values()
    for mesh in meshes(strategy, WORLD_SIZE)
]
TWO_BY_FOUR = Mesh(dp_replicate=2, dp_shard=4)


def as_cpu(topology: Topology) -> Topology:
    """The same machine with CPU rank slots."""
    return topology.model_copy(
        update={
            "nodes": tuple(
                node.model_copy(update={"devices": tuple(d.model_copy(update={"kind": "cpu"}) for d in node.devices)})
                for node in topology.nodes
            )
        }
    )


CONTRACT = make_contract(as_cpu(described(2, 4)), TWO_BY_FOUR)
LAYOUT = Layout(strategy="hsdp", mesh=TWO_BY_FOUR)
HOSTS = ("node0",) * 4 + ("node1",) * 4
LOCAL = (0, 1, 2, 3) * 2


@pytest.mark.parametrize("layout", LAYOUTS, ids=lambda layout: layout.text)
def test_torch_makes_the_predicted_groups(layout: Layout, rank_group: GetGroup) -> None:
    axes = STRATEGIES[layout.strategy].axes
    predicted = {axis: [list(group) for group in layout.mesh.groups(axis)] for axis in axes}
    for rank, (groups, coordinate) in enumerate(rank_group(WORLD_SIZE).call(f"{RANKS}:real_groups", layout)):
        assert groups == predicted
        expected = dict(zip(AXES, layout.mesh.coordinate(rank), strict=True))
        assert coordinate == {axis: expected[axis] for axis in axes}


@pytest.mark.parametrize("mesh", meshes(STRATEGIES["hsdp"], WORLD_SIZE), ids=lambda mesh: mesh.short)
def test_groups_made_by_hand_are_those_of_hsdp(mesh: Mesh, rank_group: GetGroup) -> None:
    group = rank_group(WORLD_SIZE)
    by_hand = group.call(f"{RANKS}:groups_by_hand", mesh.dp_replicate, mesh.dp_shard)
    assert by_hand == group.call(f"{RANKS}:real_groups", Layout(strategy="hsdp", mesh=mesh))


def test_two_nodes_of_four_gpus_printed_and_asserted(rank_group: GetGroup, capsys: pytest.CaptureFixture[str]) -> None:
    print(contract_text(make_contract(described(2, 4), TWO_BY_FOUR)))
    printed = capsys.readouterr().out
    assert "dp_replicate over network: {0,4} {1,5} {2,6} {3,7}" in printed
    assert "dp_shard over any link: {0,1,2,3} {4,5,6,7}" in printed
    groups, _ = rank_group(WORLD_SIZE).call(f"{RANKS}:real_groups", LAYOUT)[0]
    assert groups == {
        "dp_replicate": [[0, 4], [1, 5], [2, 6], [3, 7]],
        "dp_shard": [[0, 1, 2, 3], [4, 5, 6, 7]],
    }


def test_slices_are_taken_by_axis_name_and_depend_on_the_rank(rank_group: GetGroup) -> None:
    mesh = Mesh(dp_replicate=2, dp_shard=2, tp=2)
    for found in rank_group(WORLD_SIZE).call(f"{RANKS}:slices"):
        rank = found["rank"]
        own = {axis: next(list(g) for g in mesh.groups(axis) if rank in g) for axis in AXES}
        assert found["tp"] == own["tp"]
        assert found["dp_replicate"] == own["dp_replicate"]
        assert found["tp size"] == 2
        # the rows run along dp_replicate, at this rank's tp coordinate
        assert found["dp"] == [[0 + rank % 2, 2 + rank % 2], [4 + rank % 2, 6 + rank % 2]]
        assert found["dp size"] == 4
        assert tuple(found["coordinate"]) == mesh.coordinate(rank)
        assert found["sizes"] == mesh.sizes


def test_a_number_is_no_slice_and_names_keep_their_order(rank_group: GetGroup) -> None:
    for found in rank_group(WORLD_SIZE).call(f"{RANKS}:slices"):
        assert found["pp"] == "KeyError"
        assert found["('tp', 'dp_shard')"] == "KeyError"
        assert found["0"] == "TypeError"


def test_a_mesh_larger_than_the_world_is_refused_by_torch(rank_group: GetGroup) -> None:
    assert all("8" in said and said != "accepted" for said in rank_group(WORLD_SIZE).call(f"{RANKS}:wrong_mesh_size"))


def test_a_right_contract_passes_on_every_rank(rank_group: GetGroup) -> None:
    group = rank_group(WORLD_SIZE)
    assert group.call(f"{RANKS}:check_as_on", CONTRACT, LAYOUT, HOSTS, LOCAL) == [None] * WORLD_SIZE


def test_a_swapped_order_moves_ranks_of_the_mesh_and_not_processes(rank_group: GetGroup) -> None:
    """Processes stay on their devices; in another order each takes another place of the mesh."""
    order = ("tp", "dp_shard", "dp_replicate")
    contract = make_contract(as_cpu(described(2, 4)), TWO_BY_FOUR, order)
    group = rank_group(WORLD_SIZE)
    assert group.call(f"{RANKS}:check_as_on", contract, LAYOUT, HOSTS, LOCAL) == [None] * WORLD_SIZE
    at = slots(TWO_BY_FOUR, order)
    hosts = tuple(f"node{slot // 4}" for slot in at)
    assert None not in group.call(f"{RANKS}:check_as_on", contract, LAYOUT, hosts, tuple(slot % 4 for slot in at))


def test_in_a_swapped_order_the_groups_are_those_of_the_placement(rank_group: GetGroup) -> None:
    """r2s4 with dp_replicate running fastest: pairs of neighbours replicate, every second rank shards."""
    request = parse_layout("hsdp:r2s4+order=tp/dp_shard/dp_replicate")
    assert request.mesh is not None
    layout = Layout(strategy=request.strategy, mesh=request.mesh, options=request.options)
    groups, _ = rank_group(WORLD_SIZE).call(f"{RANKS}:real_groups", layout)[0]
    assert groups == {
        "dp_replicate": [[0, 1], [2, 3], [4, 5], [6, 7]],
        "dp_shard": [[0, 2, 4, 6], [1, 3, 5, 7]],
    }


def everywhere(said: list[str | None]) -> str:
    """The one error that all ranks raise."""
    assert len(set(said)) == 1
    assert said[0] is not None
    assert "\n" not in said[0]
    return said[0]


def test_a_rank_on_another_host_stops_every_rank(rank_group: GetGroup) -> None:
    hosts = (*HOSTS[:3], "node1", *HOSTS[4:])
    error = everywhere(rank_group(WORLD_SIZE).call(f"{RANKS}:check_as_on", CONTRACT, LAYOUT, hosts, LOCAL))
    assert "rank 3 on node1: host: expected node0, found node1" in error
    assert "dp_shard group of ranks 0, 1, 2, 3: expected 1 host, found node0 and node1" in error


def test_another_layout_or_world_stops_every_rank(rank_group: GetGroup) -> None:
    group = rank_group(WORLD_SIZE)
    flat = Layout(strategy="fsdp", mesh=Mesh(dp_shard=8))
    error = everywhere(group.call(f"{RANKS}:check_as_on", CONTRACT, flat, HOSTS, LOCAL))
    assert "rank 0 on node0: mesh: expected r2s4t1, found r1s8t1" in error
    larger = make_contract(as_cpu(described(4, 4)), Mesh(dp_replicate=4, dp_shard=4))
    error = everywhere(group.call(f"{RANKS}:check_as_on", larger, LAYOUT, HOSTS, LOCAL))
    assert "rank 0 on node0: world size: expected 16, found 8" in error


def test_a_contract_for_gpus_stops_ranks_on_cpus(rank_group: GetGroup) -> None:
    gpus = make_contract(described(2, 4), TWO_BY_FOUR)
    error = everywhere(rank_group(WORLD_SIZE).call(f"{RANKS}:check_as_on", gpus, LAYOUT, HOSTS, LOCAL))
    assert "rank 0 on node0: device: expected GPU 0, found the CPU" in error


def test_one_rank_with_another_definition_stops_every_rank(rank_group: GetGroup) -> None:
    other = CONTRACT.model_copy(update={"name": "older"})
    contracts: tuple[MeshContract, ...] = (CONTRACT,) * 5 + (other,) + (CONTRACT,) * 2
    error = everywhere(rank_group(WORLD_SIZE).call(f"{RANKS}:check_own", contracts, LAYOUT))
    assert f"definition: expected digest {CONTRACT.digest}, found digest {other.digest}" in error
    assert "rank 5 on" in error
