"""Candidates that memory rules out before anything runs: by prediction, or by what ran out of memory before."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from harness.errors import MeshsweepError
from harness.failure import OUT_OF_MEMORY
from harness.layout import Layout
from harness.predict.error import MEMORY_MARGIN
from harness.predict.memory import predict_memory
from harness.record import RunRecord
from harness.spec import Pruned, Ranks
from harness.store import SweepStore, sweeps
from harness.topology.model import Node, Topology
from harness.workload import Workload

GIB = 2**30
# Options whose values need ever more memory from left to right, all else equal.
_RISING: dict[str, tuple[object, ...]] = {
    "activation_checkpointing": ("full", "selective", "none"),
    "reshard_after_forward": (True, False),
}


def prune(
    layouts: Sequence[Layout],
    workload: Workload,
    ranks: Ranks,
    topology: Topology,
    earlier: Sequence[RunRecord] = (),
) -> tuple[tuple[Layout, ...], tuple[Pruned, ...]]:
    """The layouts that may fit, and the others with rule and numbers. What is not known rules nothing out."""
    kept, pruned = [], []
    for layout in layouts:
        why = _too_big(layout, workload, ranks, topology) or _ran_out(layout, workload, ranks, topology, earlier)
        if why is None:
            kept.append(layout)
        else:
            pruned.append(why)
    return tuple(kept), tuple(pruned)


def earlier_failures(results: Path) -> list[RunRecord]:
    """Verify runs of all sweeps in a results folder that ran out of memory; sweeps that cannot be read are left out."""
    found = []
    for folder in sweeps(results):
        try:
            records = SweepStore(folder).records()
        except MeshsweepError:
            continue
        found += [r for r in records if r.failure and r.failure.failure_class in OUT_OF_MEMORY and r.status == "failed"]
    return [record for record in found if record.spec.purpose == "verify"]


def _too_big(layout: Layout, workload: Workload, ranks: Ranks, topology: Topology) -> Pruned | None:
    if workload.model_path is not None:
        return None  # the formulas are those of the reference model
    memory = _smallest_memory(ranks, topology)
    if memory is None:
        return None
    capacity, sharing, place = memory
    need = sharing * predict_memory(layout, workload, kernels="cpu" if ranks.device == "cpu" else "cuda").peak_bytes
    if need <= capacity * (1 + MEMORY_MARGIN):
        return None
    each = f"{sharing} ranks' peaks of together" if sharing > 1 else "a peak of"
    over = need / capacity - 1
    reason = (
        f"predicted {each} {need / GIB:,.1f} GiB a step, {over:.0%} above the {capacity / GIB:,.1f} GiB "
        f"of {place} and beyond the margin of {MEMORY_MARGIN:.0%}; --no-prune runs it"
    )
    return Pruned(layout=layout, rule="predicted_memory", reason=reason)


def _smallest_memory(ranks: Ranks, topology: Topology) -> tuple[int, int, str] | None:
    """(bytes, ranks that share them, whose they are) where memory is scarcest, None where any of it is unknown."""
    found: list[tuple[int, int, str]] = []
    for node, count in zip(topology.nodes, ranks.per_node, strict=False):
        if ranks.device == "cpu":
            if node.memory_bytes is None:
                return None
            found.append((node.memory_bytes, count, f"host {node.host}"))
            continue
        for device in node.devices:
            if device.memory_bytes is None:
                return None
            found.append((device.memory_bytes, 1, f"{device.name or 'a device'} on {node.host}"))
    return min(found, key=lambda one: one[0] / one[1], default=None)


def _ran_out(
    layout: Layout, workload: Workload, ranks: Ranks, topology: Topology, earlier: Sequence[RunRecord]
) -> Pruned | None:
    for record in earlier:
        if _same_memory(record, ranks, topology) and _needs_no_less(layout, workload, record):
            was, failure = record.spec, record.failure
            assert failure is not None
            reason = (
                f"{was.layout.text} ran out of memory ({failure.failure_class}) on {record.started_at[:10]} with "
                f"micro-batch {_micro_batch(was.layout, was.workload)} of {was.workload.seq_len} tokens on the same "
                f"memory, and this with micro-batch {_micro_batch(layout, workload)} of {workload.seq_len} needs no "
                "less; --no-prune runs it"
            )
            return Pruned(layout=layout, rule="earlier_out_of_memory", reason=reason)
    return None


def _same_memory(record: RunRecord, ranks: Ranks, topology: Topology) -> bool:
    """Whether a run was made on the kind of device, and the amount of memory, that are here."""
    ground = record.ground
    if ground is None or record.spec.ranks.device != ranks.device:
        return False
    if ranks.device == "cpu":
        same_crowd = max(record.spec.ranks.per_node) == max(ranks.per_node)
        return same_crowd and {ground.memory_bytes} == {node.memory_bytes for node in topology.nodes} != {None}
    here = {memory for node in topology.nodes for memory in _memories(node)}
    return set(ground.device_names) == _names(topology) and here <= {ground.device_memory_bytes, None}


def _memories(node: Node) -> Iterator[int | None]:
    return (device.memory_bytes for device in node.devices)


def _names(topology: Topology) -> set[str]:
    return {device.name or "" for node in topology.nodes for device in node.devices}


def _needs_no_less(layout: Layout, workload: Workload, record: RunRecord) -> bool:
    """Whether the layout differs from the failed one in nothing but what takes memory, and takes as much or more."""
    was = record.spec
    if (layout.strategy, layout.mesh) != (was.layout.strategy, was.layout.mesh):
        return False
    if (workload.model, workload.model_path) != (was.workload.model, was.workload.model_path):
        return False
    options, others = layout.options.model_dump(), was.layout.options.model_dump()
    for name, value in options.items():
        rising = _RISING.get(name)
        if value == others[name]:
            continue
        if rising is None or value not in rising or others[name] not in rising:
            return False
        if rising.index(value) < rising.index(others[name]):
            return False
    grows = _micro_batch(layout, workload) >= _micro_batch(was.layout, was.workload)
    return grows and workload.seq_len >= was.workload.seq_len


def _micro_batch(layout: Layout, workload: Workload) -> int:
    """Samples of a step on one rank."""
    return workload.global_batch // layout.mesh.dp
