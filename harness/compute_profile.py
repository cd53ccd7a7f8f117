"""What a layout's step takes without any communication: its own code, every rank of every node busy at once."""

from __future__ import annotations

from statistics import median
from typing import NamedTuple

from harness.base import Frozen
from harness.layout import Layout

Times = tuple[tuple[float, ...], ...]  # rows are ranks, columns steps; seconds


class ComputeParts(NamedTuple):
    """Seconds of one step without communication. ``optimizer``: clipping and optimizer."""

    forward: float
    backward: float
    optimizer: float

    @property
    def step(self) -> float:
        return sum(self)


class ComputeProfile(Frozen):
    """Raw times of one layout's steps whose collectives carry nothing.

    ``waits``: the ranks of a group waited for each other at each collective, by an all-reduce of one number, whose own
    time is part of the step's; how long ranks that share cores wait is seen no other way.
    """

    layout: Layout
    waits: bool = False
    forward_s: Times
    backward_s: Times
    optimizer_s: Times

    @property
    def parts(self) -> ComputeParts:
        """The median over steps of the slowest rank's time, divided as the times of all ranks and steps are.

        The slowest rank's, since a step ends when all ranks have; where ranks share cores that is when all their work
        is done.
        """
        phases = (self.forward_s, self.backward_s, self.optimizer_s)
        by_rank = [[sum(parts) for parts in zip(*rows, strict=True)] for rows in zip(*phases, strict=True)]
        step = median(max(column) for column in zip(*by_rank, strict=True))
        sums = [sum(map(sum, phase)) for phase in phases]
        return ComputeParts(*(step * one / sum(sums) for one in sums))
