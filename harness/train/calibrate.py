"""Times collectives over the groups of every axis of every layout of a launch, and the layouts' compute."""

from __future__ import annotations

import random
from collections.abc import Callable
from functools import partial
from typing import Any, Protocol

import torch
import torch.distributed as dist

from harness.calibration import CALIBRATED, AxisGroups, CalibratedOperation, axis_groups, sizes_up_to
from harness.measure.clock import slowest, timed
from harness.predict.messages import largest_message_bytes
from harness.spec import Launch
from harness.train.compute_profile import profile_compute

ROUNDS = 7
WARMUP = 2
SMALL_BYTES = 64 * 1024
SMALL_REPEATS = 5  # small messages go several times between two looks at the clock
LONGEST_S = 2.0  # larger messages are left out once one took this long


class Reports(Protocol):
    """Where samples and positions go."""

    def sample(self, kind: str, run: int, **values: Any) -> None: ...
    def at(self, run: int, phase: str) -> None: ...


def calibrate_launch(launch: Launch, device: torch.device, reports: Reports) -> None:
    """Time every operation in every set of groups, then every layout's steps without communication.

    All groups of a set communicate at once, as they do in a step; so do all ranks compute.
    """
    sets = axis_groups(launch.layouts)
    groups = [[dist.new_group(list(ranks)) for ranks in one.groups] for one in sets]
    rank = dist.get_rank()
    for index, (one, found) in enumerate(zip(sets, groups, strict=True)):
        mine = next(group for ranks, group in zip(one.groups, found, strict=True) if rank in ranks)
        for operation in CALIBRATED:
            reports.at(0, "timing")
            samples = _time(launch, one, mine, operation, device)
            for size, time_s in samples:
                reports.sample("collective", 0, axis=index, operation=operation, size_bytes=size, time_s=time_s)
    for index, layout in enumerate(launch.layouts):
        reports.at(0, "timing")
        for profile in profile_compute(launch.runs[0], layout, device):
            reports.sample("compute", 0, layout=index, **profile._asdict())
    reports.sample("done", 0)


def _time(
    launch: Launch,
    one: AxisGroups,
    group: dist.ProcessGroup,
    operation: CalibratedOperation,
    device: torch.device,
) -> list[tuple[int, float]]:
    """(size in bytes, seconds) of each collective: sizes in a new order each round, so that no slow spell hits one."""
    workload = launch.runs[0].workload
    largest = max(largest_message_bytes(workload, layout, axis) for layout, axis in one.users)
    works: dict[int, Callable[[], float]] = {}
    for wanted in sizes_up_to(largest):
        work, size = collective(operation, group, wanted, device)
        works[size] = partial(_seconds, work, SMALL_REPEATS if size <= SMALL_BYTES else 1, device)
        took_s = [works[size]() for _ in range(WARMUP)]
        if slowest(took_s[-1]) > LONGEST_S:
            break
    shuffle = random.Random(0).shuffle
    order, samples = list(works), []
    for _ in range(ROUNDS):
        shuffle(order)
        samples += [(size, works[size]()) for size in order]
    return samples


def _seconds(work: Callable[[], object], repeats: int, device: torch.device) -> float:
    return timed(lambda: [work() for _ in range(repeats)], device) / repeats


def collective(
    operation: CalibratedOperation, group: dist.ProcessGroup, size_bytes: int, device: torch.device
) -> tuple[Callable[[], object], int]:
    """One collective of about ``size_bytes`` fp32 and its size: the next that every rank has an equal part of."""
    count = dist.get_world_size(group)
    part_numel = -(-size_bytes // (4 * count))
    whole = torch.ones(part_numel * count, device=device)
    part = torch.ones(part_numel, device=device)
    first = dist.get_process_group_ranks(group)[0]
    works: dict[CalibratedOperation, Callable[[], object]] = {
        "all_gather": lambda: dist.all_gather_into_tensor(whole, part, group=group),
        "reduce_scatter": lambda: dist.reduce_scatter_tensor(part, whole, op=dist.ReduceOp.MAX, group=group),
        "all_reduce": lambda: dist.all_reduce(whole, op=dist.ReduceOp.MAX, group=group),
        "broadcast": lambda: dist.broadcast(whole, first, group=group),
    }
    return works[operation], whole.numel() * 4
