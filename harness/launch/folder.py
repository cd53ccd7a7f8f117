"""The files of one launch: ``launch.json``, ``rank*.jsonl`` (samples), ``rank*.log``, ``progress``, ``outcome.json``.

Ranks append samples as they are made, so that what was measured outlives whatever ends the launch.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from harness.base import Frozen
from harness.spec import Launch
from harness.store import read_model, write_atomic


class RankEnd(Frozen):
    """How one rank ended; all None and ``hung`` false when it finished."""

    rank: int
    error: str | None = None
    exit_code: int | None = None
    hung: bool = False

    @property
    def ok(self) -> bool:
        return self.error is None and self.exit_code is None and not self.hung


class LaunchOutcome(Frozen):
    """Written by the agent when a launch has ended."""

    host: str
    started_at: str
    started_unix: float
    wall_s: float
    timed_out: bool
    ends: tuple[RankEnd, ...]


def write_launch(folder: Path, launch: Launch) -> None:
    """Make a launch's folder; it waits to be run."""
    write_atomic(folder / "launch.json", launch.model_dump_json(indent=1))


def read_launch(folder: Path) -> Launch:
    """The launch of a folder."""
    return read_model(folder / "launch.json", Launch)


def write_outcome(folder: Path, outcome: LaunchOutcome) -> None:
    """Mark a launch as ended."""
    write_atomic(folder / "outcome.json", outcome.model_dump_json(indent=1))


def read_outcome(folder: Path) -> LaunchOutcome | None:
    """How the launch ended; None while it has not, or when its agent was ended too."""
    path = folder / "outcome.json"
    return read_model(path, LaunchOutcome) if path.exists() else None


def read_samples(folder: Path, rank: int) -> list[dict[str, Any]]:
    """One rank's sample lines; a line cut short by the rank's death is left out."""
    try:
        text = (folder / f"rank{rank}.jsonl").read_text(encoding="utf-8")
    except OSError:
        return []
    samples = []
    for line in text.splitlines():
        try:
            samples.append(json.loads(line))
        except ValueError:
            continue
    return samples


def read_log(folder: Path, rank: int, limit: int = 200_000) -> str:
    """The end of one rank's output, at most ``limit`` characters."""
    try:
        data = (folder / f"rank{rank}.log").read_bytes()
    except OSError:
        return ""
    return data[-limit:].decode("utf-8", errors="replace")
