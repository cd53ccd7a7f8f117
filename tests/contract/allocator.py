"""Peak memory of a step by another method: every allocation that PyTorch's CPU allocator reports to the profiler."""

from __future__ import annotations

import torch
from torch.profiler import ProfilerActivity, profile, record_function

from harness.layout import get_strategy
from harness.measure.memory import LiveTensors, peak_memory
from harness.spec import RunSpec
from harness.train import muted
from harness.train.session import Session
from harness.train.weights import clean_name

SECOND = "second step"


def step_peaks(spec: RunSpec) -> tuple[int, int]:
    """Bytes at the fullest moment of a second AdamW step: as the allocator counts them, and by the books of memory.

    The allocator's have scratch inside operators too; the books' are less what the process held before.

    From the session's start on, since what is freed counts only if its allocation was seen; and without communication,
    since gloo's own threads, which the profiler does not see, free what its collectives held.
    """
    muted.register()
    before = LiveTensors("cpu").ledger
    held_before = sum(before.by_kind(before.position).values())
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiler:
        session = Session(spec, torch.device("cpu"), "adamw", muted=get_strategy(spec.layout.strategy).axes)
        session.step(session.batch(0), spec.settings.max_grad_norm)
        batch = session.batch(1)
        with record_function(SECOND), peak_memory(session.device) as watch:
            watch.watch(session.model, session.bare, session.optimizer, clean_name)
            session.on_phase = watch.at_phase
            watch.begin(1)
            session.step(batch, spec.settings.max_grad_norm)
            watch.end()
        session.close()
    assert profiler.profiler is not None
    events = profiler.profiler.kineto_results.events()
    began = next(e.start_ns() for e in events if e.name() == SECOND)
    changes = sorted((e.start_ns(), e.nbytes()) for e in events if e.name() == "[memory]")
    total = peak = 0
    for at, change in changes:
        total += change
        peak = max(peak, total if at > began else 0)
    return peak, watch.peak_bytes - held_before
