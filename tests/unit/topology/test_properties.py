"""Whatever a text holds, reading it ends in a topology or in the project's own error; what is written reads back."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.errors import TopologyError
from harness.topology import (
    cuda_visible,
    hostlist,
    nccl_log,
    nvidia_list,
    nvidia_smi,
    rocm_smi,
    slurm_env,
    slurm_gres,
    slurm_topology,
    sniff,
    text,
)
from harness.topology.json_form import json_object
from harness.topology.merge import combine
from harness.topology.model import Device, Link, LinkClass, Nic, NicLink, Node

INPUTS = sorted((Path(__file__).parent / "inputs").iterdir())
READERS: dict[str, Callable[[str], object]] = {
    "any": lambda content: json_object(combine(sniff.read_text(content, "n"))),
    "nvidia-smi": nvidia_smi.read,
    "nvidia-list": nvidia_list.read,
    "rocm-smi": rocm_smi.read,
    "env": slurm_env.read,
    "gres": slurm_gres.read,
    "gres-column": slurm_gres.parse_gres,
    "topology.conf": slurm_topology.read,
    "nccl": nccl_log.read,
    "hostlist": hostlist.expand,
    "counts": hostlist.expand_counts,
}
WORDS = [
    *("GPU0", "GPU1", "GPU[1]", "GPU 0", "NIC0", "mlx5_0", "X", "NV4", "NV12", "SYS", "PIXNODE", "PH0-3", "N/A", "0-7"),
    *("CPU Affinity", "NUMA Affinity", "GPU NUMA ID", "Legend:", "XGMI", "XXXX", "0", "15", "-1", "²", "9" * 40),
    *("Link Type between two GPUs", ": (Topology) Numa Node: 1", "ERROR", "=====", "(UUID: GPU-1)", "GPU 0: A100"),
    *("SLURM_JOB_NODELIST=", "SLURM_TASKS_PER_NODE=", "SLURM_NTASKS=", "n[1-3]", "n[1-", "2(x2)", "NodeName=", "Gres="),
    *("gpu:a100:4(S:0-1)", "gpu:1(IDX:0,x)", "shard:2(-/1", "State=", "idle", "NODELIST", "GRES", "|", "[", "]", ","),
    *("SwitchName=s1", "Switches=s1", "Nodes=n[1-2]", "BlockName=b", "BlockSizes=", "- switch: s", "nodes: n1"),
    *(
        "h:1:2 [0] NCCL INFO",
        "rank 1 nranks 2 cudaDev 0 busId 1a000",
        "Channel 00/02 : 0 1",
        "nRanks 2 nNodes 1 localRanks 2",
    ),
    *('{"nodes": [{"gres": 1}]}', '{"sinfo": ', "\t", "\t\t", "  ", "\n", "\n", "\n", "\r\n", "\x1b[4m", "#", "> "),
]
TEXTS = st.one_of(
    st.text(max_size=120),
    st.lists(st.sampled_from(WORDS), max_size=40).map("".join),
    st.lists(st.sampled_from(WORDS), max_size=40).map(" ".join),
    st.lists(st.sampled_from(WORDS), max_size=40).map("\t".join),
)


@pytest.mark.parametrize("name", READERS)
@settings(max_examples=60)
@given(content=TEXTS)
def test_any_text_is_read_or_refused_with_our_error(name: str, content: str) -> None:
    _read(READERS[name], content)


@settings(max_examples=150)
@given(data=st.data())
def test_damaged_listing_is_read_or_refused_with_our_error(data: st.DataObject) -> None:
    content = data.draw(st.sampled_from(INPUTS)).read_text(encoding="utf-8")
    start = data.draw(st.integers(0, len(content)))
    end = data.draw(st.integers(start, min(len(content), start + 60)))
    _read(READERS["any"], content[:start] + data.draw(st.sampled_from(["", " ", "\t", "\n", "X", "9"])) + content[end:])


def _read(reader: Callable[[str], object], content: str) -> None:
    try:
        reader(text.clean(content))
    except TopologyError as error:
        assert str(error) and "\n" not in str(error)


@settings(max_examples=60)
@given(st.binary(max_size=80))
def test_any_bytes_are_text(data: bytes) -> None:
    _read(READERS["any"], text.decode(data))


@settings(max_examples=100)
@given(
    st.text(max_size=30) | st.lists(st.sampled_from(["0", "1", "-1", "GPU-a", "MIG-", " 2 ", "+", ""])).map(",".join)
)
def test_any_cuda_visible_devices_names_each_device_once_at_most(value: str) -> None:
    devices = [Device(index=index, uuid=f"GPU-{name}") for index, name in enumerate(("ab", "ac", "b"))]
    seen = cuda_visible.visible_devices(value, devices)
    assert len(set(seen)) == len(seen) <= 3


CLASSES = {
    "PIX": LinkClass.PCIE_SWITCH,
    "PXB": LinkClass.PCIE_SWITCH,
    "PHB": LinkClass.HOST_BRIDGE,
    "NODE": LinkClass.NUMA_NODE,
    "SYS": LinkClass.OTHER_SOCKET,
}


@st.composite
def nodes(draw: st.DrawFn) -> Node:
    indices = sorted(draw(st.sets(st.integers(0, 30), min_size=1, max_size=6)))
    devices = tuple(
        Device(
            index=index,
            numa_node=draw(st.none() | st.integers(0, 300)),
            memory_numa_node=draw(st.none() | st.integers(301, 400)),
            cpus=draw(st.sampled_from(["0-3", "4,9", "0-19,40-59"])),
        )
        for index in indices
    )
    words = st.sampled_from([*CLASSES, *(f"NV{count}" for count in (1, 4, 18))])
    links = tuple(_link(a, b, draw(words)) for at, a in enumerate(indices) for b in indices[at + 1 :])
    nics = tuple(
        Nic(
            name=f"NIC{number}",
            device_name=draw(st.none() | st.sampled_from(["mlx5_0", "rocep4s0f1"])),
            links=tuple(
                NicLink(device=index, link_class=draw(st.sampled_from(sorted(set(CLASSES.values())))))
                for index in indices
            ),
        )
        for number in range(draw(st.integers(0, 3)))
    )
    return Node(host="n", devices=devices, links=links, nics=nics)


def _link(a: int, b: int, word: str) -> Link:
    if word.startswith("NV"):
        return Link(a=a, b=b, link_class=LinkClass.NVLINK, nvlink_count=int(word[2:]), label=word)
    return Link(a=a, b=b, link_class=CLASSES[word], label=word)


@settings(max_examples=50)
@given(nodes())
def test_matrix_written_and_read_back_is_the_same(node: Node) -> None:
    written = nvidia_smi.write(node)
    assert nvidia_smi.read(written, "n").nodes == (node,)
    spaced = "\n".join(line.expandtabs(16) for line in written.split("\n"))
    assert nvidia_smi.read(spaced, "n").nodes[0].links == node.links
