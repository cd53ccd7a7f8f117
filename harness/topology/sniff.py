"""What kind of listing a saved text is, and its reading; a text of no known kind is refused with a hint."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from harness.errors import TopologyError
from harness.topology import (
    hostlist,
    lookalike,
    nccl_log,
    nvidia_list,
    nvidia_smi,
    rocm_smi,
    slurm_env,
    slurm_gres,
    slurm_nodes,
    slurm_topology,
    text,
)
from harness.topology.model import Node, Topology
from harness.topology.nccl_log import NcclFacts
from harness.topology.result import HostList
from harness.topology.slurm_env import SlurmJob
from harness.topology.slurm_gres import GresNode
from harness.topology.slurm_topology import Fabric

_SAVE = "save `nvidia-smi topo -m`, `rocm-smi --showtopo` or `scontrol show node` instead"
_HINTS: tuple[tuple[re.Pattern[str], str], ...] = (
    (
        re.compile(
            r"NVIDIA-SMI has failed|Failed to initialize NVML|No devices (?:were )?found|NVML: |"
            r"Driver not initialized|command not found|Unable to locate the ROCm",
            re.I,
        ),
        "the tool failed on that machine; load the driver or ask for a GPU, then save the listing again",
    ),
    (
        re.compile(r"Unable to contact slurm|slurm_load_|Invalid node name|Node \S+ not found", re.I),
        "the Slurm command failed; run it where the controller answers and save its output again",
    ),
    (
        re.compile(r"^[^\w\n]*NVIDIA-SMI [0-9]|=NVSMI LOG=|GPU +Name +Persistence", re.M),
        "the nvidia-smi overview shows no links between GPUs; save `nvidia-smi topo -m` instead",
    ),
    (re.compile(r"\bJOBID\b"), "this is a list of jobs; save `env` from inside the job or `scontrol show node`"),
    (
        re.compile(r"GPUs? +Temp|Card [sS]eries|ROCm-smi|amd-smi", re.I),
        "this output of the AMD tool shows no links between GPUs; save `rocm-smi --showtopo` instead",
    ),
    (
        re.compile(
            r"Traceback \(most recent|\berror\b|out of memory|slurmstepd|\bsrun: |\bNCCL\b|Xid|CANCELLED|"
            r"ProcessGroup|TIME LIMIT|oom[-_ ]kill",
            re.I,
        ),
        f"this is error output of a job, not a description of a machine; {_SAVE}",
    ),
)


@dataclass
class Part:
    """One text's reading. ``named`` tells whether the text itself names each node's host."""

    kind: str
    topology: Topology
    named: bool = True
    job: SlurmJob | None = None
    gres: tuple[GresNode, ...] = ()
    fabric: Fabric | None = None
    nccl: NcclFacts | None = None
    hostlists: tuple[HostList, ...] = field(default=())


def read_text(content: str, name: str) -> list[Part]:
    """The readings of ``content``; ``name`` is the host of a listing that names none."""
    if not content.strip():
        raise TopologyError(f"the file is empty; {_SAVE}")
    parts = list(_device_parts(content, name))
    if parts:
        if slurm_env.matches(content):
            parts.extend(_job_part(content))
        return parts
    lookalike.refuse(content)
    if nccl_log.matches(content):
        topology, facts = nccl_log.read(content)
        return [Part("nccl-log", topology, nccl=facts)]
    if slurm_env.matches(content):
        topology, job = slurm_env.read(content)
        return [Part("slurm-env", topology, job=job)]
    if slurm_topology.matches(content):
        topology, fabric = slurm_topology.read(content)
        return [Part("slurm-topology", topology, fabric=fabric)]
    if slurm_nodes.matches(content):
        topology, nodes = slurm_gres.read(content, name)
        return [Part("slurm-gres", topology, gres=nodes)]
    lists = _hostlists(content)
    if lists:
        hosts = dict.fromkeys(host for one in lists for host in one.hosts)
        found = Topology(nodes=tuple(Node(host=host) for host in hosts), sources=("host lists: nodes",))
        return [Part("slurm-hostlist", found, hostlists=lists)]
    raise TopologyError(_refusal(content))


def _device_parts(content: str, name: str) -> Iterator[Part]:
    """One part a kind and machine; equal outputs that a launcher merged become one node a host."""
    readers = (
        ("nvidia-topo", _is_nvidia_matrix, nvidia_smi.read),
        ("rocm-topo", rocm_smi.matches, rocm_smi.read),
        ("nvidia-list", nvidia_list.matches, nvidia_list.read),
    )
    sections = text.sections(content)
    if not any(matches(section.text) for section in sections for _, matches, _ in readers):
        return
    lookalike.refuse(content)
    unnamed = 0
    for section in sections:
        hosts = section.hosts
        if not hosts and any(matches(section.text) for _, matches, _ in readers):
            unnamed += 1
            hosts = (name if unnamed == 1 else f"{name}-{unnamed}",)
        for kind, matches, read in readers:
            if matches(section.text):
                for host in hosts:
                    yield Part(kind, read(section.text, host), named=bool(section.hosts))


def _is_nvidia_matrix(content: str) -> bool:
    """rocm-smi's matrices have the same header but for the affinity columns."""
    return nvidia_smi.matches(content) and ("CPU Affinity" in content or not rocm_smi.matches(content))


def _job_part(content: str) -> list[Part]:
    """The job around a listing; an environment that is cut short is no reason to refuse the listing."""
    try:
        topology, job = slurm_env.read(content)
    except TopologyError:
        return []
    return [Part("slurm-env", topology, job=job)]


def _hostlists(content: str) -> tuple[HostList, ...]:
    """Each line as a host list; nothing unless every line is one and one has brackets or several hosts."""
    lines = [line.strip() for line in content.split("\n")]
    lines = [line for line in lines if line and not line.startswith("#")]
    plain = len(lines) > 1 and all(re.search(r"[0-9]", line) for line in lines)  # as `scontrol show hostnames`
    if not plain and not any("[" in line or "," in line for line in lines):
        return ()
    if not all(re.fullmatch(r"[A-Za-z0-9_.,\[\]\s-]+", line) and _listed(line) for line in lines):
        return ()
    return tuple(HostList(text=line, hosts=hostlist.expand(line)) for line in lines)


def _listed(line: str) -> bool:
    """Whether blanks in ``line`` stand only after commas, as in a list and not as in a sentence."""
    return re.search(r"[^,\s]\s+[^,\s]", line) is None


def _refusal(content: str) -> str:
    for pattern, hint in _HINTS:
        if pattern.search(content):
            return hint
    return f"this is no listing of a known kind; {_SAVE}"
