"""Latency and bandwidth of the process groups of a sweep's layouts, and their compute, measured in one job.

A collective of ``size_bytes`` is taken to last ``latency_s + size_bytes / bandwidth_bytes_per_s`` (the alpha-beta
model; Hockney 1994). Size is the one of ``harness.traffic``: the whole tensor on one rank.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from math import log
from statistics import median
from typing import Literal, NamedTuple, get_args

from pydantic import Field

from harness.base import Frozen
from harness.compute_profile import ComputeProfile
from harness.layout import AXES, Layout
from harness.layout.order import slots
from harness.workload import Workload

CalibratedOperation = Literal["all_gather", "reduce_scatter", "all_reduce", "broadcast"]
CALIBRATED: tuple[CalibratedOperation, ...] = get_args(CalibratedOperation)
FILE = "calibration.json"  # in a sweep's folder


def bus_factor(operation: CalibratedOperation, group_size: int) -> float:
    """Bus bandwidth over algorithm bandwidth. Source: nccl-tests, doc/PERFORMANCE.md."""
    if operation == "broadcast":
        return 1.0
    share = (group_size - 1) / group_size
    return 2 * share if operation == "all_reduce" else share


class SizeTimes(Frozen):
    """Raw times of collectives of one size in one group, each the group's slowest rank's; seconds."""

    size_bytes: int = Field(ge=1)
    time_s: tuple[float, ...] = Field(min_length=1)

    @property
    def median_s(self) -> float:
        return median(self.time_s)


class OperationFit(Frozen):
    """One collective in one group.

    Attributes:
        bandwidth_bytes_per_s: size over time of large messages (nccl-tests' algorithm bandwidth); None where times
            do not grow with size.
        max_relative_error: the largest distance of a size's median from the line, over that median.
    """

    operation: CalibratedOperation
    latency_s: float = Field(ge=0)
    bandwidth_bytes_per_s: float | None = Field(default=None, gt=0)
    max_relative_error: float
    samples: tuple[SizeTimes, ...]

    def time_s(self, size_bytes: float) -> float:
        """What the line says for a size."""
        return self.latency_s + (size_bytes / self.bandwidth_bytes_per_s if self.bandwidth_bytes_per_s else 0.0)

    def measured_s(self, size_bytes: float) -> float:
        """What was measured: straight in logarithms between the medians of two sizes, and along the line beyond them.

        Smaller messages than the smallest take as long as that one.
        """
        sizes = [one.size_bytes for one in self.samples]
        right = bisect_left(sizes, size_bytes)
        if right == 0:
            return self.samples[0].median_s
        low = self.samples[right - 1]
        if right == len(sizes):
            return max(low.median_s, self.time_s(size_bytes) * low.median_s / self.time_s(low.size_bytes))
        high = self.samples[right]
        part = log(size_bytes / low.size_bytes) / log(high.size_bytes / low.size_bytes)
        return float(low.median_s ** (1 - part) * high.median_s**part)


class AxisUse(NamedTuple):
    """That an axis of a layout communicates in these groups."""

    layout: str  # its text, as parse_layout reads it
    axis: str


class AxisGroups(NamedTuple):
    """A set of groups of process ranks, and the axes that communicate in just these."""

    groups: tuple[tuple[int, ...], ...]
    users: tuple[tuple[Layout, str], ...]


def axis_groups(layouts: Sequence[Layout]) -> tuple[AxisGroups, ...]:
    """The different sets of groups of all axes (of two ranks or more) of ``layouts``, in the order of first use."""
    users: dict[tuple[tuple[int, ...], ...], list[tuple[Layout, str]]] = {}
    for layout in layouts:
        places = slots(layout.mesh, layout.options.order)
        for axis, size in zip(AXES, layout.mesh.sizes, strict=True):
            if size > 1:
                groups = (tuple(sorted(places[rank] for rank in group)) for group in layout.mesh.groups(axis))
                users.setdefault(tuple(sorted(groups)), []).append((layout, axis))
    return tuple(AxisGroups(groups, tuple(found)) for groups, found in users.items())


class GroupFit(Frozen):
    """One process group. ``ranks`` are process ranks; ``hosts``, how many hosts they are on."""

    ranks: tuple[int, ...] = Field(min_length=2)
    hosts: int = Field(ge=1)
    fits: tuple[OperationFit, ...]

    @property
    def size(self) -> int:
        return len(self.ranks)

    def fit(self, operation: CalibratedOperation) -> OperationFit | None:
        return next((one for one in self.fits if one.operation == operation), None)

    def bus_bandwidth_bytes_per_s(self, operation: CalibratedOperation) -> float | None:
        """Bandwidth as nccl-tests compares it with a link's; None where it is not known."""
        fit = self.fit(operation)
        if fit is None or fit.bandwidth_bytes_per_s is None:
            return None
        return fit.bandwidth_bytes_per_s * bus_factor(operation, self.size)


class AxisFit(Frozen):
    """All groups of an axis, timed while all of them communicate, as they do in a step; ``uses``: whose axis it is."""

    uses: tuple[AxisUse, ...]
    groups: tuple[GroupFit, ...] = Field(min_length=1)

    @property
    def group_size(self) -> int:
        return max(group.size for group in self.groups)

    @property
    def hosts(self) -> int:
        """Hosts that its groups span, at most."""
        return max(group.hosts for group in self.groups)

    def slowest(self, operation: CalibratedOperation, size_bytes: int) -> OperationFit | None:
        """The fit of the group in which a message of that size takes longest, which is what a step waits for."""
        fits = [fit for group in self.groups if (fit := group.fit(operation)) is not None]
        return max(fits, key=lambda fit: fit.time_s(size_bytes), default=None)


class Calibration(Frozen):
    """What one job measured.

    Attributes:
        axes: one entry a set of groups, however many layouts use it.
        workload: whose largest messages and whose compute were timed; None in files from before compute was.
        compute: the layouts' steps without communication; empty in those files.
    """

    schema_version: int = 1
    created_at: str
    device: str  # cpu or cuda
    backend: str
    hosts: tuple[str, ...]
    axes: tuple[AxisFit, ...]
    workload: Workload | None = None
    compute: tuple[ComputeProfile, ...] = ()

    def axis(self, layout: str, axis: str) -> AxisFit | None:
        """The groups of a layout's axis, by the layout's text; None if they were not timed."""
        return next((one for one in self.axes if (layout, axis) in one.uses), None)

    def alike(self, group_size: int, hosts: int) -> AxisFit | None:
        """Groups of as many ranks on as many hosts, for layouts that were not calibrated themselves."""
        return next((one for one in self.axes if (one.group_size, one.hosts) == (group_size, hosts)), None)


def fit(operation: CalibratedOperation, times_by_size: Mapping[int, Sequence[float]]) -> OperationFit:
    """Latency and bandwidth from raw times (s) by size (bytes).

    The median of each size first, so that no pause of the machine counts; then the line of least relative errors with
    a soft L1 loss, so that no size does either, and so that small messages weigh as much as large ones.
    """
    samples = tuple(SizeTimes(size_bytes=size, time_s=tuple(times_by_size[size])) for size in sorted(times_by_size))
    sizes, times = [s.size_bytes for s in samples], [s.median_s for s in samples]
    latency_s, per_byte_s = _line(sizes, times)
    errors = [abs(latency_s + per_byte_s * size - time) / time for size, time in zip(sizes, times, strict=True)]
    return OperationFit(
        operation=operation,
        latency_s=latency_s,
        bandwidth_bytes_per_s=1 / per_byte_s if per_byte_s > 0 else None,
        max_relative_error=max(errors),
        samples=samples,
    )


def _line(sizes: Sequence[int], times: Sequence[float]) -> tuple[float, float]:
    """Latency (s) and time a byte (s), neither negative."""
    import numpy as np
    from scipy.optimize import least_squares

    size, time = np.array(sizes, dtype=float), np.array(times, dtype=float)
    if len(set(sizes)) == 1:
        return float(time.min()), 0.0
    unit_s, unit_bytes = float(time.min()), float(size.max())
    start = np.array([1.0, max(0.0, (float(time.max()) - unit_s) / unit_s)])

    def errors(x: np.ndarray) -> np.ndarray:
        return np.asarray((unit_s * (x[0] + x[1] * size / unit_bytes) - time) / time)

    found = least_squares(errors, start, bounds=(0.0, np.inf), loss="soft_l1", f_scale=0.05, xtol=1e-12, ftol=1e-12)
    per_byte_s = float(found.x[1]) * unit_s / unit_bytes
    # below what a double can tell from the latency, no growth was seen
    return float(found.x[0]) * unit_s, per_byte_s if per_byte_s * unit_bytes > 1e-9 * unit_s else 0.0


def sizes_up_to(largest_bytes: int, smallest_bytes: int = 1024, per_octave: float = 0.5) -> tuple[int, ...]:
    """Sizes evenly spaced by ratio from the smallest to the largest, both among them, multiples of 64 bytes."""
    import math

    if largest_bytes <= smallest_bytes:
        return (smallest_bytes,)
    steps = max(1, round(math.log2(largest_bytes / smallest_bytes) * per_octave))
    ratio = (largest_bytes / smallest_bytes) ** (1 / steps)
    found = {-(-round(smallest_bytes * ratio**i) // 64) * 64 for i in range(steps + 1)}
    return tuple(sorted(found))


def hosts_of(ranks: Iterable[int], per_node: Sequence[int]) -> int:
    """On how many nodes these process ranks are; ``per_node``: ranks of each node, in rank order."""
    node_of = [node for node, count in enumerate(per_node) for _ in range(count)]
    return len({node_of[rank] for rank in ranks})
