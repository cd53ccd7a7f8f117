"""Constraints on a layout, each with the figure that it looks at. What was not measured meets none."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

from pydantic import Field

from harness.base import Frozen
from harness.compare import CellResult
from harness.record import Ground
from harness.report.units import bytes_unit, time_unit


class Limits(Frozen):
    """What a layout must keep. Bytes, seconds, and a fraction of the device's memory; None: no such constraint."""

    max_memory_bytes: float | None = Field(default=None, gt=0)
    max_restore_s: float | None = Field(default=None, gt=0)
    min_headroom: float | None = Field(default=None, ge=0, lt=1)

    def given(self) -> dict[str, float]:
        """The constraints that there are, by the name of their option without dashes."""
        found = {"max-memory": self.max_memory_bytes, "max-restore": self.max_restore_s}
        found["min-headroom"] = self.min_headroom
        return {name: value for name, value in found.items() if value is not None}


class Check(NamedTuple):
    """How a figure is taken and held against its limit. ``value`` gives None for what was not measured."""

    figure: str
    value: Callable[[CellResult, Ground | None], float | None]
    meets: Callable[[float, float], bool]
    text: Callable[[float], str]


def memory_bytes(cell: CellResult) -> int | None:
    """What the device must hold: what its allocator reserved where that was recorded, else the peak."""
    if cell.memory is None:
        return None
    return max(cell.memory.peak_bytes, cell.memory.reserved_bytes or 0)


def headroom(cell: CellResult, ground: Ground | None) -> float | None:
    """Share of the device's memory that is left; None where either is unknown. Below 0 if it does not fit."""
    used, device = memory_bytes(cell), ground.device_memory_bytes if ground else None
    return None if used is None or not device else 1 - used / device


def _restore(cell: CellResult) -> float | None:
    return cell.checkpoint.restore_time_s if cell.checkpoint else None


def size_text(value: float) -> str:
    """``72.0 GiB``."""
    unit = bytes_unit([value])
    return f"{unit.text(value)} {unit.name}"


def time_text(value: float) -> str:
    """``4.20 s``."""
    unit = time_unit([value])
    return f"{unit.text(value)} {unit.name}"


CHECKS: Mapping[str, Check] = {
    "max-memory": Check("memory", lambda c, _: memory_bytes(c), lambda x, limit: x <= limit, size_text),
    "max-restore": Check("restore time", lambda c, _: _restore(c), lambda x, limit: x <= limit, time_text),
    "min-headroom": Check("headroom", headroom, lambda x, limit: x >= limit, lambda x: f"{x:z.1%}"),
}


def broken(cell: CellResult, ground: Ground | None, limits: Mapping[str, float]) -> dict[str, str]:
    """The constraints that a layout does not meet, each with the numbers, or that the figure is missing."""
    found = {}
    for name, limit in limits.items():
        check = CHECKS[name]
        value = check.value(cell, ground)
        if value is None:
            found[name] = f"its {check.figure} was not measured, so --{name} {check.text(limit)} cannot be checked"
        elif not check.meets(value, limit):
            found[name] = f"its {check.figure} of {check.text(value)} breaks --{name} {check.text(limit)}"
    return found
