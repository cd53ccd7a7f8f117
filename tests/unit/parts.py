"""Memory by kind and parts of a step for records made by hand."""

from __future__ import annotations

from collections.abc import Sequence

from harness.exposure import Exposure
from harness.memory_kinds import MEMORY_KINDS, MemoryKind, PeakMemory, RankMemory
from harness.record import Memory, RunRecord
from tests.unit.factories import MIB


def rank_memory(module: str | None = "layers.1.ffn", **mib: float) -> RankMemory:
    """One rank whose peak lies in backward; kinds in MiB."""
    kinds: dict[MemoryKind, int] = {kind: round(mib.get(kind, 0) * MIB) for kind in MEMORY_KINDS}
    peak = PeakMemory(peak_bytes=sum(kinds.values()), step=1, phase="backward", module=module, bytes_by_kind=kinds)
    return RankMemory(peak=peak, step_peak=peak, resting_bytes_by_kind=kinds)


def with_memory(record: RunRecord, ranks: Sequence[RankMemory]) -> RunRecord:
    """The record with these ranks' memory."""
    memory = Memory(method="live tensors", peak_bytes=tuple(r.peak.peak_bytes for r in ranks), ranks=tuple(ranks))
    return record.model_copy(update={"memory": memory})


def with_exposure(
    record: RunRecord, step_s: float, compute_s: Sequence[float], optimizer_s: float, **without_axis_s: float
) -> RunRecord:
    """The record with an exposure of constant times: ``compute_s`` a value a rank, the others the same on all."""
    ranks = len(compute_s)
    exposure = Exposure(
        method="without_communication",
        step_time_s=((step_s,) * 3,) * ranks,
        compute_s=tuple((value,) * 3 for value in compute_s),
        optimizer_s=((optimizer_s,) * 3,) * ranks,
        without_axis_s={axis: ((value,) * 3,) * ranks for axis, value in without_axis_s.items()},
    )
    return record.model_copy(update={"exposure": exposure})
