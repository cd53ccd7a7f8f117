"""Step times, and when warm-up has become steady."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from statistics import median

import torch
import torch.distributed as dist

WINDOW = 3
STEADY_WITHIN = 0.10


def synchronise(device: torch.device) -> None:
    """Wait for the device's queued work; a CPU has none."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def timed(work: Callable[[], object], device: torch.device) -> float:
    """Seconds of ``work`` on this rank, from a common start to the end of the device's work."""
    dist.barrier()
    synchronise(device)
    start = time.perf_counter()
    work()
    synchronise(device)
    return time.perf_counter() - start


def slowest(seconds: float) -> float:
    """The largest of all ranks' values."""
    value = torch.tensor([seconds], dtype=torch.float64)
    dist.all_reduce(value, op=dist.ReduceOp.MAX)
    return float(value.item())


def is_steady(step_times_s: Sequence[float]) -> bool:
    """Whether steps have stopped getting faster.

    True when the median of the last 3 steps is at most 10% below the median of the 3 steps before them. Warm-up only
    ever makes steps faster, so a step slower than before is noise and no reason to wait.
    """
    if len(step_times_s) < 2 * WINDOW:
        return False
    before = median(step_times_s[-2 * WINDOW : -WINDOW])
    return median(step_times_s[-WINDOW:]) >= (1 - STEADY_WITHIN) * before
