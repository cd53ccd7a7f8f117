"""Several files together, and files that are no listing."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from harness.errors import TopologyError
from harness.topology.detect import read_files
from harness.topology.json_form import json_object
from harness.topology.model import Device, Link, LinkClass, Node, Topology
from harness.topology.text import sections

MATRIX = "\tGPU0\tGPU1\tCPU Affinity\tNUMA Affinity\nGPU0\t X \tNV4\t0-3\t0\nGPU1\tNV4\t X \t4-7\t1\n"


def save(folder: Path, **contents: str | bytes) -> list[Path]:
    paths = []
    for name, content in contents.items():
        path = folder / f"{name}.txt"
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        paths.append(path)
    return paths


def test_one_file_a_node_is_called_after_its_file(tmp_path: Path) -> None:
    topology = read_files(save(tmp_path, gpu01=MATRIX, gpu02=MATRIX)).topology
    assert [node.host for node in topology.nodes] == ["gpu01", "gpu02"]


def test_job_decides_the_order_and_the_switches_are_added(tmp_path: Path) -> None:
    result = read_files(
        save(
            tmp_path,
            n1=f"[me@n1 ~]$ nvidia-smi topo -m\n{MATRIX}",
            n2=f"[me@n2.example.org ~]$ nvidia-smi topo -m\n{MATRIX}",
            env="SLURM_JOB_NODELIST=n[2,1]\nSLURM_TASKS_PER_NODE=2(x2)\n",
            topology="SwitchName=l1 Nodes=n1,n9\nSwitchName=l2 Nodes=n2\n",
        )
    )
    nodes = {node.host: node for node in result.topology.nodes}
    assert nodes["n1"].switch == "l1" and "n9" not in nodes
    assert [len(node.devices) for node in result.topology.nodes] == [2, 2]
    assert result.job is not None and result.job.nodes == ("n2", "n1")


def test_listing_inside_a_job_script_log_belongs_to_that_node(tmp_path: Path) -> None:
    log = f"SLURM_JOB_NODELIST=n[1-2]\nSLURMD_NODENAME=n2\nSLURM_NTASKS=4\n\n{MATRIX}"
    topology = read_files(save(tmp_path, log=log)).topology
    assert [(node.host, len(node.devices)) for node in topology.nodes] == [("n1", 0), ("n2", 2)]


def test_differing_counts_of_one_machine_are_warned_of(tmp_path: Path) -> None:
    first = f"[me@n1 ~]$ nvidia-smi topo -m\n{MATRIX}"
    second = "[me@n1 ~]$ nvidia-smi -L\nGPU 0: A (UUID: GPU-1)\n"
    topology = read_files(save(tmp_path, a=first, b=second)).topology
    assert len(topology.nodes) == 1 and "2 devices and another 1" in topology.warnings[0]


def test_powershell_encoding_and_html(tmp_path: Path) -> None:
    paths = save(tmp_path, a=MATRIX.encode("utf-16"), b=f"<pre>\n&gt; {MATRIX}".replace("&gt; ", "&nbsp;"))
    assert [len(node.devices) for node in read_files(paths).topology.nodes] == [2, 2]


@pytest.mark.parametrize(
    ("content", "cause"),
    [
        ("", "empty"),
        ("hello\n", "no listing of a known kind"),
        ("NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver.", "failed on that machine"),
        ("| NVIDIA-SMI 550.54   Driver Version: 550.54 |\n", "overview shows no links"),
        ("slurm_load_node error: Unable to contact slurm controller", "Slurm command failed"),
        ("  JOBID PARTITION NAME USER ST TIME NODES NODELIST(REASON)\n 1 gpu a b R 1 1 n1\n", "list of jobs"),
        ("torch.OutOfMemoryError: CUDA out of memory. 3 GiB is reserved by PyTorch but idle.", "error output"),
        ("\tGPU0\tGPU1\tCPU Affinity\n", "no GPU row"),
        ("== ROCm System Management Interface ==\nGPU  Temp\n", "no link or NUMA table"),
        ("SLURM_JOB_NODELIST=n[1\n", "brackets"),
        ("SLURM_JOB_NODELIST=n1\nSLURM_NTASKS=many\n", "no count"),
        ("SLURM_VERSION=25\n", "no SLURM_JOB_NODELIST"),
    ],
)
def test_what_is_no_listing_is_refused_in_one_line(tmp_path: Path, content: str, cause: str) -> None:
    with pytest.raises(TopologyError, match=cause) as caught:
        read_files(save(tmp_path, given=content))
    assert "\n" not in str(caught.value) and "given.txt" in str(caught.value)


def test_missing_file_and_no_file(tmp_path: Path) -> None:
    with pytest.raises(TopologyError, match="No such file"):
        read_files([tmp_path / "absent.txt"])
    with pytest.raises(TopologyError, match="no file given"):
        read_files([])
    with pytest.raises(TopologyError):
        read_files(["a\0b"])


def test_json_object_of_a_topology_alone() -> None:
    devices = (Device(index=0, numa_node=1, pci_bus="0000:1a:00.0"), Device(index=2))
    link = Link(a=0, b=2, link_class=LinkClass.NVLINK, nvlink_count=4)
    found = json_object(Topology(nodes=(Node(host="n", devices=devices, links=(link,)),), sources=("made",)))
    assert found["links"] == [{"host": "n", "a": 0, "b": 2, "link_class": "nvlink", "nvlink_count": 4}]
    assert found["islands"] == [[0, 2]] and found["suggested_mesh"] == [1, 2] and found["warnings"] == []
    first = found["nodes"][0]["devices"][0]
    assert [first[key] for key in ("index", "name", "numa_node", "pci_bus")] == [0, None, 1, "0000:1a:00.0"]
    assert "tasks_per_node" not in found and "switches" not in found


def test_nodes_without_a_common_size_give_no_mesh_and_a_warning() -> None:
    nodes = tuple(
        Node(host=f"n{count}", devices=tuple(Device(index=index) for index in range(count))) for count in (8, 7)
    )
    found = json_object(Topology(nodes=nodes))
    assert found["suggested_mesh"] is None and "n8 8, n7 7" in found["warnings"][0]


def test_sections_by_prefix_prompt_frame_and_banner() -> None:
    assert [one.hosts for one in sections("a1: x\na2: y\na1: z\na2: w\n")] == [("a1",), ("a2",)]
    assert [one.hosts for one in sections("==> n1.txt <==\nx\n==> n2.txt <==\ny\n")] == [("n1",), ("n2",)]
    assert [one.hosts for one in sections("n1 | CHANGED | rc=0 >>\nx\n")] == [("n1",)]
    assert [one.hosts for one in sections("root@n7:/# ls\nx\n")] == [("n7",)]
    assert [one.hosts for one in sections("plain text\n")] == [()]


def test_topology_package_does_not_import_torch() -> None:
    code = "import sys, harness.topology.detect, harness.topology.json_form; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
