"""What communication adds to a step, on a CPU: steps with and without it, in turn in one process group."""

from __future__ import annotations

import random
import time
import traceback
from collections.abc import Mapping
from dataclasses import dataclass, field

import psutil
import torch
import torch.distributed as dist

from harness.exposure import RankExposure
from harness.layout import get_strategy
from harness.measure.clock import slowest, timed
from harness.spec import RunSpec
from harness.traffic import StepPhase
from harness.train import muted
from harness.train.session import Session

WARMUP_STEPS = 2
FEWEST_STEPS = 3
SHARE_OF_TIMEOUT = 0.25
SHARE_OF_MEMORY = 0.5


@dataclass
class Lane:
    """Steps of one way to communicate, or not to."""

    session: Session
    step_time_s: list[float] = field(default_factory=list)
    optimizer_s: list[float] = field(default_factory=list)
    _clipping_began: float = 0.0

    def __post_init__(self) -> None:
        self.session.on_phase = self._at_phase

    def _at_phase(self, phase: StepPhase) -> None:
        if phase == "clipping":
            self._clipping_began = time.perf_counter()

    def step(self, number: int) -> None:
        """One timed step."""
        session = self.session
        batch = session.batch(number)
        ended = 0.0

        def work() -> None:
            nonlocal ended
            session.step(batch, session.spec.settings.max_grad_norm)
            ended = time.perf_counter()

        self.step_time_s.append(timed(work, session.device))
        self.optimizer_s.append(ended - self._clipping_began)


def rank_exposure(spec: RunSpec, device: torch.device, peak_bytes: int) -> RankExposure | None:
    """Time steps with all communication, with none and, of several axes, without each; None where that is not done.

    That is: on one rank, where as many models do not fit, where they would take too long, or where a model cannot be
    trained without its communication. All ranks decide alike. ``peak_bytes``: what one session needs.
    """
    axes = get_strategy(spec.layout.strategy).axes
    wanted = spec.settings.exposure_steps
    variants: list[tuple[str, ...]] = [(), axes, *([(axis,) for axis in axes] if len(axes) > 1 else [])]
    if not axes or not wanted or not _fits(spec, len(variants) * peak_bytes):
        return None
    lanes = _build(spec, device, variants)
    if lanes is None:
        return None
    step_s = 0.0
    for number in range(WARMUP_STEPS):
        for lane in lanes.values():
            lane.step(number)
        step_s = slowest(sum(lane.step_time_s[-1] for lane in lanes.values()))
    steps = min(wanted, int(SHARE_OF_TIMEOUT * spec.settings.run_timeout_s / step_s))
    found = _take_turns(lanes, axes, steps) if steps >= min(wanted, FEWEST_STEPS) else None
    for lane in lanes.values():
        lane.session.close()
    return found


def _take_turns(lanes: Mapping[tuple[str, ...], Lane], axes: tuple[str, ...], steps: int) -> RankExposure:
    for lane in lanes.values():
        lane.step_time_s.clear()
        lane.optimizer_s.clear()
    order = list(lanes.values())
    shuffle = random.Random(0).shuffle
    for number in range(steps):
        shuffle(order)
        for lane in order:
            lane.step(WARMUP_STEPS + number)
    silent = lanes[axes]
    return RankExposure(
        method="without_communication",
        step_time_s=tuple(lanes[()].step_time_s),
        compute_s=tuple(silent.step_time_s),
        optimizer_s=tuple(silent.optimizer_s),
        without_axis_s={names[0]: tuple(lane.step_time_s) for names, lane in lanes.items() if names not in ((), axes)},
    )


def _build(spec: RunSpec, device: torch.device, variants: list[tuple[str, ...]]) -> dict[tuple[str, ...], Lane] | None:
    """A session for each set of muted axes; None on all ranks if one of them cannot be trained on any rank."""
    muted.register()
    lanes: dict[tuple[str, ...], Lane] = {}
    for axes in variants:
        problem = False
        try:
            lanes[axes] = Lane(Session(spec, device, "adamw", muted=axes))
            if len(axes) == len(variants[1]):
                lanes[axes].session.step(lanes[axes].session.batch(0), spec.settings.max_grad_norm)
        except Exception:
            traceback.print_exc()
            problem = True
        if slowest(float(problem)):
            for lane in lanes.values():
                lane.session.close()
            return None
    return lanes


def _fits(spec: RunSpec, needed_bytes: int) -> bool:
    """Whether half of the free memory of every host holds the sessions of its ranks."""
    local = max(spec.ranks.per_node)
    short = local * needed_bytes > SHARE_OF_MEMORY * psutil.virtual_memory().available
    return dist.get_world_size() > 1 and not slowest(float(short))
