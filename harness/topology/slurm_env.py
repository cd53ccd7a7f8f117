"""A Slurm job's or step's environment: nodes in rank order, tasks per node, GPUs per node."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping

from pydantic import Field

from harness.base import Frozen
from harness.errors import TopologyError
from harness.topology import hostlist
from harness.topology.model import Device, Node, Topology
from harness.topology.plain import one_line

_LINE = re.compile(
    r"^[^\w\n]*(?:export |declare -x |env |[\w.-]{1,64}: *)*"
    r"((?:SLURM|SLURMD|CUDA|ROCR|HIP|GPU)_[A-Z0-9_]+)(?:=| ?[=:] )(.*)$",
    re.M,
)
_HET = re.compile(r"SLURM_JOB_NODELIST_(?:HET|PACK)_GROUP_([0-9]{1,4})\Z")
_MAX_TASKS = 1 << 24
_MAX_GPUS_PER_NODE = 1024
SOURCE = "slurm environment: nodes, tasks per node, GPUs per node"


class SlurmJob(Frozen):
    """What the environment says of the job; tuples follow the order of ``nodes``. Unknown is empty or None."""

    nodes: tuple[str, ...]
    tasks_per_node: tuple[int, ...] = ()
    step_nodes: tuple[str, ...] = ()
    step_tasks_per_node: tuple[int, ...] = ()
    ntasks: int | None = Field(default=None, ge=0)
    cpus_per_node: tuple[int, ...] = ()
    gpus_on_node: int | None = None
    job_gpus: tuple[int, ...] = ()  # physical indices on this node, not a count
    job_id: str | None = None
    node_name: str | None = None
    het_groups: int = 0


def matches(text: str) -> bool:
    """Whether ``text`` is an environment with a Slurm node list or task count in it."""
    return any(name.startswith("SLURM") for name, _ in _LINE.findall(text))


def parse(text: str) -> dict[str, str]:
    """The Slurm and device variables of ``env`` output; the first value wins where several tasks printed."""
    found: dict[str, str] = {}
    for name, value in _LINE.findall(text):
        found.setdefault(name, value.strip().removesuffix(";").strip("\"'"))
    return found


def read(text: str) -> tuple[Topology, SlurmJob]:
    """Topology and job of saved ``env`` output."""
    return from_environ(parse(text))


def from_environ(environ: Mapping[str, str] = os.environ) -> tuple[Topology, SlurmJob]:
    """Topology and job of a running task's environment."""
    job = job_of(environ)
    warnings: list[str] = []
    counts = _gpu_counts(environ, job, warnings)
    kind = "rocm" if "ROCR_VISIBLE_DEVICES" in environ and "CUDA_VISIBLE_DEVICES" not in environ else "cuda"
    nodes = tuple(
        Node(
            host=host,
            devices=tuple(Device(index=index, kind=kind) for index in range(count)),
            cpu_count=job.cpus_per_node[position] if position < len(job.cpus_per_node) else None,
            **_switches(environ, host),
        )
        for position, (host, count) in enumerate(zip(job.nodes, counts, strict=True))
    )
    return Topology(nodes=nodes, sources=(SOURCE,), warnings=tuple(warnings)), job


def job_of(environ: Mapping[str, str]) -> SlurmJob:
    """The job that ``environ`` describes; several node lists of a heterogeneous job are joined in order."""
    groups = sorted(int(match.group(1)) for name in environ if (match := _HET.match(name)))
    suffixes = [_het_suffix(environ, group) for group in groups] or [""]
    nodes: list[str] = []
    tasks: list[int] = []
    for suffix in suffixes:
        part = _nodes(environ, suffix)
        nodes.extend(part)
        tasks.extend(_tasks(environ, suffix, len(part)))
    if not nodes:
        raise TopologyError("no SLURM_JOB_NODELIST in this environment; save `env` from inside the job")
    step_nodes = hostlist.expand(environ.get("SLURM_STEP_NODELIST", ""))
    step_tasks = _counts(environ, "SLURM_STEP_TASKS_PER_NODE")
    return SlurmJob(
        nodes=tuple(nodes),
        tasks_per_node=tuple(tasks) if len(tasks) == len(nodes) else (),
        step_nodes=step_nodes,
        step_tasks_per_node=step_tasks if len(step_tasks) == len(step_nodes or nodes) else (),
        ntasks=_ntasks(environ, tasks),
        cpus_per_node=_fit(_counts(environ, "SLURM_JOB_CPUS_PER_NODE"), len(nodes)),
        gpus_on_node=_integer(environ, "SLURM_GPUS_ON_NODE"),
        job_gpus=_indices(environ.get("SLURM_STEP_GPUS") or environ.get("SLURM_JOB_GPUS", "")),
        job_id=environ.get("SLURM_JOB_ID") or environ.get("SLURM_JOBID"),
        node_name=environ.get("SLURMD_NODENAME"),
        het_groups=len(groups),
    )


def _het_suffix(environ: Mapping[str, str], group: int) -> str:
    return next(
        suffix for word in ("HET", "PACK") if f"SLURM_JOB_NODELIST{(suffix := f'_{word}_GROUP_{group}')}" in environ
    )


def _nodes(environ: Mapping[str, str], suffix: str) -> tuple[str, ...]:
    names = ("SLURM_JOB_NODELIST", "SLURM_NODELIST", "SLURM_STEP_NODELIST")
    for name in names:
        if hosts := hostlist.expand(environ.get(name + suffix, "")):
            return hosts
    name = environ.get("SLURMD_NODENAME", "")
    return (name,) if name and not suffix and environ.get("SLURM_JOB_NUM_NODES", "1") == "1" else ()


def _tasks(environ: Mapping[str, str], suffix: str, nodes: int) -> tuple[int, ...]:
    """Tasks on each node: as printed, else each node's share of the total in Slurm's block order."""
    printed = _fit(_counts(environ, "SLURM_TASKS_PER_NODE" + suffix), nodes)
    if printed or not nodes:
        return printed
    each = _integer(environ, "SLURM_NTASKS_PER_NODE" + suffix)
    if each is not None:
        return (each,) * nodes
    total = _integer(environ, "SLURM_NTASKS" + suffix) or _integer(environ, "SLURM_NPROCS" + suffix)
    if total is None or total < nodes:
        return ()
    return tuple(total // nodes + (position < total % nodes) for position in range(nodes))


def _ntasks(environ: Mapping[str, str], tasks: list[int]) -> int | None:
    """A step's own count is what runs; the job's per-node counts may be CPU slots."""
    for name in ("SLURM_STEP_NUM_TASKS", "SLURM_NTASKS", "SLURM_NPROCS"):
        if (count := _integer(environ, name)) is not None:
            return count
    return sum(tasks) if tasks else None


def _gpu_counts(environ: Mapping[str, str], job: SlurmJob, warnings: list[str]) -> tuple[int, ...]:
    """GPUs of each node; what is known of one node only is said of the others where the tasks bear it out."""
    nodes = len(job.nodes)
    for name in ("SLURM_GPUS_PER_NODE", "SLURM_JOB_GPUS_PER_NODE"):
        if (each := _gres_count(environ.get(name, ""))) is not None:
            return (each,) * nodes
    here = job.gpus_on_node
    if here is None:
        here = len(job.job_gpus) or _visible(environ) or None
    if here is None or here > _MAX_GPUS_PER_NODE:
        return (0,) * nodes
    total = _gres_count(environ.get("SLURM_GPUS", ""))
    if nodes == 1 or total == here * nodes or set(job.tasks_per_node) == {here}:
        return (here,) * nodes
    known = job.node_name if job.node_name in job.nodes else job.nodes[0]
    warnings.append(f"GPUs are known of {known} only; save a listing from each node, or scontrol show node")
    return tuple(here if host == known else 0 for host in job.nodes)


def _visible(environ: Mapping[str, str]) -> int:
    value = environ.get("CUDA_VISIBLE_DEVICES") or environ.get("ROCR_VISIBLE_DEVICES") or ""
    return len([part for part in value.split(",") if re.fullmatch(r"\s*(?:[0-9]+|(?:GPU|MIG)-\S+)\s*", part)])


def _switches(environ: Mapping[str, str], host: str) -> dict[str, object]:
    """The switches above this very node, as SLURM_TOPOLOGY_ADDR lists them from the root."""
    address = environ.get("SLURM_TOPOLOGY_ADDR", "")
    pattern = environ.get("SLURM_TOPOLOGY_ADDR_PATTERN", "")
    depth = pattern.split(".").count("switch")
    if not depth or not address.endswith(f".{host}"):
        return {}
    path = tuple(reversed(address.removesuffix(f".{host}").split(".")))
    return {"switch": path[0], "switch_path": path} if len(path) == depth else {}


def _counts(environ: Mapping[str, str], name: str) -> tuple[int, ...]:
    value = environ.get(name, "")
    return hostlist.expand_counts(value) if value else ()


def _fit(counts: tuple[int, ...], nodes: int) -> tuple[int, ...]:
    return counts if len(counts) == nodes else ()


def _integer(environ: Mapping[str, str], name: str) -> int | None:
    value = environ.get(name, "")
    if not value:
        return None
    if not re.fullmatch(r"[0-9]{1,9}", value) or int(value) > _MAX_TASKS:
        raise TopologyError(f"{name}={one_line(value)} is no count; save `env` from inside the job again")
    return int(value)


def _gres_count(value: str) -> int | None:
    """The number in ``4``, ``a100:4`` or ``gpu:a100:4``; None for none or for a sum of several types."""
    match = re.fullmatch(r"(?:[\w.-]+:)*([0-9]{1,4})", value)
    return int(match.group(1)) if match and int(match.group(1)) <= _MAX_GPUS_PER_NODE else None


def _indices(value: str) -> tuple[int, ...]:
    if not re.fullmatch(r"[0-9]{1,4}(?:[-,][0-9]{1,4})*", value):
        return ()
    return tuple(int(number) for number in hostlist.expand(f"[{value}]"))
