"""What contradicts a contract is found, and named by rank, host, expected and found."""

from __future__ import annotations

from typing import Any

import pytest

from harness.layout import Mesh
from harness.mesh import MeshContract, MeshContractError, RankFacts, check_machine, check_ranks, make_contract
from harness.topology.model import LinkClass, Topology
from tests.unit.mesh.machines import pairs, two_by_four

MESH = Mesh(dp_replicate=2, dp_shard=2, tp=2)
CONTRACT = make_contract(two_by_four(), MESH)
ANYWHERE = make_contract(two_by_four(), MESH, any_host=True)
SWAPPED = make_contract(two_by_four(), MESH, ("tp", "dp_shard", "dp_replicate"))


def facts(contract: MeshContract = CONTRACT, **changes: dict[int, Any]) -> list[RankFacts]:
    """What all ranks say where all is well, but for ``changes``: a field's values by rank."""
    found = []
    for rank, slot in enumerate(contract.slots()):
        device = contract.device(slot)
        values: dict[str, Any] = {
            "rank": rank,
            "host": f"node{slot.host}",
            "local_rank": slot.local_rank,
            "world_size": 8,
            "mesh": "r2s2t2",
            "digest": contract.digest,
            "device": slot.local_rank,
            "uuid": device.uuid,
        }
        values.update({field: by_rank[rank] for field, by_rank in changes.items() if rank in by_rank})
        found.append(RankFacts(**values))
    return found


def texts(contract: MeshContract, found: list[RankFacts]) -> list[str]:
    return [finding.text for finding in check_ranks(contract, found)]


@pytest.mark.parametrize("contract", [CONTRACT, ANYWHERE, SWAPPED], ids=["named", "any host", "swapped"])
def test_a_job_as_the_contract_says_has_no_findings(contract: MeshContract) -> None:
    assert texts(contract, facts(contract)) == []
    assert (
        texts(contract, facts(contract, host={rank: f"node{s.host}.site" for rank, s in enumerate(contract.slots())}))
        == []
    )


def test_another_world_size() -> None:
    found = texts(CONTRACT, facts(world_size=dict.fromkeys(range(8), 16)))
    assert found[0] == "rank 0 on node0: world size: expected 8, found 16"
    assert len(found) == 8


def test_another_definition_on_one_rank_is_the_only_thing_said() -> None:
    found = texts(CONTRACT, facts(digest={5: "beef"}, host={5: "elsewhere"}))
    assert found == [f"rank 5 on elsewhere: definition: expected digest {CONTRACT.digest}, found digest beef"]


def test_another_mesh_on_one_rank() -> None:
    assert texts(CONTRACT, facts(mesh={3: "r8s1t1"})) == ["rank 3 on node0: mesh: expected r2s2t2, found r8s1t1"]


def test_a_rank_on_the_wrong_host_breaks_its_groups_too() -> None:
    found = texts(CONTRACT, facts(host={1: "node1"}))
    assert "rank 1 on node1: host: expected node0, found node1" in found
    assert "rank 0 on node0: tp group of ranks 0, 1: expected 1 host, found node0 and node1" in found
    assert "rank 1 on node1: dp_shard group of ranks 1, 3: expected 1 host, found node1 and node0" in found


def test_hosts_in_another_order_are_wrong_only_where_hosts_are_named() -> None:
    turned = {rank: f"node{1 - rank // 4}" for rank in range(8)}
    assert len(texts(CONTRACT, facts(host=turned))) == 8
    assert texts(ANYWHERE, facts(ANYWHERE, host=turned)) == []


def test_any_host_still_means_one_host_for_each_part() -> None:
    crowded = texts(ANYWHERE, facts(ANYWHERE, host=dict.fromkeys(range(8), "node0")))
    assert crowded[0] == "rank 4 on node0: host: expected a host of its own for this part of the mesh, found node0"
    spread = texts(ANYWHERE, facts(ANYWHERE, host={2: "node7"}))
    assert spread[0] == "rank 2 on node7: host: expected node0, found node7"


def test_local_ranks_in_another_order() -> None:
    found = texts(CONTRACT, facts(local_rank={0: 1, 1: 0}))
    assert found == [
        "rank 0 on node0: local rank: expected 0, found 1",
        "rank 1 on node0: local rank: expected 1, found 0",
    ]


def test_a_device_is_known_by_uuid_whatever_its_number() -> None:
    reordered = facts(device={0: 0}, visible=dict.fromkeys(range(4), "0,1,2,3"), uuid={0: "GPU-node0-1"})
    assert texts(CONTRACT, reordered) == [
        "rank 0 on node0: device: expected GPU 0 (GPU-node0-0), found GPU-node0-1 (CUDA_VISIBLE_DEVICES=0,1,2,3)"
    ]
    bound = facts(device=dict.fromkeys(range(8), 0), visible={rank: str(rank % 4) for rank in range(8)})
    assert texts(CONTRACT, bound) == []


@pytest.mark.parametrize(
    ("visible", "device", "found"),
    [
        ("1,0,2,3", 0, "found GPU 1 (CUDA_VISIBLE_DEVICES=1,0,2,3)"),
        ("0,-1,2,3", 1, "found none (CUDA_VISIBLE_DEVICES=0,-1,2,3)"),
        ("", 0, "found none (CUDA_VISIBLE_DEVICES=)"),
        (None, 5, "found GPU 5"),
        ("MIG-1", 0, None),
    ],
)
def test_without_uuids_the_order_in_cuda_visible_devices_tells(
    visible: str | None, device: int, found: str | None
) -> None:
    rank = device if device < 4 and visible is not None else 0
    said = texts(
        ANYWHERE, facts(ANYWHERE, uuid=dict.fromkeys(range(8)), visible={rank: visible}, device={rank: device})
    )
    assert said == ([f"rank {rank} on node0: device: expected GPU {rank}, {found}"] if found else [])


def test_a_pci_bus_tells_where_no_uuid_is_known() -> None:
    found = texts(CONTRACT, facts(uuid={2: None}, pci_bus={2: "0000:09:00.0"}))
    assert found == ["rank 2 on node0: device: expected GPU 2 (GPU-node0-2), found 0000:09:00.0"]


def test_a_rank_without_its_gpu() -> None:
    assert texts(CONTRACT, facts(device={6: None})) == [
        "rank 6 on node1: device: expected GPU 2 (GPU-node1-2), found the CPU"
    ]


def test_the_error_is_one_line_and_long_ones_are_cut() -> None:
    error = MeshContractError(check_ranks(CONTRACT, facts(host=dict.fromkeys(range(8), "x"))))
    assert "\n" not in str(error)
    assert "rank 0 on x: host: expected node0, found x" in str(error)
    wrong = dict.fromkeys(range(8), "x")
    long = MeshContractError(check_ranks(CONTRACT, facts(host=wrong, mesh=wrong)))
    assert "; and 8 more; start the ranks as the contract says" in str(long)
    assert error.exit_code == 2


def said(topology: Topology, visible: str | None = None, whole: bool = False) -> list[str]:
    return [finding.text for finding in check_machine(CONTRACT, topology, visible, whole)]


def test_a_machine_as_the_contract_says() -> None:
    assert said(two_by_four(), whole=True) == []
    longer_name = pairs("node1").model_copy(update={"host": "node1.site"})
    assert said(Topology(nodes=(longer_name,)), "0,1,2,3") == []


def test_a_machine_with_other_devices() -> None:
    node = pairs("node0")
    moved = node.devices[1].model_copy(update={"uuid": "GPU-new", "numa_node": 1})
    changed = node.model_copy(update={"devices": (node.devices[0], moved, node.devices[2])})
    assert said(Topology(nodes=(changed,))) == [
        "node0: device 1 uuid: expected GPU-node0-1, found GPU-new",
        "node0: device 1 numa node: expected 0, found 1",
        "node0: device: expected GPU 3 (GPU-node0-3), found no such device",
    ]


def test_a_machine_with_farther_or_fewer_links() -> None:
    node = pairs("node0")
    fewer = node.links[0].model_copy(update={"nvlink_count": 2})
    down = node.links[-1].model_copy(update={"link_class": LinkClass.NUMA_NODE, "nvlink_count": None})
    changed = node.model_copy(update={"links": (fewer, *node.links[1:-1], down)})
    assert said(Topology(nodes=(changed,))) == [
        "node0: tp link between devices 0 and 1: expected 4 NVLinks, found 2",
        "node0: tp link between devices 2 and 3: expected nvlink, found numa_node",
    ]


def test_a_machine_with_another_device_order() -> None:
    assert said(Topology(nodes=(pairs("node0"),)), "1,0,2,3") == [
        "node0: device order: expected 0,1,2,3, found 1,0,2,3 by CUDA_VISIBLE_DEVICES=1,0,2,3"
    ]


def test_another_machine_or_a_missing_listing() -> None:
    assert said(Topology(nodes=(pairs("login"),))) == ["login: host: expected one of node0, node1, found login"]
    assert said(Topology(nodes=(pairs("node0"),)), whole=True) == ["node1: host: expected a listing of it, found none"]
    cpu = pairs("node0").model_copy(
        update={"devices": tuple(d.model_copy(update={"kind": "cpu"}) for d in pairs("node0").devices)}
    )
    assert said(Topology(nodes=(cpu,)))[0] == "node0: device: expected GPU 0 (GPU-node0-0), cuda, found cpu"


@pytest.mark.parametrize(
    ("visible", "said"),
    [
        ("4,5,6,7", []),
        ("2,3,6,7", []),
        ("0,1,2,3", []),
        ("0,1,2,3,4,5,6,7", []),
        (
            "5,4,6,7",
            ["expected GPU 4, in place of GPU 0, found GPU 5", "expected GPU 5, in place of GPU 1, found GPU 4"],
        ),
    ],
)
def test_a_job_that_gets_another_part_of_a_host_is_as_good_as_the_listed_one(visible: str, said: list[str]) -> None:
    everywhere = dict.fromkeys(range(8), visible)
    found = texts(ANYWHERE, facts(ANYWHERE, visible=everywhere))
    assert len(found) == 2 * len(said), "one for each host"
    assert all(any(text in one for one in found) for text in said), found
    # the contract of named hosts knows its devices by name
    assert texts(CONTRACT, facts(visible=everywhere)) == []


def test_a_job_that_gets_fewer_devices_than_the_contract_lists_is_refused() -> None:
    found = texts(ANYWHERE, facts(ANYWHERE, visible=dict.fromkeys(range(8), "4,5,6")))
    assert any("expected GPU 3, found none (CUDA_VISIBLE_DEVICES=4,5,6)" in one for one in found)


def test_names_that_the_contract_does_not_know_say_nothing() -> None:
    named = dict.fromkeys(range(8), "GPU-aaaa,GPU-bbbb,GPU-cccc,GPU-dddd")
    assert texts(ANYWHERE, facts(ANYWHERE, visible=named)) == []
