"""Further forms of the same outputs, from older and newer versions and from pasted reports."""

from __future__ import annotations

from typing import Any

from harness.topology.json_form import json_object
from harness.topology.merge import combine
from harness.topology.sniff import read_text


def read(*lines: str) -> dict[str, Any]:
    return json_object(combine(read_text("\n".join(lines) + "\n", "n")))


def test_nccl_before_bus_ids_and_with_rings() -> None:
    facts = read(
        "h:10:20 [0] NCCL INFO comm 0x7 rank 0 nranks 2 cudaDev 0 nvmlDev 0 - Init COMPLETE",
        "h:11:21 [1] NCCL INFO comm 0x7 rank 1 nranks 2 cudaDev 1 nvmlDev 1 - Init COMPLETE",
        "h:10:20 [0] NCCL INFO Channel 00 :    0   1",
        "h:10:20 [0] NCCL INFO Channel 01 :    0   1",
        "h:10:20 [0] NCCL INFO Ring 00 : 0[0] -> 1[1] via direct shared memory",
    )["nccl"]
    assert (facts["nodes"], facts["nranks"], facts["channels"]) == (1, 2, 2)
    assert (facts["intra"], facts["inter_node"]) == ("direct shared memory", None)


def test_nccl_log_of_one_host_of_several() -> None:
    lines = [
        f"h:1{rank}:2 [{rank}] NCCL INFO comm 0x7 rank {rank} nranks 16 cudaDev {rank} busId {rank + 1}a000 - Init"
        for rank in range(4)
    ]
    facts = read(*lines, "h:10:2 [0] NCCL INFO Using network Socket")["nccl"]
    assert (facts["nodes"], facts["ranks_per_node"], facts["inter_node"]) == (4, 4, "NET/Socket")


def test_ring_too_long_for_the_line_is_no_count_of_ranks() -> None:
    cut = " ".join(map(str, range(20)))
    assert read(f"h:1:2 [0] NCCL INFO Channel 00/02 : {cut}")["nccl"]["nranks"] is None
    assert read("h:1:2 [0] NCCL INFO Channel 00/02 : 0 1 2")["nccl"]["nranks"] == 3


def test_environment_as_a_script_echoes_it() -> None:
    found = read("SLURM_JOB_NODELIST: gn[1-2]", "SLURM_NTASKS: 7")
    assert found["tasks_per_node"] == [4, 3] and found["ntasks"] == 7


def test_gpus_per_node_with_a_type() -> None:
    found = read("SLURM_JOB_NODELIST=a,b", "SLURM_GPUS_PER_NODE=h100:8", "ROCR_VISIBLE_DEVICES=0")
    assert [len(node["devices"]) for node in found["nodes"]] == [8, 8]
    assert found["nodes"][0]["devices"][0]["kind"] == "rocm"


def test_host_names_one_a_line() -> None:
    assert [node["host"] for node in read("n02", "n01")["nodes"]] == ["n02", "n01"]


def test_share_of_each_node_in_scontrol_show_job() -> None:
    nodes = read("JobId=12", "   NumNodes=2", "   Nodes=gn[1-2] CPU_IDs=0-15 Mem=0 GRES=gpu:a100:2(IDX:1,3)")["nodes"]
    assert [(node["host"], node["gpus"], node["whole_used"]) for node in nodes] == [
        ("gn1", 2, [1, 3]),
        ("gn2", 2, [1, 3]),
    ]


def test_gres_column_that_is_cut_counts_nothing_and_warns() -> None:
    found = read("NODELIST   GRES              STATE", "gn[01-02]  gpu:nvidia_h100_8 idle")
    assert [node["gpus"] for node in found["nodes"]] == [0, 0]
    assert "column is cut" in found["warnings"][0]


def test_blanks_in_a_reason_do_not_shift_the_columns() -> None:
    header = "NODELIST   NODES PARTITION       STATE CPUS    S:C:T REASON"
    found = read(header, "gn01           1      gpu*       down* 128    2:32:2 Not responding")["nodes"][0]
    assert (found["state"], found["cpu_count"], found["available"]) == ("down*", 128, False)
    first = read("REASON               USER      TIMESTAMP           NODELIST", "fan is loud root now gn7")
    assert [node["host"] for node in first["nodes"]] == ["gn7"]


def test_empty_column_is_found_by_its_place() -> None:
    found = read("HOSTNAMES  GRES_USED  STATE", "gn01                  idle")["nodes"][0]
    assert (found["state"], found["gpus_used"]) == ("idle", 0)


def test_older_rocm_smi_lines() -> None:
    found = read("==== Numa Nodes ====", "GPU[0] \t\t: Numa Node: 1", "GPU[1] \t\t: Numa Node: 0")
    assert [device["numa_node"] for device in found["nodes"][0]["devices"]] == [1, 0]


def test_rocm_smi_json() -> None:
    found = read(
        '{"system": {"(Topology) Link type between DRM devices 0 and 1": "XGMI",',
        ' "(Topology) Hops between DRM devices 0 and 1": "1"},',
        ' "card0": {"(Topology) Numa Node": "3"}, "card1": {"(Topology) Numa Node": "2"}}',
    )
    assert found["islands"] == [[0, 1]]
    assert [device["numa_node"] for device in found["nodes"][0]["devices"]] == [3, 2]


def test_rows_that_disagree_keep_the_farther_word_and_warn() -> None:
    found = read("\tGPU0\tGPU1\tCPU Affinity", "GPU0\t X \tPIX\t0-7", "GPU1\tSYS\t X \t0-7")
    assert found["links"][0]["link_class"] == "other_socket" and "PIX" in found["warnings"][0]


def test_row_that_is_missing_is_read_from_the_others() -> None:
    found = read("\tGPU0\tGPU1\tCPU Affinity", "GPU0\t X \tNV2\t0-7")
    assert found["links"][0]["nvlink_count"] == 2 and "no row for GPU1" in found["warnings"][0]


def test_row_with_a_cell_less_is_read_from_the_other_rows() -> None:
    found = read(
        "        GPU0  GPU1  GPU2  CPU Affinity  NUMA Affinity",
        "GPU0     X    NV1   0-7   0",
        "GPU1    NV1    X    NV2   0-7   0",
        "GPU2    SYS   NV2    X    0-7   0",
    )
    classes = {(link["a"], link["b"]): link["link_class"] for link in found["links"]}
    assert classes == {(0, 1): "nvlink", (0, 2): "other_socket", (1, 2): "nvlink"}
    assert [device["numa_node"] for device in found["nodes"][0]["devices"]] == [0, 0, 0]
    assert "GPU0" in found["warnings"][0]
