"""What communication adds to a step, on CUDA: the profiler's kernels laid over each other."""

from __future__ import annotations

import json
import tempfile
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch.profiler import ProfilerActivity, profile, record_function

from harness.exposure import RankExposure
from harness.measure.overlap import OPTIMIZER, STEP, parts, read_trace
from harness.spec import RunSpec
from harness.traffic import StepPhase, axis_names
from harness.train.session import Session

WARMUP_STEPS = 2


def profiled_exposure(spec: RunSpec, device: torch.device) -> RankExposure | None:
    """Profile a few steps; None on one rank. Nothing is turned off."""
    wanted = spec.settings.exposure_steps
    if dist.get_world_size() == 1 or not wanted:
        return None
    session = Session(spec, device, "adamw")
    ranges = ExitStack()

    def at_phase(phase: StepPhase) -> None:
        if phase == "clipping":
            # the device ends backward first, so that the optimizer's range holds its own work alone
            torch.cuda.synchronize(device)
            ranges.enter_context(record_function(OPTIMIZER))

    def step(number: int) -> None:
        session.step(session.batch(number), spec.settings.max_grad_norm)
        torch.cuda.synchronize(device)

    for number in range(WARMUP_STEPS):
        step(number)
    session.on_phase = at_phase
    with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as profiler:
        for number in range(wanted):
            dist.barrier()
            torch.cuda.synchronize(device)
            with record_function(STEP), ranges:
                step(WARMUP_STEPS + number)
    session.close()
    with tempfile.NamedTemporaryFile(suffix=".json") as file:
        profiler.export_chrome_trace(file.name)
        trace = json.loads(Path(file.name).read_text(encoding="utf-8"))
    return _from_trace(trace, spec)


def _from_trace(trace: dict[str, Any], spec: RunSpec) -> RankExposure:
    kernels, steps, optimizers = read_trace(trace)
    axis_of = axis_names(spec.layout.mesh, spec.layout.options.order)
    found = [
        parts(kernels, step, next((one for one in optimizers if step[0] <= one[0] < step[1]), None), axis_of)
        for step in steps
    ]
    axes = sorted({axis for one in found for axis in one.exposed_by_axis_s})
    return RankExposure(
        method="profiler",
        step_time_s=tuple(one.step_time_s for one in found),
        compute_s=tuple(one.compute_s for one in found),
        optimizer_s=tuple(one.optimizer_s for one in found),
        without_axis_s={
            axis: tuple(one.step_time_s - one.exposed_by_axis_s.get(axis, 0.0) for one in found) for axis in axes
        },
    )
