"""Peak memory of a step by another method: every allocation that PyTorch's CPU allocator reports to the profiler."""

from __future__ import annotations

import torch
from torch.profiler import ProfilerActivity, profile, record_function

from harness.layout import get_strategy
from harness.spec import RunSpec
from harness.train import muted
from harness.train.session import Session

SECOND = "second step"


def step_peak(spec: RunSpec) -> int:
    """Bytes at the fullest moment of a second AdamW step, scratch inside operators included.

    From the session's start on, since what is freed counts only if its allocation was seen; and without communication,
    since gloo's own threads, which the profiler does not see, free what its collectives held.
    """
    muted.register()
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiler:
        session = Session(spec, torch.device("cpu"), "adamw", muted=get_strategy(spec.layout.strategy).axes)
        session.step(session.batch(0), spec.settings.max_grad_norm)
        batch = session.batch(1)
        with record_function(SECOND):
            session.step(batch, spec.settings.max_grad_norm)
        session.close()
    assert profiler.profiler is not None
    events = profiler.profiler.kineto_results.events()
    began = next(e.start_ns() for e in events if e.name() == SECOND)
    changes = sorted((e.start_ns(), e.nbytes()) for e in events if e.name() == "[memory]")
    total = peak = 0
    for at, change in changes:
        total += change
        peak = max(peak, total if at > began else 0)
    return peak
