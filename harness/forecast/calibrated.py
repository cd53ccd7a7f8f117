"""Measured groups of a calibration as what a network's predictions take."""

from __future__ import annotations

from pathlib import Path
from statistics import median

from pydantic import ValidationError

from harness.calibration import AxisFit, CalibratedOperation, Calibration, OperationFit
from harness.compute_profile import ComputeProfile
from harness.errors import UsageError
from harness.predict.compute import block_time, head_time
from harness.predict.device import Device
from harness.predict.job import job_of
from harness.predict.network import Line, MeasuredGroup
from harness.predict.software import Software

SCHEMA = 1  # of files that are read
PROBE_BYTES = 1 << 20  # the size by which the slowest of an axis' groups is chosen


def read_calibration(path: Path) -> Calibration:
    """A file that ``meshsweep calibrate`` wrote.

    Raises:
        UsageError: it is no such file, or no calibration can have measured what it says.
    """
    try:
        found = Calibration.model_validate_json(path.read_text(encoding="utf-8"))
        cause = flaw(found)
    except ValidationError as error:
        first = error.errors()[0]
        cause = f"{'.'.join(map(str, first['loc']))}: {first['msg']}".removeprefix(": ")
    except (OSError, UnicodeDecodeError) as error:
        cause = str(error)
    if cause is not None:
        raise UsageError(f"{path} is no calibration ({cause}); 'meshsweep calibrate' writes one")
    return found


def flaw(found: Calibration) -> str | None:
    """What cannot have been measured, by its field; None if all can. Records are not refused for it, files are."""
    if found.schema_version != SCHEMA:
        return f"schema_version: {found.schema_version}, and this version reads {SCHEMA}"
    if not found.hosts:
        return "hosts: none"
    for at, axis in enumerate(found.axes):
        for one in (fit for group in axis.groups for fit in group.fits):
            if (why := _flaw_of_fit(one)) is not None:
                return f"axes.{at}: {one.operation}: {why}"
    for at, profile in enumerate(found.compute):
        if (why := _flaw_of_profile(profile)) is not None:
            return f"compute.{at}: {profile.layout.text}: {why}"
    return None


def _flaw_of_fit(fit: OperationFit) -> str | None:
    sizes = [one.size_bytes for one in fit.samples]
    if not sizes or sizes != sorted(set(sizes)):
        return "samples: give one entry a size, by growing size"
    if min(time for one in fit.samples for time in one.time_s) <= 0 or fit.time_s(sizes[-1]) <= 0:
        return "samples: times must be above 0"
    return None


def _flaw_of_profile(profile: ComputeProfile) -> str | None:
    phases = (profile.forward_s, profile.backward_s, profile.optimizer_s)
    lengths = [len(row) for phase in phases for row in phase]
    if len({len(phase) for phase in phases}) > 1 or len(set(lengths)) != 1 or not lengths[0]:
        return "forward_s, backward_s, optimizer_s: give each a row a rank, with as many steps"
    times = [[time for row in phase for time in row] for phase in phases]
    if min(map(min, times)) < 0 or not sum(times[0] + times[1]) or not profile.parts.step:
        return "forward_s, backward_s, optimizer_s: times must be above 0"
    return None


def read_groups(path: Path) -> tuple[MeasuredGroup, ...]:
    """The groups of such a file."""
    return measured_groups(read_calibration(path))


def compute_factor(calibration: Calibration, device: Device, software: Software, ranks_per_node: int) -> float | None:
    """How many times longer than by formula the profiled layouts computed; their median, None if there is none.

    For layouts with other work a rank than any that was profiled.
    """
    work = calibration.workload
    if work is None or work.model_path is not None:
        return None
    factors = []
    for one in [one for one in calibration.compute if not one.waits] or calibration.compute:
        job = job_of(one.layout, work, ranks_per_node)
        blocks = sum(block_time(job, device, software)[:2])
        formula = job.model.layers * blocks + sum(head_time(job, device, software))
        factors.append((one.parts.forward + one.parts.backward) / formula)
    return median(factors) if factors else None


def measured_groups(calibration: Calibration) -> tuple[MeasuredGroup, ...]:
    """One entry an axis that was timed."""
    return tuple(
        MeasuredGroup(
            ranks=axis.group_size,
            nodes=axis.hosts,
            all_gather=_line(axis, "all_gather"),
            reduce_scatter=_line(axis, "reduce_scatter"),
            all_reduce=_line(axis, "all_reduce"),
        )
        for axis in calibration.axes
    )


def _line(axis: AxisFit, operation: CalibratedOperation) -> Line | None:
    fit = axis.slowest(operation, PROBE_BYTES)
    if fit is None:
        return None
    return Line(latency_s=fit.latency_s, bandwidth=fit.bandwidth_bytes_per_s)


def nic_of(groups: tuple[MeasuredGroup, ...]) -> float | None:
    """Bytes/s of one rank's share of the network, from all-reduces across nodes; None where none was timed.

    A ring of n ranks moves 2 (n - 1)/n of the tensor through every rank, over as many NICs as it has ranks a node.
    """
    rates = [
        2 * (group.ranks - 1) / group.ranks * group.all_reduce.bandwidth * group.nodes / group.ranks
        for group in groups
        if group.nodes > 1 and group.all_reduce is not None and group.all_reduce.bandwidth is not None
    ]
    return min(rates, default=None)
