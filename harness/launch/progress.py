"""Where each rank is: a small mapped file a launch, written by ranks between steps, read by anyone at any time."""

from __future__ import annotations

import mmap
import struct
from dataclasses import dataclass
from pathlib import Path

PHASES = ("start", "build", "gate", "memory", "checkpoint", "warmup", "timing", "done")
_SLOT = struct.Struct("<iiqd")


@dataclass(frozen=True, order=True)
class Position:
    """A rank's position: index of the run in its launch, phase, step in the phase, and when (Unix seconds)."""

    sequence: int
    run: int
    phase: str
    since: float


def create(folder: Path, ranks: int) -> None:
    """Make the file, every rank at its start."""
    (folder / "progress").write_bytes(_SLOT.pack(0, 0, 0, 0.0) * ranks)


class ProgressWriter:
    """One rank's slot."""

    def __init__(self, folder: Path, rank: int) -> None:
        with (folder / "progress").open("r+b") as file:
            self._map = mmap.mmap(file.fileno(), 0)
        self._offset = rank * _SLOT.size
        self._sequence = 0

    def at(self, run: int, phase: str, now: float) -> None:
        """Say that this rank starts ``phase`` (or its next step) of a run."""
        self._sequence += 1
        _SLOT.pack_into(self._map, self._offset, run, PHASES.index(phase), self._sequence, now)


def read(folder: Path) -> list[Position]:
    """The position of every rank, in rank order; empty if the launch has not started."""
    try:
        data = (folder / "progress").read_bytes()
    except OSError:
        return []
    whole = len(data) - len(data) % _SLOT.size
    return [
        Position(sequence=sequence, run=run, phase=PHASES[phase], since=since)
        for run, phase, sequence, since in _SLOT.iter_unpack(data[:whole])
    ]
