"""One session kept on a rank between calls: for benchmarks and tests that drive ranks step by step."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

import torch
import torch.distributed as dist

from harness.checkpoint.measured import CheckpointParts
from harness.measure.clock import synchronise
from harness.measure.memory import peak_memory
from harness.record import Checkpoint, GateSamples
from harness.spec import RunSpec
from harness.train.checkpoint.measure import measure_checkpoint, measure_ways
from harness.train.equivalence import gate_samples
from harness.train.session import Batch, Session

MEMORY_STEPS = 2

_session: Session | None = None
_batch: Batch | None = None


def device() -> torch.device:
    """This rank's device."""
    return torch.device("cuda", torch.cuda.current_device()) if torch.cuda.is_available() else torch.device("cpu")


def open_session(spec: RunSpec) -> int:
    """Build the layout, train two steps, keep the session; this rank's peak memory so far in bytes."""
    global _session, _batch
    with peak_memory(device()) as peak:
        _session = Session(spec, device(), "adamw")
        for step in range(MEMORY_STEPS):
            _session.step(_session.batch(step), spec.settings.max_grad_norm)
    _batch = _session.batch(MEMORY_STEPS)
    return peak.allocated


def step() -> None:
    """One step of the kept session, to the end of the device's work."""
    assert _session is not None and _batch is not None
    _session.step(_batch, _session.spec.settings.max_grad_norm)
    synchronise(device())


def close_session() -> None:
    """Drop the kept session."""
    global _session, _batch
    assert _session is not None
    _session.close()
    _session = _batch = None


def checkpoint(spec: RunSpec) -> Checkpoint:
    """Save, restore and compare a fresh session of ``spec`` in a temporary folder."""
    folders: list[str | None] = [tempfile.mkdtemp() if dist.get_rank() == 0 else None]
    dist.broadcast_object_list(folders)
    root = Path(str(folders[0]))
    session = Session(spec, device(), "adamw")
    for step_number in range(MEMORY_STEPS):
        session.step(session.batch(step_number), spec.settings.max_grad_norm)
    result = measure_checkpoint(session, spec, device(), MEMORY_STEPS, root)
    dist.barrier()
    if dist.get_rank() == 0:
        shutil.rmtree(root, ignore_errors=True)
    return result


def checkpoint_ways(spec: RunSpec, root: Path) -> CheckpointParts:
    """Every way to save and to restore, in the folder ``root``."""
    return measure_ways(spec, device(), MEMORY_STEPS, root)


def gate(spec: RunSpec) -> GateSamples:
    """The samples of the equivalence gate."""
    return gate_samples(spec, device())
