from __future__ import annotations

import pytest

from harness.errors import TopologyError
from harness.topology.cuda_visible import rank_places, visible_devices
from harness.topology.model import Device, MigSlice, Node, Topology

DEVICES = (
    Device(index=0, uuid="GPU-aa1"),
    Device(
        index=1,
        uuid="GPU-aa2",
        mig=(MigSlice(profile="1g", index=0, uuid="MIG-77"), MigSlice(profile="1g", index=1, uuid="MIG-GPU-aa2/1/0")),
    ),
    Device(index=3, uuid="GPU-b"),  # number 2 is gone: places and numbers part here
)


@pytest.mark.parametrize(
    ("value", "seen"),
    [
        (None, [0, 1, 3]),
        ("0,1,2", [0, 1, 3]),
        ("2,0", [3, 0]),
        (" 1 , 2 ", [1, 3]),
        ("", []),
        ("-1", []),
        ("0,-1,1", [0]),
        ("0,7,1", [0]),
        ("1,1", []),
        ("NoDevFiles", []),
        ("GPU-b", [3]),
        ("GPU-b,GPU-aa1", [3, 0]),
        ("GPU-aa", []),  # two devices begin so
        ("GPU-b,0", [3]),
        ("0,GPU-b", [0]),
        ("GPU-b,GPU-b", []),
        ("MIG-77", [1]),
        ("MIG-GPU-aa2/1/0", [1]),
        ("MIG-nothing", []),
    ],
)
def test_every_form(value: str | None, seen: list[int]) -> None:
    assert [one.index for one in visible_devices(value, DEVICES)] == seen


def test_mig_device_keeps_its_name() -> None:
    assert visible_devices("MIG-7", DEVICES)[0].mig_uuid == "MIG-77"
    assert len(visible_devices("MIG-77,MIG-GPU-aa2/1/0", DEVICES)) == 2


def machine(host: str, count: int) -> Node:
    return Node(host=host, devices=tuple(Device(index=index) for index in range(count)))


UNEVEN = Topology(nodes=(machine("big", 8), machine("small", 4)))


def test_ranks_follow_uneven_nodes() -> None:
    places = rank_places(UNEVEN)
    assert [(p.rank, p.host, p.local_rank, p.device) for p in places[6:10]] == [
        (6, "big", 6, 6),
        (7, "big", 7, 7),
        (8, "small", 0, 0),
        (9, "small", 1, 1),
    ]
    assert len(places) == 12


def test_reordered_and_partial_lists_by_host() -> None:
    places = rank_places(UNEVEN, {"big": "7,5", "small": "2"})
    assert [(p.rank, p.node, p.local_rank, p.visible_index, p.device) for p in places] == [
        (0, 0, 0, 0, 7),
        (1, 0, 1, 1, 5),
        (2, 1, 0, 0, 2),
    ]


def test_one_gpu_bound_to_each_task_is_its_device_zero() -> None:
    places = rank_places(Topology(nodes=(machine("n", 4),)), {"n": ["2", "0"]})
    assert [(p.local_rank, p.visible_index, p.device) for p in places] == [(0, 0, 2), (1, 0, 0)]


def test_tasks_per_node() -> None:
    assert [p.device for p in rank_places(UNEVEN, None, [2, 1])] == [0, 1, 0]
    with pytest.raises(TopologyError, match="9 tasks and 8 devices"):
        rank_places(UNEVEN, None, [9, 1])
    with pytest.raises(TopologyError, match="1 nodes"):
        rank_places(UNEVEN, None, [8])
    with pytest.raises(TopologyError, match="sees no device"):
        rank_places(UNEVEN, {"big": [""]})
    with pytest.raises(TopologyError, match="sees 2 devices only"):
        rank_places(UNEVEN, {"big": ["0,1", "0,1", "0,1"]})
