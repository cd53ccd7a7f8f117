"""Communication that no computation hides, from a profiler's kernels: pure functions on events.

On one device a kernel of NCCL is exposed while no other kernel runs on any stream. Times are seconds on the
profiler's clock.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

Interval = tuple[float, float]

NCCL = ("nccldevkernel", "ncclkernel")
STEP, OPTIMIZER = "meshsweep.step", "meshsweep.optimizer"  # ranges that mark a step and its clipping and optimizer


class Kernel(NamedTuple):
    """One kernel on the device. ``ranks``: of the process group that it communicates in; None where it computes."""

    begin_s: float
    end_s: float
    ranks: tuple[int, ...] | None = None


class StepParts(NamedTuple):
    """One step on one rank, seconds."""

    step_time_s: float
    compute_s: float  # the step without exposed communication
    optimizer_s: float
    exposed_by_axis_s: dict[str, float]


def read_trace(trace: dict[str, Any]) -> tuple[list[Kernel], list[Interval], list[Interval]]:
    """Kernels, steps and optimizer ranges of a chrome trace that torch.profiler wrote; its times are microseconds."""
    kernels, steps, optimizers = [], [], []
    for event in trace.get("traceEvents", ()):
        if event.get("ph") != "X":
            continue
        interval = event["ts"] / 1e6, (event["ts"] + event["dur"]) / 1e6
        category, name = event.get("cat"), str(event.get("name"))
        if category in ("kernel", "gpu_memcpy", "gpu_memset"):
            kernels.append(Kernel(*interval, ranks=_ranks(event) if name.lower().startswith(NCCL) else None))
        elif category == "user_annotation":
            # the CPU's ranges: a step waits for the device at its end
            if name == STEP:
                steps.append(interval)
            elif name == OPTIMIZER:
                optimizers.append(interval)
    return kernels, sorted(steps), sorted(optimizers)


def _ranks(event: dict[str, Any]) -> tuple[int, ...]:
    """The group's ranks as the profiler notes them, ``[0, 1]``; empty where it does not."""
    text = event.get("args", {}).get("Process Group Ranks", "[]")
    try:
        found = json.loads(text) if isinstance(text, str) else text
        return tuple(int(rank) for rank in found)
    except (ValueError, TypeError):
        return ()


def parts(
    kernels: Sequence[Kernel], step: Interval, optimizer: Interval | None, axis_of: Callable[[tuple[int, ...]], str]
) -> StepParts:
    """The parts of one step. Where kernels of two axes run at once and nothing else does, both axes are exposed."""
    inside = [k for k in kernels if k.end_s > step[0] and k.begin_s < step[1]]
    busy = union((k.begin_s, k.end_s) for k in inside if k.ranks is None)
    by_axis: dict[str, list[Interval]] = {}
    for kernel in inside:
        if kernel.ranks is not None:
            by_axis.setdefault(axis_of(kernel.ranks), []).append((kernel.begin_s, kernel.end_s))
    exposed = {axis: length(without(clip(union(found), step), busy)) for axis, found in by_axis.items()}
    together = clip(union(one for found in by_axis.values() for one in found), step)
    step_time_s = step[1] - step[0]
    return StepParts(
        step_time_s=step_time_s,
        compute_s=step_time_s - length(without(together, busy)),
        optimizer_s=0.0 if optimizer is None else length(without([optimizer], without(together, busy))),
        exposed_by_axis_s=exposed,
    )


def union(intervals: Iterable[Interval]) -> list[Interval]:
    """Disjoint intervals in order that cover the same time."""
    found: list[Interval] = []
    for begin, end in sorted(intervals):
        if found and begin <= found[-1][1]:
            found[-1] = found[-1][0], max(found[-1][1], end)
        elif end > begin:
            found.append((begin, end))
    return found


def clip(intervals: Iterable[Interval], window: Interval) -> list[Interval]:
    """What of intervals lies in a window."""
    cut = ((max(begin, window[0]), min(end, window[1])) for begin, end in intervals)
    return [(begin, end) for begin, end in cut if end > begin]


def without(intervals: Iterable[Interval], holes: Iterable[Interval]) -> list[Interval]:
    """Time in disjoint, ordered ``intervals`` and in none of the disjoint, ordered ``holes``."""
    found: list[Interval] = []
    cuts = list(holes)
    for begin, end in intervals:
        at = begin
        for cut_begin, cut_end in cuts:
            if cut_end <= at or cut_begin >= end:
                continue
            if cut_begin > at:
                found.append((at, cut_begin))
            at = max(at, cut_end)
        if at < end:
            found.append((at, end))
    return found


def length(intervals: Iterable[Interval]) -> float:
    """Seconds of disjoint intervals."""
    return sum(end - begin for begin, end in intervals)
