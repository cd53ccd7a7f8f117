"""One session kept on a rank between calls: for benchmarks and tests that drive ranks step by step."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

import torch
import torch.distributed as dist

from harness.checkpoint.measured import CheckpointParts
from harness.exposure import RankExposure
from harness.measure.clock import synchronise
from harness.memory_kinds import RankMemory
from harness.record import Checkpoint, GateSamples
from harness.spec import RunSpec
from harness.traffic import Collective
from harness.train.accounting import Counted, count_step, count_steps, counter_for
from harness.train.checkpoint.measure import measure_checkpoint, measure_ways
from harness.train.equivalence import gate_samples
from harness.train.exposed import rank_exposure
from harness.train.fresh import MEMORY_STEPS, fresh_session
from harness.train.session import Batch, Session

_session: Session | None = None
_batch: Batch | None = None


def device() -> torch.device:
    """This rank's device."""
    return torch.device("cuda", torch.cuda.current_device()) if torch.cuda.is_available() else torch.device("cpu")


def open_session(spec: RunSpec) -> int:
    """Build the layout, train two steps, keep the session; this rank's peak memory so far in bytes."""
    global _session, _batch
    _session, watch = fresh_session(spec, device())
    _batch = _session.batch(MEMORY_STEPS)
    return watch.peak_bytes


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


def collectives(spec: RunSpec) -> tuple[Collective, ...]:
    """This rank's collectives of the third step of a fresh session."""
    session = Session(spec, device(), "adamw")
    for step_number in range(MEMORY_STEPS):
        session.step(session.batch(step_number), spec.settings.max_grad_norm)
    counter = counter_for(session)
    count_step(session, MEMORY_STEPS, counter)
    found = counter.collectives
    session.close()
    return found


def traffic(spec: RunSpec) -> Counted:
    """What the accounting of a verify run finds on this rank."""
    session = Session(spec, device(), "adamw")
    for step_number in range(MEMORY_STEPS):
        session.step(session.batch(step_number), spec.settings.max_grad_norm)
    counted = count_steps(session, MEMORY_STEPS)
    session.close()
    return counted


def gate(spec: RunSpec) -> GateSamples:
    """The samples of the equivalence gate."""
    return gate_samples(spec, device())


def memory(spec: RunSpec) -> RankMemory:
    """What this rank's memory is made of while a fresh session is built and trained."""
    session, watch = fresh_session(spec, device())
    session.close()
    assert watch.rank_memory is not None
    return watch.rank_memory


def exposure(spec: RunSpec) -> RankExposure | None:
    """Steps with and without communication."""
    return rank_exposure(spec, device(), 0)
