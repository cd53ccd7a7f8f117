"""``nvidia-smi -L``: names and UUIDs of the GPUs, and their MIG devices."""

from __future__ import annotations

import re

from harness.errors import TopologyError
from harness.topology import lookalike
from harness.topology.model import Device, MigSlice, Node, Topology

_GPU = re.compile(r"^[^\w\n]*GPU ([0-9]{1,4}): (.+?) \(UUID: (GPU-[0-9A-Za-z-]+)\)", re.M)
_MIG = re.compile(r"^\W*MIG (\S+)\s+Device\s+([0-9]{1,4}): \(UUID: (MIG-[0-9A-Za-z-]+(?:/[0-9]+/[0-9]+)?)\)")
_LOST = re.compile(r"Unable to determine the device handle for (?:gpu|GPU)\s*([0-9A-Fa-f:.]*[0-9A-Fa-f])?:?\s*(.*)")
SOURCE = "nvidia-smi -L: names, UUIDs, MIG devices"


def matches(text: str) -> bool:
    """Whether ``text`` holds lines of ``nvidia-smi -L``."""
    return _GPU.search(text) is not None


def read(text: str, host: str = "node0") -> Topology:
    """The nodes of ``text``; a GPU number that comes again begins the next node."""
    lookalike.refuse(text)
    nodes: list[list[Device]] = []
    warnings: list[str] = []
    for line in text.split("\n"):
        if gpu := _GPU.match(line):
            device = Device(index=int(gpu.group(1)), kind="cuda", name=gpu.group(2).strip(), uuid=gpu.group(3))
            if not nodes or any(other.index == device.index for other in nodes[-1]):
                nodes.append([])
            nodes[-1].append(device)
        elif (mig := _MIG.match(line)) and nodes:
            part = MigSlice(profile=mig.group(1), index=int(mig.group(2)), uuid=mig.group(3))
            last = nodes[-1][-1]
            nodes[-1][-1] = last.model_copy(update={"mig": (*last.mig, part)})
        elif lost := _LOST.search(line):
            where = f" at {lost.group(1)}" if lost.group(1) else ""
            warnings.append(f"{host}: a GPU{where} does not answer; reset it or drain the node")
    if not nodes:
        raise TopologyError("no GPU line found; save the whole output of `nvidia-smi -L`")
    hosts = [host, *(f"{host}-{position}" for position in range(2, len(nodes) + 1))]
    found = tuple(Node(host=name, devices=tuple(devices)) for name, devices in zip(hosts, nodes, strict=True))
    return Topology(nodes=found, sources=(SOURCE,), warnings=tuple(warnings))
