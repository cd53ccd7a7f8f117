"""Every real output under ../shared/inputs/topology against its correct reading; skipped where there is none."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from harness.errors import TopologyError
from harness.topology.detect import read_files
from harness.topology.json_form import json_object

FOLDER = Path(__file__).resolve().parents[3].parent / "shared" / "inputs" / "topology"
EXPECTED: dict[str, dict[str, Any]] = {}
if (FOLDER / "EXPECTED.json").is_file():
    EXPECTED = json.loads((FOLDER / "EXPECTED.json").read_text(encoding="utf-8"))
# Error texts (e*) are for the failure classes and describe no machine.
NAMES = sorted(name for name, expected in EXPECTED.items() if expected["kind"] != "error")

# Read otherwise on purpose: each is refused in one line, for a number that looks right would be used.
REFUSED = {
    "n46_lookalike_metax_8gpu.txt": "MetaX",  # its link words and its column order are not nvidia-smi's
    "n47_lookalike_ascend_8npu.txt": "Ascend",  # there is no CUDA or ROCm device in it
    "r07_mi300a_tpx_12_partitions_errors.txt": "not reliable",  # cells unreadable and two NUMA answers
}

pytestmark = pytest.mark.skipif(not NAMES, reason="../shared/inputs/topology is not here")


def device_reading(found: dict[str, Any]) -> dict[str, Any]:
    node = found["nodes"][0]
    numa = [device["numa_node"] for device in node["devices"]]
    fast = [[link["a"], link["b"]] for link in found["links"] if link["link_class"] in ("nvlink", "xgmi")]
    return {
        "n_gpus": len(node["devices"]),
        "gpu_ids": [device["index"] for device in node["devices"]],
        "nvlink_pairs": fast,
        "xgmi_pairs": fast,
        "numa": None if all(one is None for one in numa) else numa,
        # "N/A" is no list and is not kept.
        "numa_raw": [device["numa_affinity"] or "N/A" for device in node["devices"]],
        "gpu_numa_id": [device["memory_numa_node"] for device in node["devices"]],
        "cpu_raw": [device["cpus"] or "" for device in node["devices"]],
        "cpu_groups": _groups([device["cpus"] for device in node["devices"]]),
        "mesh": found["suggested_mesh"],
        "fully_connected": node["fully_connected"],
        "nics": [nic["name"] for nic in node["nics"]],
        "nic_legend": {nic["name"]: nic["device_name"] for nic in node["nics"] if nic["device_name"]},
        "corrupt": bool(found["warnings"]),
    }


def _groups(keys: list[str]) -> list[list[int]]:
    return [[place for place, key in enumerate(keys) if key == wanted] for wanted in dict.fromkeys(keys)]


def env_reading(found: dict[str, Any]) -> dict[str, Any]:
    return {
        "nodes": [node["host"] for node in found["nodes"]],
        "tasks": found["tasks_per_node"],
        "step_tasks": found["step_tasks_per_node"],
        "ntasks": found["ntasks"],
        "cpus": found["cpus_per_node"],
        "gpus_on_node": found["gpus_on_node"],
        "job_gpus": found["job_gpus"],
    }


def hostlist_reading(found: dict[str, Any]) -> dict[str, Any]:
    hosts = [line["hosts"] for line in found["hostlists"]]
    return {
        "counts": [len(line) for line in hosts],
        "first": [line[0] for line in hosts],
        "last": [line[-1] for line in hosts],
    }


def gres_reading(found: dict[str, Any]) -> dict[str, Any]:
    nodes = found["nodes"]
    gpus = [node["gpus"] for node in nodes]
    return {
        "node": nodes[0]["host"],
        "n_nodes": len(nodes),
        "gres": [[entry["name"], entry["type"], entry["count"]] for entry in found["gres"] or []],
        "whole_gpus": sum(gpus),
        "gpus_per_node": gpus[0],
        "shards": nodes[0]["shards"],
        "whole_used": nodes[0]["whole_used"],
        "free_gpus": nodes[0]["free_gpus"],
        "used": [node["gpus_used"] for node in nodes],
        "available": [node["available"] for node in nodes],
        "rows": found["rows"],
    }


def fabric_reading(found: dict[str, Any]) -> dict[str, Any]:
    leaves = {switch["name"]: len(switch["nodes"]) for switch in found["switches"] if switch["nodes"]}
    return {
        "switches": len(found["switches"]),
        "leaves": len(leaves),
        "leaf_sizes": leaves,
        "nodes": len(found["nodes"]),
        "roots": sorted(found["roots"]),
        "cyclic": found["cyclic"],
        "blocks": len(found["blocks"]),
        "block_sizes": found["block_sizes"],
    }


def nccl_reading(found: dict[str, Any]) -> dict[str, Any]:
    facts: dict[str, Any] = found["nccl"]
    return facts


READINGS: dict[str, Callable[[dict[str, Any]], dict[str, Any]]] = {
    "nvidia-topo": device_reading,
    "nvidia-topo-reconstructed": device_reading,
    "nvidia-topo-derived": device_reading,
    "rocm-topo": device_reading,
    "rocm-topo-numa-only": device_reading,
    "slurm-env": env_reading,
    "slurm-hostlist": hostlist_reading,
    "slurm-gres": gres_reading,
    "slurm-topology": fabric_reading,
    "nccl-log": nccl_reading,
}
# Facts of another module (failure classes), or that no reader gives because nothing follows from them.
ELSEWHERE = {"kind", "failure", "balanced", "ansi", "mesh_by_switch", "nodes_listed"}


def compared(expected: dict[str, Any]) -> dict[str, Any]:
    wanted = {key: value for key, value in expected.items() if key not in ELSEWHERE}
    if expected["kind"] == "slurm-gres":
        for key in ("nodes", "gpus"):  # a number, a list of names or of numbers: named apart here
            value = wanted.pop(key, None)
            if isinstance(value, list):
                wanted["hosts" if isinstance(value[0], str) else "gpus_list"] = value
            elif value is not None:
                wanted["n_nodes" if key == "nodes" else "gpus_per_node"] = value
    return wanted


@pytest.mark.parametrize("name", NAMES)
def test_real_output_reads_as_expected(name: str) -> None:
    expected = EXPECTED[name]
    if name in REFUSED:
        with pytest.raises(TopologyError, match=REFUSED[name]) as caught:
            read_files([FOLDER / name])
        assert "\n" not in str(caught.value)
        return
    found = json_object(read_files([FOLDER / name]))
    json.dumps(found)
    reading = READINGS[expected["kind"]](found)
    if expected["kind"] == "slurm-gres":
        reading["hosts"] = [node["host"] for node in found["nodes"]]
        reading["gpus_list"] = [node["gpus"] for node in found["nodes"]]
    wanted = compared(expected)
    assert {key: reading[key] for key in wanted} == wanted
    assert bool(found["warnings"]) or not expected.get("corrupt")


@pytest.mark.parametrize("name", sorted(name for name, one in EXPECTED.items() if one["kind"] == "error"))
def test_error_text_is_refused_in_one_line(name: str) -> None:
    with pytest.raises(TopologyError, match=r"error output|no listing") as caught:
        read_files([FOLDER / name])
    assert "\n" not in str(caught.value)


def test_boards_on_uneven_sockets_are_the_groups() -> None:
    # K80 boards on uneven sockets (2 + 6): the boards, not the sockets, are the groups.
    found = json_object(read_files([FOLDER / "n33_k80_8gpu_uneven_2_6_mixed_ws.txt"]))
    assert found["suggested_mesh"] == [4, 2]
    classes = {(link["a"], link["b"]): link["link_class"] for link in found["links"]}
    assert classes[0, 1] == "pcie_switch" and classes[4, 7] == "pcie_switch"
    assert classes[2, 7] == "host_bridge" and classes[0, 7] == "other_socket"
