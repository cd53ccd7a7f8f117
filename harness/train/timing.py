"""Timed steps of several layouts side by side: alternated step by step, or in blocks, in one process group."""

from __future__ import annotations

import random
import time
from itertools import pairwise
from typing import Any, Protocol

import torch

from harness.measure.clock import is_steady, slowest, timed
from harness.spec import Launch, RunSpec
from harness.train.session import Session

BLOCKS = 4


class Reports(Protocol):
    """Where samples and positions go."""

    def sample(self, kind: str, run: int, **values: Any) -> None: ...
    def at(self, run: int, phase: str) -> None: ...


class Lane:
    """One run of a launch, ready to be timed."""

    def __init__(self, index: int, spec: RunSpec, device: torch.device, reports: Reports) -> None:
        self.index, self.spec, self.device, self.reports = index, spec, device, reports
        reports.at(index, "build")
        self.session = Session(spec, device, "adamw")
        self.warmup_s: list[float] = []
        self.steady = False
        self._step = 0

    def step_s(self, phase: str) -> float:
        """Seconds of one step on this rank; the batch is made before, nothing else happens meanwhile."""
        batch = self.session.batch(self._step)
        self._step += 1
        self.reports.at(self.index, phase)
        return timed(lambda: self.session.step(batch, self.spec.settings.max_grad_norm), self.device)

    def warm_up(self) -> None:
        """One warm-up step; all ranks keep the slowest rank's time, so that they agree on when to stop."""
        self.warmup_s.append(slowest(self.step_s("warmup")))
        self.steady = self.steady or is_steady(self.warmup_s)
        if len(self.warmup_s) == 1:
            self.reports.sample("first_step", self.index, unix=time.time())

    @property
    def warm(self) -> bool:
        settings = self.spec.settings
        count = len(self.warmup_s)
        return count >= settings.warmup_max_steps or (count >= settings.warmup_min_steps and self.steady)

    def report_warmup(self) -> None:
        self.reports.sample("warmup", self.index, warmup_s=self.warmup_s, steady=self.steady, unix=time.time())

    def time_step(self, cycle: int) -> None:
        """One timed step."""
        self.reports.sample("step", self.index, cycle=cycle, step_time_s=self.step_s("timing"))


def time_launch(launch: Launch, device: torch.device, reports: Reports) -> None:
    """Time all runs of a launch in the launch's design."""
    if launch.design == "alternated":
        _alternated(launch, device, reports)
    else:
        _blocks(launch, device, reports)
    for index in range(len(launch.runs)):
        reports.sample("done", index)


def _alternated(launch: Launch, device: torch.device, reports: Reports) -> None:
    """All models live together; each cycle steps each of them once, in an order shuffled anew."""
    lanes = [Lane(index, spec, device, reports) for index, spec in enumerate(launch.runs)]
    # Lanes that are steady already keep stepping: what is timed later is steps among other layouts' steps.
    while not all(lane.warm for lane in lanes):
        for lane in lanes:
            lane.warm_up()
    for lane in lanes:
        lane.report_warmup()
    order = list(lanes)
    shuffle = random.Random(f"{launch.runs[0].seed}/{launch.runs[0].repeat}").shuffle
    for cycle in range(launch.runs[0].timed_steps):
        shuffle(order)
        for lane in order:
            lane.time_step(cycle)
    for lane in lanes:
        lane.session.close()


def _blocks(launch: Launch, device: torch.device, reports: Reports) -> None:
    """One model at a time; each is built, warmed and timed for a quarter of its steps, four times over."""
    steps = launch.runs[0].timed_steps
    bounds = [steps * block // BLOCKS for block in range(BLOCKS + 1)]
    for first, last in pairwise(bounds):
        for index, spec in enumerate(launch.runs):
            if first == last:
                continue
            lane = Lane(index, spec, device, reports)
            while not lane.warm:
                lane.warm_up()
            lane.report_warmup()
            for cycle in range(first, last):
                lane.time_step(cycle)
            lane.session.close()
