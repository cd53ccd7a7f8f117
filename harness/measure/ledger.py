"""The books of a rank's memory: births, resizes and deaths of storages in order, read when all is known of each.

What a storage is for shows only later: a tensor of backward turns out to be a gradient when a parameter holds it. So
events are kept, kinds are marked whenever something is learnt, and the peak is found by going through the events again.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from typing import NamedTuple

from harness.memory_kinds import MEMORY_KINDS, MemoryKind, PeakMemory
from harness.traffic import StepPhase

# In the order in which a mark wins over others. An all-gathered parameter is no activation though it may outlive
# forward; what tensor parallelism reduces is one if it does.
Mark = MemoryKind | str
PRIORITY: tuple[Mark, ...] = (
    "parameters",
    "optimizer_state",
    "gradients",
    "unsharded_parameters",
    "communication_buffers",
    "activations",
    "functional_communication",
    "temporaries",
    "other",
)
_ORDER = {mark: place for place, mark in enumerate(PRIORITY)}


class Moment(NamedTuple):
    """When something happens."""

    step: int | None = None
    phase: StepPhase | None = None
    module: str | None = None


class Ledger:
    """Sizes are bytes; storages are named by numbers that grow with their birth."""

    def __init__(self) -> None:
        self.now = Moment()
        self._events: list[tuple[int, int]] = []  # storage, bytes more or less
        self._moments: list[Moment] = [self.now]
        self._since: list[int] = [0]  # number of events when each moment began
        self._size: dict[int, int] = {}
        self._mark: list[Mark] = []

    @property
    def position(self) -> int:
        """Number of events so far."""
        return len(self._events)

    @property
    def born_next(self) -> int:
        """The name that the next storage will get."""
        return len(self._mark)

    def at(self, moment: Moment) -> None:
        """Say what happens from now on."""
        if moment == self.now:
            return
        self.now = moment
        if self._since[-1] == self.position:
            self._moments[-1] = moment
        else:
            self._moments.append(moment)
            self._since.append(self.position)

    def birth(self, size: int) -> int:
        """A new storage; its name. Until more is learnt it is a temporary of the step, or other outside of steps."""
        name = self.born_next
        self._mark.append("other" if self.now.phase is None else "temporaries")
        self._size[name] = 0
        self.resize(name, size)
        return name

    def resize(self, name: int, size: int) -> None:
        """A storage has another size now."""
        if size != self._size[name]:
            self._events.append((name, size - self._size[name]))
            self._size[name] = size

    def death(self, name: int) -> None:
        """A storage is gone."""
        self.resize(name, 0)
        del self._size[name]

    def mark(self, name: int, mark: Mark) -> None:
        """Say what a storage is for; the first in PRIORITY of all that is said counts."""
        if _ORDER[mark] < _ORDER[self._mark[name]]:
            self._mark[name] = mark

    def mark_survivors(self, first: int, mark: Mark) -> None:
        """Mark what was born as ``first`` or later and still holds bytes."""
        for name, size in self._size.items():
            if name >= first and size:
                self.mark(name, mark)

    def peak(self, first: int = 0, last: int | None = None) -> PeakMemory:
        """The fullest moment from event ``first`` on, up to ``last``."""
        last = self.position if last is None else last
        total = sum(change for _, change in self._events[:first])
        best, at = total, first
        for index in range(first, last):
            total += self._events[index][1]
            if total > best:
                best, at = total, index + 1
        moment = self._moments[max(0, bisect_right(self._since, max(0, at - 1)) - 1)]
        by_kind = self.by_kind(at)
        return PeakMemory(
            peak_bytes=best,
            step=moment.step,
            phase=moment.phase,
            module=moment.module,
            bytes_by_kind=by_kind,
        )

    def moments(self, first: int, last: int) -> Iterator[tuple[Moment, int]]:
        """Every stay at a moment from event ``first`` on, up to ``last``, with the most bytes that lived there."""
        total = sum(change for _, change in self._events[:first])
        ends = (*self._since[1:], last)
        for moment, since, until in zip(self._moments, self._since, ends, strict=True):
            if until <= first or since >= last:
                continue
            most = total
            for _, change in self._events[max(since, first) : min(until, last)]:
                total += change
                most = max(most, total)
            yield moment, most

    def by_kind(self, position: int) -> dict[MemoryKind, int]:
        """What there was after the first ``position`` events, by kind."""
        found: dict[MemoryKind, int] = dict.fromkeys(MEMORY_KINDS, 0)
        for name, change in self._events[:position]:
            found[self.kind(name)] += change
        return found

    def kind(self, name: int) -> MemoryKind:
        """What is known of a storage by now."""
        mark = self._mark[name]
        if mark == "functional_communication":
            return "communication_buffers"
        return next(kind for kind in MEMORY_KINDS if kind == mark)
