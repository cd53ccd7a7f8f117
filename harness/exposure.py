"""What a step's time is made of: compute, optimizer, communication that compute does not hide, waiting for others.

Two ways to find out. On CPUs the same step is timed with its collectives turned off (``without_communication``), in
turn with real ones; on CUDA the profiler's kernels are laid over each other (``profiler``). A record keeps the raw
times; the parts are derived here.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import isfinite
from statistics import fmean, median
from typing import Literal

from pydantic import Field

from harness.base import Frozen

ExposureMethod = Literal["without_communication", "profiler"]
Times = tuple[tuple[float, ...], ...]  # rows are ranks, columns steps; seconds


class Exposure(Frozen):
    """Raw times of steps that alternate in one process; rows are ranks, columns steps, seconds.

    Attributes:
        step_time_s: steps as they are.
        compute_s: the same steps without any communication.
        without_axis_s: the same steps with the collectives of one mesh axis turned off, by axis; of layouts with
            several axes only. With ``profiler`` instead what the step would be without that axis' exposed kernels.
        optimizer_s: the optimizer's part of ``compute_s``: gradient clipping and step.
    """

    method: ExposureMethod
    step_time_s: Times
    compute_s: Times
    optimizer_s: Times
    without_axis_s: dict[str, Times] = Field(default_factory=dict)


class RankExposure(Frozen):
    """One rank's rows of an Exposure."""

    method: ExposureMethod
    step_time_s: tuple[float, ...]
    compute_s: tuple[float, ...]
    optimizer_s: tuple[float, ...]
    without_axis_s: dict[str, tuple[float, ...]] = Field(default_factory=dict)


def of_ranks(ranks: Sequence[RankExposure]) -> Exposure:
    """The rows of all ranks together; an axis that a rank did not see cost it nothing."""
    axes = sorted({axis for rank in ranks for axis in rank.without_axis_s})
    return Exposure(
        method=ranks[0].method,
        step_time_s=tuple(rank.step_time_s for rank in ranks),
        compute_s=tuple(rank.compute_s for rank in ranks),
        optimizer_s=tuple(rank.optimizer_s for rank in ranks),
        without_axis_s={axis: tuple(r.without_axis_s.get(axis, r.step_time_s) for r in ranks) for axis in axes},
    )


class StepBreakdown(Frozen):
    """Parts of a step, seconds; each but ``by_rank`` is that of the step of all ranks together.

    ``compute_s`` + ``optimizer_s`` + ``exposed_s`` = ``step_time_s``, where compute is the slowest rank's.

    Attributes:
        step_time_s: median over steps of the slowest rank's time.
        compute_s: forward and backward of the slowest rank, without communication.
        optimizer_s: clipping and optimizer, of that rank, without communication.
        exposed_s: what communication adds: the step less the slowest rank's compute. May be slightly negative where
            it adds nothing and times are noisy.
        exposed_by_axis_s: what the step loses when that axis' collectives are turned off.
        idle_s: a value a rank: how long its own compute ends before the slowest rank's does, which is time that it
            waits for others and for no link.
    """

    step_time_s: float
    compute_s: float
    optimizer_s: float
    exposed_s: float
    exposed_by_axis_s: dict[str, float]
    idle_s: tuple[float, ...]

    @property
    def exposed_share(self) -> float:
        """Exposed communication over the step's time."""
        return self.exposed_s / self.step_time_s

    @property
    def idle_share(self) -> float:
        """Mean over ranks of the time that a rank waits for slower ones, over the step's time."""
        return fmean(self.idle_s) / self.step_time_s

    @property
    def shared_s(self) -> float:
        """Exposed communication that no axis has alone: it goes only when several axes are turned off.

        Negative where turning one axis off also lets another one hide better.
        """
        return self.exposed_s - sum(self.exposed_by_axis_s.values())


def break_down(exposure: Exposure, axes: Sequence[str] = ()) -> StepBreakdown:
    """The parts of a step. ``axes``: the layout's; with one of them all that is exposed is that axis'.

    Steps of one column are neighbours in time, so differences are taken step by step and their median kept.
    """
    whole = _slowest(exposure.step_time_s)
    compute = _slowest(exposure.compute_s)
    step_time_s = median(whole)
    exposed_s = _difference(whole, compute)
    own = [median(row) for row in exposure.compute_s]
    slowest = max(range(len(own)), key=own.__getitem__)
    optimizer_s = median(exposure.optimizer_s[slowest])
    by_axis = {axis: _difference(whole, _slowest(rows)) for axis, rows in exposure.without_axis_s.items()}
    if len(axes) == 1:
        by_axis = {axes[0]: exposed_s}
    return StepBreakdown(
        step_time_s=step_time_s,
        compute_s=step_time_s - exposed_s - optimizer_s,
        optimizer_s=optimizer_s,
        exposed_s=exposed_s,
        exposed_by_axis_s=by_axis,
        idle_s=tuple(max(own) - one for one in own),
    )


def is_whole(exposure: Exposure) -> bool:
    """Whether all ranks have the same steps with and without communication, and these took time: not so in a record
    that was cut short.
    """
    tables = (exposure.step_time_s, exposure.compute_s, exposure.optimizer_s, *exposure.without_axis_s.values())
    shapes = {(len(rows), *sorted({len(row) for row in rows})) for rows in tables}
    if len(shapes) != 1 or 0 in (shape := shapes.pop()) or len(shape) != 2:
        return False
    times = [t for rows in tables for row in rows for t in row]
    return all(isfinite(t) and t >= 0 for t in times) and all(t > 0 for row in exposure.step_time_s for t in row)


def _slowest(rows: Times) -> list[float]:
    return [max(column) for column in zip(*rows, strict=True)]


def _difference(longer: Sequence[float], shorter: Sequence[float]) -> float:
    return median(a - b for a, b in zip(longer, shorter, strict=True))
