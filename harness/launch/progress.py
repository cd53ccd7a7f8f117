"""Where each rank is: a small mapped file a node, written by ranks between steps, read by anyone at any time.

A file a node, because two nodes that map one page of a shared file system overwrite each other's part of it.
"""

from __future__ import annotations

import mmap
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

PHASES = ("start", "build", "gate", "memory", "checkpoint", "warmup", "timing", "done", "exposed", "traffic")
_SLOT = struct.Struct("<iiqd")


@dataclass(frozen=True, order=True)
class Position:
    """A rank's position: index of the run in its launch, phase, step in the phase, and when (Unix seconds)."""

    sequence: int
    run: int
    phase: str
    since: float


START = Position(sequence=0, run=0, phase=PHASES[0], since=0.0)


def _path(folder: Path, per_node: Sequence[int], node: int) -> Path:
    return folder / ("progress" if len(per_node) == 1 else f"progress.node{node}")


def _place(per_node: Sequence[int], rank: int) -> tuple[int, int]:
    """The node of a rank and its place there."""
    for node, count in enumerate(per_node):
        if rank < count:
            return node, rank
        rank -= count
    raise ValueError("no such rank")


def create(folder: Path, per_node: Sequence[int], node: int = 0) -> None:
    """Make one node's file, every rank at its start. ``per_node``: ranks of each node."""
    _path(folder, per_node, node).write_bytes(_SLOT.pack(0, 0, 0, 0.0) * per_node[node])


def started(folder: Path) -> bool:
    """Whether any node has begun with the launch."""
    return any(folder.glob("progress*"))


class ProgressWriter:
    """One rank's slot."""

    def __init__(self, folder: Path, rank: int, per_node: Sequence[int]) -> None:
        node, place = _place(per_node, rank)
        with _path(folder, per_node, node).open("r+b") as file:
            self._map = mmap.mmap(file.fileno(), 0)
        self._offset = place * _SLOT.size
        self._sequence = 0

    def at(self, run: int, phase: str, now: float) -> None:
        """Say that this rank starts ``phase`` (or its next step) of a run."""
        self._sequence += 1
        _SLOT.pack_into(self._map, self._offset, run, PHASES.index(phase), self._sequence, now)


def read(folder: Path, per_node: Sequence[int]) -> list[Position]:
    """The position of every rank, in rank order; empty if the launch has not started."""
    if not started(folder):
        return []
    positions = []
    for node, count in enumerate(per_node):
        found = _read(_path(folder, per_node, node))[:count]
        positions += found + [START] * (count - len(found))
    return positions


def _read(path: Path) -> list[Position]:
    try:
        data = path.read_bytes()
    except OSError:
        return []
    whole = len(data) - len(data) % _SLOT.size
    return [
        Position(sequence=sequence, run=run, phase=PHASES[phase], since=since) if 0 <= phase < len(PHASES) else START
        for run, phase, sequence, since in _SLOT.iter_unpack(data[:whole])
    ]
