"""Names of checkpoint folders: ``step1000-r2s4t1``, and ``.step1000-r2s4t1.partial`` while one is being written."""

from __future__ import annotations

import re
from pathlib import Path

from harness.errors import MeshsweepError
from harness.layout.mesh import Mesh, parse_mesh

MANIFEST = "manifest.json"
_FOLDER = re.compile(r"step(\d{1,12})-(r\d+s\d+t\d+)")


class CheckpointError(MeshsweepError):
    """A checkpoint that cannot be written, is not whole, or does not fit what it is to be restored into."""


def folder_name(step: int, signature: str) -> str:
    """Name of a checkpoint's folder, e.g. ``step2-r2s4t1``."""
    return f"step{step}-{signature}"


def parse_folder_name(name: str) -> tuple[int, Mesh] | None:
    """(step, mesh) of a checkpoint's folder; None for any other name."""
    match = _FOLDER.fullmatch(name)
    return (int(match[1]), parse_mesh(match[2])) if match else None


def partial_folder(folder: Path) -> Path:
    """Where a checkpoint is written before it gets its name."""
    return folder.with_name(f".{folder.name}.partial")


def shard_name(rank: int) -> str:
    """Name of the file that ``rank`` writes."""
    return f"shard-{rank:05d}.safetensors"


def whole_checkpoints(root: Path) -> list[Path]:
    """The folders under ``root`` that were written to their end, oldest step first.

    A folder gets its name and its manifest only after all else is on disk, so both together mean that it is whole.
    """
    if not root.is_dir():
        return []
    found = [(named[0], p.name, p) for p in root.iterdir() if (named := parse_folder_name(p.name))]
    return [path for _, _, path in sorted(found) if (path / MANIFEST).is_file()]


def latest(root: Path) -> Path:
    """The whole checkpoint of the highest step under ``root``.

    Raises:
        CheckpointError: there is none.
    """
    found = whole_checkpoints(root)
    if not found:
        raise CheckpointError(f"no whole checkpoint in {root}; a folder named like step2-r2s4t1 with {MANIFEST} is one")
    return found[-1]
