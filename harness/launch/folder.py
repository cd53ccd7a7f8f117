"""The files of one launch: ``launch.json``, ``rank*.jsonl`` (samples), ``rank*.log``, ``progress``, ``outcome.json``.

Ranks append samples as they are made, so that what was measured outlives whatever ends the launch. A launch on
several nodes has ``progress.node*`` and ``outcome.node*.json``, and a job that may be started again ``attempt.json``.
"""

from __future__ import annotations

import contextlib
import json
from pathlib import Path
from typing import Any, NamedTuple

from pydantic import Field

from harness.base import Frozen
from harness.spec import Launch
from harness.store import read_model, write_atomic


class RankEnd(Frozen):
    """How one rank ended: an error text (its traceback), or a dead or hung process; none of them when it finished.

    ``exit_code`` is None while the process lived; negative is a signal. ``hung`` means that it had to be ended.
    """

    rank: int
    error: str | None = None
    exit_code: int | None = None
    hung: bool = False

    @property
    def ok(self) -> bool:
        return self.error is None and self.exit_code is None and not self.hung


class LaunchOutcome(Frozen):
    """Written by a node's agent when its part of a launch has ended.

    ``attempt`` names the start of the job that it belongs to (a job that is requeued starts again); ``stopped``:
    the agent was asked to stop. ``allocated_unix``: when the job's script began on its first node, seconds.
    """

    host: str
    node: int = 0
    attempt: str | None = None
    started_at: str
    started_unix: float = Field(ge=0, le=4e9)
    allocated_unix: float | None = None
    wall_s: float = Field(ge=0)
    timed_out: bool
    stopped: bool = False
    ends: tuple[RankEnd, ...]


class Attempt(Frozen):
    """Which start of which job a launch's files belong to. Written by the agent of the first node."""

    name: str


class Rendezvous(Frozen):
    """Where the ranks of an attempt meet: numeric addresses of rank 0's host, the likeliest first, and a port."""

    attempt: str
    addresses: tuple[str, ...]
    port: int


def write_launch(folder: Path, launch: Launch) -> None:
    """Make a launch's folder; it waits to be run."""
    write_atomic(folder / "launch.json", launch.model_dump_json(indent=1))


def read_launch(folder: Path) -> Launch:
    """The launch of a folder."""
    return read_model(folder / "launch.json", Launch)


def _outcome_path(folder: Path, node: int, nodes: int) -> Path:
    return folder / ("outcome.json" if nodes == 1 else f"outcome.node{node}.json")


def write_outcome(folder: Path, outcome: LaunchOutcome, nodes: int = 1) -> None:
    """Mark one node's part of a launch on ``nodes`` nodes as ended."""
    write_atomic(_outcome_path(folder, outcome.node, nodes), outcome.model_dump_json(indent=1))


def read_outcomes(folder: Path, launch: Launch) -> tuple[LaunchOutcome | None, ...]:
    """How each node's part ended; None while it has not, or when its agent was ended too.

    Of a job that was started again only the newest start counts.
    """
    nodes = len(launch.ranks.per_node)
    current = read_attempt(folder)
    found = []
    for node in range(nodes):
        path = _outcome_path(folder, node, nodes)
        outcome = read_model(path, LaunchOutcome) if path.exists() else None
        found.append(outcome if outcome is None or current in (None, outcome.attempt) else None)
    return tuple(found)


def has_ended(folder: Path, launch: Launch) -> bool:
    """Whether every node's part has ended."""
    return all(outcome is not None for outcome in read_outcomes(folder, launch))


def ended_well(folder: Path, launch: Launch) -> bool:
    """Whether every rank of every node finished."""
    return all(outcome is not None and all(end.ok for end in outcome.ends) for outcome in read_outcomes(folder, launch))


def read_attempt(folder: Path) -> str | None:
    """The attempt that the folder's files belong to; None for jobs that cannot be started again."""
    path = folder / "attempt.json"
    return read_model(path, Attempt).name if path.exists() else None


def begin_attempt(folder: Path, name: str) -> None:
    """Put the files of an earlier attempt aside and let this one begin; for the first node's agent alone.

    Processes of the earlier attempt that still live keep writing to their own files, which are elsewhere then.
    """
    earlier = read_attempt(folder)
    if earlier == name:
        return
    if earlier is not None:
        aside = folder / f"attempt-{earlier}"
        aside.mkdir(exist_ok=True)
        for path in folder.iterdir():
            if path.is_file() and path.name.startswith(_OF_ATTEMPT):
                path.replace(aside / path.name)
    write_atomic(folder / "attempt.json", Attempt(name=name).model_dump_json())


_OF_ATTEMPT = ("rank", "progress", "outcome", "rendezvous", "broken", "torchrun")


def tell_broken(folder: Path, attempt: str) -> None:
    """Let the other nodes know that a rank of an attempt failed."""
    path = folder / f"broken.{attempt}"
    with contextlib.suppress(OSError):
        path.touch()


def is_broken(folder: Path, attempt: str) -> bool:
    """Whether a rank of the attempt failed on any node."""
    return (folder / f"broken.{attempt}").exists()


def publish(folder: Path, rendezvous: Rendezvous) -> None:
    """Tell the other nodes where rank 0 is."""
    write_atomic(folder / "rendezvous.json", rendezvous.model_dump_json())


def read_rendezvous(folder: Path, attempt: str) -> Rendezvous | None:
    """Where the ranks of an attempt meet; None while that is not known."""
    path = folder / "rendezvous.json"
    found = read_model(path, Rendezvous) if path.exists() else None
    return found if found is not None and found.attempt == attempt else None


class RankSamples(NamedTuple):
    """One rank's whole samples in their order, and how many lines are none."""

    whole: list[dict[str, Any]]
    torn: int


def read_samples(folder: Path, rank: int) -> RankSamples:
    """One rank's sample lines. A line that was cut short, by the rank's death or a full disk, is torn."""
    try:
        data = (folder / f"rank{rank}.jsonl").read_bytes()
    except OSError:
        return RankSamples([], 0)
    found = [_sample(line) for line in data.split(b"\n") if line.strip()]
    whole = [sample for sample in found if sample is not None]
    return RankSamples(whole, len(found) - len(whole))


def _sample(line: bytes) -> dict[str, Any] | None:
    try:
        sample = json.loads(line, parse_constant=_refuse)
    except (ValueError, RecursionError):
        return None
    known = isinstance(sample, dict) and isinstance(sample.get("run"), int) and isinstance(sample.get("kind"), str)
    return sample if known else None


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is no sample")


def read_log(folder: Path, rank: int, limit: int = 200_000) -> str:
    """The end of one rank's output, at most ``limit`` characters."""
    try:
        data = (folder / f"rank{rank}.log").read_bytes()
    except OSError:
        return ""
    return data[-limit:].decode("utf-8", errors="replace")
