"""What tests of checkpoints do on ranks."""

from __future__ import annotations

from pathlib import Path

from harness.checkpoint.measured import CheckpointParts
from harness.checkpoint.throttle import Throttle
from harness.spec import RunSpec
from harness.train.checkpoint.measure import measure_ways
from harness.train.checkpoint.restore import restore
from harness.train.checkpoint.save import save, save_async
from harness.train.checkpoint.state import get_state, whole_fingerprint
from harness.train.fresh import MEMORY_STEPS
from harness.train.remote import device
from harness.train.session import Session

Fingerprint = dict[str, str]


def save_after(spec: RunSpec, root: Path, steps: int, bytes_per_s: float | None = None) -> Fingerprint:
    """Train so many steps and save, perhaps onto a slow storage."""
    session = Session(spec, device(), "adamw")
    for step in range(steps):
        session.step(session.batch(step), spec.settings.max_grad_norm)
    found = whole_fingerprint(get_state(session))
    save(session, steps, root, throttle=Throttle(root / "clock", bytes_per_s) if bytes_per_s else None)
    session.close()
    return found


def save_behind(spec: RunSpec, root: Path) -> Fingerprint:
    """Save asynchronously while three more steps change everything."""
    session = Session(spec, device(), "adamw")
    session.step(session.batch(0), spec.settings.max_grad_norm)
    found = whole_fingerprint(get_state(session))
    saving = save_async(session, 1, root)
    for step in range(1, 4):
        session.step(session.batch(step), spec.settings.max_grad_norm)
    saving.wait()
    session.close()
    return found


def restored(spec: RunSpec, folder: Path) -> Fingerprint:
    """Restore into a session of other weights."""
    session = Session(spec, device(), "adamw", seed=99)
    restore(session, folder)
    found = whole_fingerprint(get_state(session))
    session.close()
    return found


def ways(spec: RunSpec, root: Path) -> CheckpointParts:
    """All ways."""
    return measure_ways(spec, device(), MEMORY_STEPS, root)


def reads(spec: RunSpec, root: Path) -> CheckpointParts:
    """One replica group's reading beside every replica's and the stock way."""
    return measure_ways(
        spec, device(), MEMORY_STEPS, root, ("one_group", "stock"), (("one_group", 2, False), ("each", 2, False))
    )
