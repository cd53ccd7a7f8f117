"""What communicators used, from a launch's files to the report's warnings."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from harness.comms import Communicator, Communicators
from harness.compare import compare
from harness.compare.transport import group_roles
from harness.execute.comm_facts import communicators
from harness.launch.comm_files import nccl_log
from harness.report.markdown import to_markdown
from harness.spec import Ranks, SweepPlan
from harness.topology.model import Device, Link, LinkClass, Nic, Node, Topology
from tests.unit.factories import layout, make_plan, make_verify_record

TEXTS = ("fsdp:s4", "hsdp:r2s2")


def node(host: str, rdma: bool) -> Node:
    return Node(
        host=host,
        devices=(Device(index=0), Device(index=1)),
        links=(Link(a=0, b=1, link_class=LinkClass.NVLINK),),
        nics=(Nic(name="mlx5_0"),) if rdma else (),
    )


def plan_of(rdma: bool = False) -> SweepPlan:
    """Two nodes of two GPUs."""
    topology = Topology(nodes=(node("n1", rdma), node("n2", rdma)))
    ranks = Ranks(device="cuda", per_node=(2, 2))
    return make_plan(TEXTS).model_copy(update={"topology": topology, "ranks": ranks})


def warnings(plan: SweepPlan, text: str, *found: Communicator) -> list[str]:
    comms = Communicators(source="NCCL's log", found=found, logs=("launches/2/rank0.nccl.log",))
    records = [make_verify_record(plan, one, comms=comms if one == text else None) for one in TEXTS]
    return [w.cause for w in compare(plan, records).warnings if w.kind == "transport"]


def test_groups_are_known_by_their_members_in_any_order_of_axes() -> None:
    assert group_roles(layout("hsdp:r2s2")) == {
        frozenset({0, 2}): "dp_replicate",
        frozenset({1, 3}): "dp_replicate",
        frozenset({0, 1}): "dp_shard",
        frozenset({2, 3}): "dp_shard",
    }
    turned = group_roles(layout("hsdp:r2s2+order=dp_shard/dp_replicate/tp"))
    assert turned[frozenset({0, 2})] == "dp_shard"


@pytest.mark.parametrize(
    ("rdma", "ranks", "transports", "expected"),
    [
        (
            False,
            (0, 1),
            ("NET/Socket",),
            "dp_shard group of 2 (ranks 0-1) of hsdp r2s2 went over NET/Socket, though",
        ),
        (False, (0, 1), ("SHM",), "dp_shard group of 2 (ranks 0-1) of hsdp r2s2 went over SHM, though NVLink"),
        (False, (0, 1), ("P2P",), None),
        (False, (0, 2), ("NET/Socket",), None),
        (
            True,
            (0, 2),
            ("NET/Socket",),
            "dp_replicate group of 2 (ranks 0,2) of hsdp r2s2 went over NET/Socket, though",
        ),
        (True, (0, 2), ("NET/IB", "P2P"), None),
    ],
)
def test_a_transport_that_the_place_of_the_ranks_does_not_explain_is_a_warning(
    rdma: bool, ranks: tuple[int, ...], transports: tuple[str, ...], expected: str | None
) -> None:
    found = warnings(plan_of(rdma), "hsdp:r2s2", Communicator(ranks=ranks, transports=transports))
    assert bool(found) == bool(expected)
    if expected:
        assert found[0].startswith(f"the {expected}")


def test_groups_of_one_role_are_one_row_of_the_report() -> None:
    plan = plan_of()
    found = (
        Communicator(ranks=(0, 1, 2, 3), transports=("P2P", "NET/IB"), rings=4),
        Communicator(ranks=(0, 1), transports=("P2P",), rings=8),
        Communicator(ranks=(2, 3), transports=("P2P",), rings=8),
    )
    comms = Communicators(source="NCCL's log", found=found)
    text = to_markdown(compare(plan, [make_verify_record(plan, "hsdp:r2s2", comms=comms)]))
    assert [line for line in text.splitlines() if line.startswith("- communicators")] == [
        "- communicators: hsdp r2s2, all ranks, 1 x 4 ranks: P2P, NET/IB, 4 rings (NCCL's log)",
        "- communicators: hsdp r2s2, dp_shard, 2 x 2 ranks: P2P, 8 rings (NCCL's log)",
    ]


def seen(
    host: str, groups: list[list[int]], connections: list[list[Any]], interfaces: dict[str, str]
) -> dict[str, Any]:
    return {"host": host, "groups": groups, "connections": connections, "interfaces": interfaces}


def test_gloo_is_read_from_sockets_whose_ends_are_each_others(tmp_path: Path) -> None:
    """Ranks 0 and 1 on one host over loopback, rank 2 on another; the same loopback ports there mean nobody here."""
    lo, eth = {"127.0.0.1": "lo", "10.0.0.1": "eth0"}, {"127.0.0.1": "lo", "10.0.0.2": "eth0"}
    pair = ["127.0.0.1", 40, "127.0.0.1", 41]
    across = ["10.0.0.1", 50, "10.0.0.2", 51]
    store = ["::ffff:127.0.0.1", 60, "::ffff:127.0.0.1", 61]
    found = communicators(
        tmp_path,
        [
            seen("a", [[0, 1], [0, 1, 2]], [pair, across, store], lo),
            seen("a", [[0, 1], [0, 1, 2]], [[*pair[2:], *pair[:2]], [*store[2:], *store[:2]]], lo),
            seen("b", [[0, 1, 2]], [[*across[2:], *across[:2]], [*pair[2:], *pair[:2]]], eth),
        ],
    )
    assert found is not None and found.source == "sockets of the ranks"
    assert found.found == (
        Communicator(ranks=(0, 1, 2), transports=("TCP lo", "TCP eth0")),
        Communicator(ranks=(0, 1), transports=("TCP lo",)),
    )


def test_nccls_log_counts_where_there_is_one(tmp_path: Path) -> None:
    line = "h:1:2 [0] NCCL INFO comm 0x1 rank {} nranks 2 cudaDev 0 busId 1a000 commId 0xa - Init START\n"
    for rank in (0, 1):
        nccl_log(tmp_path, rank).write_text(line.format(rank))
    found = communicators(tmp_path, [None, None])
    assert found is not None
    assert found.found == (Communicator(ranks=(0, 1)),)
    assert found.logs == tuple(f"launches/{tmp_path.name}/rank{rank}.nccl.log" for rank in (0, 1))
    assert communicators(tmp_path / "elsewhere", [None]) is None
