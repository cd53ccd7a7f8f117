"""Communicators put together from the logs of several ranks."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.comms import Communicator
from harness.topology.nccl_comms import read_communicators, transport
from tests.unit.topology.test_shared_inputs import FOLDER

INPUTS = Path(__file__).parent / "inputs"


def test_ranks_of_one_job_share_communicators_by_their_ids() -> None:
    logs = {rank: (INPUTS / f"nccl_rank{rank}.txt").read_text() for rank in (0, 2)}
    assert read_communicators(logs) == (
        Communicator(ranks=(0, 2), transports=("P2P", "NET/IB"), rings=2),
        Communicator(ranks=(0, 2), transports=("NET/Socket",), rings=1),
    )


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("P2P/CUMEM/read", "P2P"),
        ("P2P/IPC", "P2P"),
        ("SHM/direct/direct", "SHM"),
        ("NET/IB/0/GDRDMA", "NET/IB"),
        ("NET/AWS Libfabric/0", "NET/AWS Libfabric"),
        ("NET/Socket/1", "NET/Socket"),
    ],
)
def test_transports(name: str, kind: str) -> None:
    assert transport(name) == kind


def test_an_old_log_names_its_communicator_after_its_connections() -> None:
    text = "\n".join(
        (
            "h:1:2 [0] NCCL INFO Channel 00 : 0[1a000] -> 1[1c000] via P2P/IPC",
            "h:1:2 [0] NCCL INFO comm 0x1 rank 0 nranks 2 cudaDev 0 busId 1a000 - Init COMPLETE",
            "h:1:2 [0] NCCL INFO Channel 00 : 0[1a000] -> 1[8a000] via SHM",
            "h:1:2 [0] NCCL INFO comm 0x2 rank 0 nranks 4 cudaDev 0 busId 1a000 - Init COMPLETE",
        )
    )
    assert read_communicators({0: text}) == (Communicator(ranks=(0,), transports=("SHM",)),)


def test_nothing_in_a_log_of_something_else() -> None:
    assert read_communicators({0: "step 1 loss 3.2\n", 1: ""}) == ()


def by_process(name: str) -> dict[int, str]:
    """A captured log of several processes, parted as each one's own file would be."""
    path = FOLDER / name
    if not path.exists():
        pytest.skip("no shared inputs here")
    parts: dict[str, list[str]] = {}
    for line in path.read_text(errors="replace").splitlines():
        words = line.split(":")
        if len(words) > 2 and words[1].isdigit():
            parts.setdefault(f"{words[0]}:{words[1]}", []).append(line)
    return {rank: "\n".join(lines) for rank, lines in enumerate(parts.values())}


def test_a_captured_log_of_one_node() -> None:
    (found,) = read_communicators(by_process("c01_nccl27_1node_4gpu_p2p.txt"))
    assert sorted(found.ranks) == [0, 1, 2, 3]
    assert found.transports == ("P2P",)


def test_a_captured_log_of_half_of_two_nodes() -> None:
    (found,) = read_communicators(by_process("c05_nccl228_2node_8h200_nnodes.txt"))
    assert sorted(found.ranks) == list(range(8))
