"""A session of a cell's own and the memory of building it and of its first steps."""

from __future__ import annotations

from collections.abc import Callable

import torch

from harness.measure.memory import MemoryWatch, peak_memory
from harness.spec import RunSpec
from harness.train.session import Session
from harness.train.weights import clean_name

MEMORY_STEPS = 2  # the second one finds optimizer state


def fresh_session(
    spec: RunSpec,
    device: torch.device,
    built: Callable[[], None] = lambda: None,
    stepped: Callable[[int], None] = lambda step: None,
) -> tuple[Session, MemoryWatch]:
    """Build the layout and train ``MEMORY_STEPS`` AdamW steps; call it while the process is fresh."""
    with peak_memory(device) as watch:
        session = Session(spec, device, "adamw")
        watch.watch(session.model, session.bare, session.optimizer, clean_name)
        session.on_phase = watch.at_phase
        built()
        for step in range(MEMORY_STEPS):
            batch = session.batch(step)
            watch.begin(step)
            session.step(batch, spec.settings.max_grad_norm)
            watch.end()
            stepped(step)
        session.on_phase = lambda phase: None
    return session, watch
