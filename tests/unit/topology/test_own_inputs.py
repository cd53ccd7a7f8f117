"""The project's own small inputs, one oddity each; every value is worked out by hand from the text."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from harness.errors import TopologyError
from harness.topology.detect import read_files
from harness.topology.json_form import json_object

INPUTS = Path(__file__).parent / "inputs"


def read(*names: str) -> dict[str, Any]:
    return json_object(read_files([INPUTS / name for name in names]))


def numa(found: dict[str, Any], node: int = 0) -> list[int | None]:
    return [device["numa_node"] for device in found["nodes"][node]["devices"]]


def classes(found: dict[str, Any]) -> dict[tuple[int, int], str]:
    return {(link["a"], link["b"]): link["link_class"] for link in found["links"]}


# -- nvidia-smi topo -m -------------------------------------------------------------------------------------------


def test_nvlink_pairs_that_cross_sockets_are_three_groups_of_two() -> None:
    found = read("pairs_across_sockets.txt")
    assert found["islands"] == [[0, 3], [1, 4], [2, 5]]
    assert found["suggested_mesh"] == [3, 2]
    assert numa(found) == [0, 0, 0, 1, 1, 1]
    assert found["links"][2] == {
        "host": "pairs_across_sockets",
        "a": 0,
        "b": 3,
        "link_class": "nvlink",
        "nvlink_count": 4,
    }


def test_gap_in_gpu_numbers_keeps_the_numbers() -> None:
    found = read("gap_in_numbers.txt")
    assert [device["index"] for device in found["nodes"][0]["devices"]] == [0, 1, 3, 4, 6]
    assert found["islands"] == [[0, 1, 3, 4, 6]]
    assert found["suggested_mesh"] == [1, 5]


def test_merged_and_cut_cells_are_read_with_a_warning() -> None:
    found = read("merged_and_cut.txt")
    assert numa(found) == [0, 1]
    assert [device["cpus"] for device in found["nodes"][0]["devices"]] == ["0-7", "8-15"]
    nics = found["nodes"][0]["nics"]
    assert [nic["device_name"] for nic in nics] == ["mlx5_4", "mlx5_bond_0"]
    assert nics[1]["links"] == [
        {"device": 0, "link_class": "other_socket"},
        {"device": 1, "link_class": "pcie_switch"},
    ]
    assert len(found["warnings"]) == 1 and "GPU0, GPU1" in found["warnings"][0]


def test_count_cut_at_the_screen_edge_comes_from_the_mirrored_cell() -> None:
    counts = {(link["a"], link["b"]): link["nvlink_count"] for link in read("screen_edge.txt")["links"]}
    assert counts == {(0, 1): 12, (0, 2): 12, (1, 2): 12}


def test_escapes_prompt_and_windows_line_ends() -> None:
    found = read("ansi_prompt_crlf.txt")
    assert [node["host"] for node in found["nodes"]] == ["gpu-07"]
    assert classes(found) == {(0, 1): "host_bridge"} and numa(found) == [0, 0]


def test_numa_lists_of_superchips_name_the_node_with_cpus_first() -> None:
    found = read("superchips_numa_lists.txt")
    assert numa(found) == [0, 0, 1, 1]
    assert [device["memory_numa_node"] for device in found["nodes"][0]["devices"]] == [2, 9, 16, 23]
    assert found["suggested_mesh"] == [2, 2]
    assert numa(read("superchip_own_memory_in_range.txt")) == [0]


def test_old_driver_shows_sockets_only_in_the_cells() -> None:
    found = read("old_driver_sockets.txt")
    assert numa(found) == [None] * 4
    assert classes(found)[0, 1] == classes(found)[2, 3] == "pcie_switch"
    assert classes(found)[1, 2] == "other_socket"
    assert found["suggested_mesh"] == [2, 2]
    assert [nic["name"] for nic in found["nodes"][0]["nics"]] == ["mlx4_0"]


def test_empty_cpu_field_does_not_shift_the_numa_column() -> None:
    found = read("empty_cpuset.txt")
    assert numa(found) == [0, 1, 1]
    assert [device["cpus"] for device in found["nodes"][0]["devices"]] == ["3,67", None, None]
    assert found["suggested_mesh"] == [1, 3]  # 1 + 2 is no mesh


def test_quoted_and_wrapped_by_mail() -> None:
    found = read("mail_wrapped.txt")
    assert numa(found) == [2, 3] and found["links"][0]["nvlink_count"] == 4


def test_nodes_of_one_launcher_output_keep_their_order() -> None:
    found = read("pdsh_two_nodes.txt")
    assert [node["host"] for node in found["nodes"]] == ["ac2", "ac1"]
    assert numa(found, 1) == [0, 8]
    assert found["suggested_mesh"] == [4, 1]


def test_output_merged_by_a_launcher_is_one_node_a_host() -> None:
    hosts = [node["host"] for node in read("clush_merged.txt")["nodes"]]
    assert hosts == ["r1n08", "r1n09", "r1n10", "r1n12"]


@pytest.mark.parametrize(
    ("name", "cause"),
    [
        ("lookalike_mx.txt", "MetaX"),
        ("lookalike_unnamed.txt", "'ZL2' is no link word"),
        ("lookalike_hcu.txt", "Hygon"),
        ("rocm_unreadable.txt", "not reliable"),
        ("peer_access.txt", "topo -p2p"),
    ],
)
def test_look_alike_is_refused_in_one_line(name: str, cause: str) -> None:
    with pytest.raises(TopologyError, match=cause) as caught:
        read(name)
    assert "\n" not in str(caught.value) and name in str(caught.value)


# -- AMD ----------------------------------------------------------------------------------------------------------


def test_two_hives_on_one_numa_node() -> None:
    found = read("rocm_hives.txt")
    assert found["islands"] == [[0, 1], [2, 3]] and found["suggested_mesh"] == [2, 2]
    assert classes(found)[0, 1] == "xgmi" and classes(found)[1, 2] == "numa_node"
    assert numa(found) == [1, 1, 1, 1]
    assert found["nodes"][0]["devices"][0]["kind"] == "rocm"


def test_numa_only_listing_has_no_links_and_minus_one_is_unknown() -> None:
    found = read("rocm_numa_only.txt")
    assert found["links"] == [] and numa(found) == [1, 1, 0, 0, None]


def test_amd_smi_tables_are_by_bus_id() -> None:
    found = read("amd_smi.txt")
    assert [device["pci_bus"] for device in found["nodes"][0]["devices"]][1:] == ["0000:22:00.0", "0000:38:00.0"]
    assert found["islands"] == [[0, 1]]


# -- names and MIG ------------------------------------------------------------------------------------------------


def test_list_with_mig_and_a_lost_gpu() -> None:
    found = read("list_with_mig.txt")
    first, second = found["nodes"][0]["devices"]
    assert (first["name"], first["uuid"]) == ("NVIDIA A100-SXM4-40GB", "GPU-aa11")
    assert first["mig"] == [
        {"profile": "3g.20gb", "index": 0, "uuid": "MIG-GPU-aa11/1/0"},
        {"profile": "1g.5gb", "index": 1, "uuid": "MIG-5c2f"},
    ]
    assert "mig" not in second
    assert "0000:8A:00.0" in found["warnings"][0]


def test_two_kinds_of_one_machine_become_one_node() -> None:
    found = read("mail_wrapped.txt", "list_with_mig.txt")
    assert len(found["nodes"]) == 1
    device = found["nodes"][0]["devices"][1]
    assert (device["uuid"], device["numa_node"]) == ("GPU-aa22", 3)
    assert found["kinds"] == ["nvidia-topo", "nvidia-list"]


# -- Slurm --------------------------------------------------------------------------------------------------------


def test_step_environment() -> None:
    found = read("env_step.txt")
    assert [node["host"] for node in found["nodes"]] == ["gn12", "gn09", "gn10"]
    assert found["tasks_per_node"] == [8, 8, 4] and found["ntasks"] == 2
    assert found["step_nodes"] == ["gn12"] and found["step_tasks_per_node"] == [2]
    assert found["job_gpus"] == [5, 7] and found["gpus_on_node"] == 2
    assert [len(node["devices"]) for node in found["nodes"]] == [2, 0, 0]
    assert [node["switch"] for node in found["nodes"]] == ["leaf3", None, None]
    assert "gn12 only" in found["warnings"][0]


def test_groups_of_a_heterogeneous_job_are_joined() -> None:
    found = read("env_het.txt")
    assert [node["host"] for node in found["nodes"]] == ["cn7", "gn2", "gn3"]
    assert [node["tasks"] for node in found["nodes"]] == [1, 4, 4] and found["het_groups"] == 2


def test_scontrol_records() -> None:
    first, second = read("scontrol_nodes.txt")["nodes"]
    assert first["host"] == "gn01.example.org"
    assert (first["gpus"], first["mig_devices"], first["gpus_used"]) == (4, 7, 2)
    assert first["free_gpus"] == [1, 2] and first["available"] is True
    assert first["gres"][2] == {"name": "nvme", "type": None, "count": 2 << 40}
    assert (first["cpu_count"], first["memory_bytes"]) == (128, 2 << 30)
    assert second["gpus"] == 6 and second["gres"][0]["type"] == "h100"
    assert second["available"] is False and second["gpus_used"] is None


def test_sinfo_rows_without_a_header() -> None:
    found = read("sinfo_rows.txt")
    assert [(node["host"], node["state"]) for node in found["nodes"]] == [("gn1", "mix"), ("gn2", "drain")]
    assert found["rows"] == 3


def test_sinfo_columns_with_shards() -> None:
    first, second = read("sinfo_columns.txt")["nodes"]
    assert (first["gpus"], first["shards"], first["state"]) == (4, 8, "mixed")
    assert first["whole_used"] == [2] and first["free_gpus"] == [3]
    assert (second["gpus"], second["gres"]) == (0, [])


def test_node_lines_of_slurm_conf() -> None:
    found = read("slurm.conf")
    assert [(node["host"], node["gpus"]) for node in found["nodes"]] == [("gn1", 4), ("gn2", 4), ("gn3", 8)]
    assert [device["name"] for device in found["nodes"][0]["devices"]] == ["k40", "k40", "k80", "k80"]
    assert {node["state"] for node in found["nodes"]} == {None}
    assert {node["cpu_count"] for node in found["nodes"]} == {64}
    assert found["suggested_mesh"] == [4, 4]


def test_gres_conf_counts_device_files() -> None:
    nodes = read("gres.conf")["nodes"]
    assert [(node["host"], node["gpus"]) for node in nodes] == [("gn1", 4), ("gn2", 4)]


def test_scontrol_json() -> None:
    node = read("scontrol_nodes.json")["nodes"][0]
    assert (node["host"], node["gpus"], node["gpus_used"], node["available"]) == ("gn1", 8, 8, False)


def test_cyclic_switches_end_and_have_no_root() -> None:
    found = read("cyclic.conf")
    assert found["cyclic"] is True and found["roots"] == []
    assert [node["host"] for node in found["nodes"]] == ["n1", "n2", "n3", "n4", "0x00ab"]
    assert [len(switch["nodes"]) for switch in found["switches"]] == [0, 0, 2, 3]
    assert any("cycle" in warning for warning in found["warnings"])


def test_forest_with_a_switch_that_is_not_defined() -> None:
    found = read("forest.conf")
    assert found["roots"] == ["top", "alone"]
    assert any("ghost" in warning for warning in found["warnings"])


def test_scontrol_topology_lists_nodes_at_every_level() -> None:
    found = read("scontrol_topology.txt")
    assert [switch["nodes"] for switch in found["switches"]] == [["n0", "n1"], ["n2", "n3"], []]
    assert [node["switch"] for node in found["nodes"]] == ["s0", "s0", "s1", "s1"]


def test_blocks_and_commented_blocks() -> None:
    found = read("blocks.conf")
    assert [block["name"] for block in found["blocks"]] == ["b1", "b3"] and found["block_sizes"] == [2, 4]
    assert [node["switch"] for node in found["nodes"]] == ["b1"] * 3 + ["b3"] * 3
    nothing = read("nothing_active.conf")
    assert nothing["blocks"] == [] and nothing["nodes"] == [] and nothing["block_sizes"] == [18]
    assert "equally far" in nothing["warnings"][0]


def test_topology_yaml_with_a_tree_and_blocks() -> None:
    found = read("topology.yaml")
    assert found["roots"] == ["top"] and found["block_sizes"] == [2, 4]
    assert [node["switch"] for node in found["nodes"]] == ["leaf1", "leaf1", "leaf2", "b1", "b1"]


def test_host_lists_one_a_line() -> None:
    found = read("hostlists.txt")
    assert [line["hosts"] for line in found["hostlists"]] == [
        ["n1", "n2", "n05"],
        ["x1", "y3", "y4"],
        ["r1c1", "r1c2", "r2c1", "r2c2"],
    ]


def test_nccl_log_orders_hosts_by_rank() -> None:
    found = read("nccl_two_hosts.txt")
    facts = found["nccl"]
    assert facts["hosts"] == ["a", "b"]
    assert (facts["nodes"], facts["nranks"], facts["ranks_per_node"], facts["channels"]) == (2, 4, 2, 2)
    assert (facts["intra"], facts["inter_node"]) == ("P2P/CUMEM/read", "NET/AWS Libfabric")
    assert facts["gpu_direct"] is True and facts["version"] == "2.21.5+cuda12.4"
    first, second = found["nodes"]
    assert first["devices"][0]["cpus"] == "0-3,32-35"
    # nvmlDev is the physical number; cudaDev is what CUDA_VISIBLE_DEVICES leaves of it.
    assert [(d["index"], d["pci_bus"]) for d in second["devices"]] == [(2, "0001:c1:00.0"), (3, "0000:1a:00.0")]
