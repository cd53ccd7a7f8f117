"""The text of ``meshsweep topology``: whatever was understood is shown."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.cli.tables import topology_text
from harness.errors import TopologyError
from harness.topology.detect import read_files
from harness.topology.json_form import json_object
from harness.topology.links import mesh_reason
from harness.topology.merge import combine
from harness.topology.model import Device, Link, LinkClass, Node, Topology
from harness.topology.sniff import read_text

INPUTS = Path(__file__).parent / "inputs"
NONE = "names no devices; add a listing such as `nvidia-smi topo -m` for links and a mesh"


def shown(*contents: str) -> list[str]:
    return topology_text(json_object(combine([part for text in contents for part in read_text(text, "n")]))).split("\n")


def ranks(host: str, numbers: range, of: int = 16) -> str:
    lines = [
        f"{host}:1{at}:2 [{at}] NCCL INFO comm 0x7 rank {rank} nranks {of} cudaDev {at} busId {at + 1}a000 - Init"
        for at, rank in enumerate(numbers)
    ]
    size = f"{host}:10:2 [0] NCCL INFO comm 0x7 nRanks {of} nNodes 2 localRanks {len(numbers)} localRank 0 MNNVL 0"
    return "\n".join([*lines, size]) + "\n"


@pytest.mark.parametrize("path", sorted(INPUTS.iterdir()), ids=lambda path: path.name)
def test_whatever_is_understood_is_shown(path: Path) -> None:
    try:
        form = json_object(read_files([path]))
    except TopologyError as error:
        pytest.skip(f"refused: {error}")
    lines = topology_text(form).split("\n")
    assert all(line.strip() for line in lines)
    assert (NONE in lines) is not any(node["devices"] for node in form["nodes"])


def test_a_job_without_gpus() -> None:
    assert shown("SLURM_JOB_NODELIST=gn[1-2]\nSLURM_NTASKS=3\nSLURM_TASKS_PER_NODE=2,1\nSLURM_JOB_ID=8\n") == [
        "host    tasks",
        "------  -------",
        "gn1     2",
        "gn2     1",
        "Slurm: job 8, tasks 3",
        NONE,
    ]


def test_host_lists_and_switches() -> None:
    assert shown("n[1-10]\n")[0] == "host list n[1-10]: 10 hosts: n1, n2, n3, n4, n5, n6, n7, n8 and 2 more"
    assert shown("SwitchName=s0 Nodes=a\nSwitchName=s1 Nodes=b,c\nSwitchName=top Switches=s[0-1]\n") == [
        "switch s0: 1 node: a",
        "switch s1: 2 nodes: b, c",
        "switch top: 2 switches: s0, s1",
        NONE,
    ]


def test_many_nodes_are_counted() -> None:
    lines = shown("SLURM_JOB_NODELIST=gn[1-100]\nSLURM_NTASKS=100\nSLURM_TASKS_PER_NODE=1(x100)\n")
    assert "and 60 more nodes; --json shows all" in lines


def test_a_failure_log_shows_what_nccl_said() -> None:
    lines = shown("node-2:10:11 [0] NCCL WARN NET/IB : Got completion from peer 192.0.2.5<33> with error 12\n")
    assert lines[-3:-1] == [
        "NCCL: neither ranks nor transports",
        "NCCL warned: NET/IB : Got completion from peer 192.0.2.5<33> with error 12",
    ]


def test_a_log_of_some_ranks_says_so_until_the_others_are_added() -> None:
    lines = shown(ranks("a", range(8)))
    assert lines[-1] == "warning: the log holds ranks 0-7 of 16 on 2 nodes; add the other nodes' logs"
    both = shown(ranks("a", range(8)), ranks("b", range(8, 16)))
    assert not any(line.startswith("warning") for line in both)
    assert "NCCL: ranks 16, nodes 2, ranks a node 8" in both
    # logs of another job do not fill the gap
    other = shown(ranks("a", range(8)), ranks("b", range(8, 16), of=32))
    assert other[-1].startswith("warning: the log holds ranks 0-7 of 16")
    cut = shown(ranks("a", range(8)), ranks("b", range(8, 15)))
    assert "warning: the log holds ranks 0-14 of 16 on 2 nodes; add the other ranks' logs" in cut


def node(numa: list[int], *pairs: tuple[int, int]) -> Topology:
    devices = tuple(Device(index=index, numa_node=place) for index, place in enumerate(numa))
    return Topology(nodes=(Node(host="n", devices=devices, links=tuple(_link(*pair) for pair in pairs)),))


def _link(a: int, b: int) -> Link:
    return Link(a=a, b=b, link_class=LinkClass.NVLINK)


def test_why_the_mesh_is_not_the_islands() -> None:
    assert mesh_reason(node([0, 0, 1, 1], (0, 1), (1, 2), (2, 3))) == "by NUMA; the island is not fully linked"
    assert mesh_reason(node([0, 0, 1, 1], (0, 1), (2, 3))) is None
    assert mesh_reason(node([0, 0], (0, 1))) is None
    assert mesh_reason(node([0, 0, 1, 1])) == "by NUMA"
    assert mesh_reason(node([0, 0])) is None
    assert mesh_reason(node([0, 0, 1, 1], (0, 1))) == "by NUMA; not every device is in an island"
    assert mesh_reason(node([0, 0, 0, 0, 0], (0, 1), (2, 3), (3, 4), (2, 4))) == "one group; the islands differ in size"
    four, six = node([0] * 4), node([0] * 6)
    assert mesh_reason(Topology(nodes=(*four.nodes, *six.nodes))) == "groups of 4 and 6 are cut to a common size"


def test_the_number_of_nics_is_shown() -> None:
    assert "NICs: 2" in topology_text(json_object(read_files([INPUTS / "merged_and_cut.txt"]))).split("\n")
