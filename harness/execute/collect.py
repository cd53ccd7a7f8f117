"""From a launch's folder to records: complete, failed, or interrupted with what had been measured."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from harness.execute.classify import classify_exit
from harness.failure import FailureClass
from harness.launch import folder as files
from harness.launch.progress import Position, read
from harness.record import Checkpoint, Failure, GateSamples, Ground, Memory, RunRecord, Timing
from harness.spec import Launch

LOG_TAIL_LINES = 30
OUT_OF_MEMORY = frozenset({FailureClass.DEVICE_OOM, FailureClass.HOST_OOM})

Samples = list[list[dict[str, Any]]]  # a list of sample lines for each rank


def collect(folder: Path, attempts: Mapping[str, int], cancelled: bool = False) -> list[RunRecord]:
    """The records of a launch that has ended or whose job is gone; none if it never started.

    ``attempts`` says how many attempts of each run_id exist already. The one run that a failure belongs to is
    ``failed``; its unfinished companions are ``interrupted`` and keep their samples. Running out of memory in company
    is an interruption with its failure beside it: the run goes on in a design with less company.
    """
    if not (folder / "progress").exists():
        return []
    launch = files.read_launch(folder)
    outcome = files.read_outcome(folder)
    world_size = launch.ranks.world_size
    samples = [files.read_samples(folder, rank) for rank in range(world_size)]
    failure, culprit = blame(folder, cancelled)
    started_unix = outcome.started_unix if outcome else (folder / "launch.json").stat().st_mtime
    records = []
    for index, spec in enumerate(launch.runs):
        done = all(any(s["kind"] == "done" and s["run"] == index for s in rank) for rank in samples)
        blamed = failure if index == culprit and not done else None
        failed = blamed is not None and not _in_company(launch, blamed)
        records.append(
            RunRecord(
                run_id=spec.run_id,
                cell_id=spec.cell_id,
                attempt=attempts.get(spec.run_id, 0),
                launch_id=launch.launch_id,
                launch_design=launch.design,
                spec=spec,
                status="measured" if done else "failed" if failed else "interrupted",
                failure=blamed,
                started_at=datetime.fromtimestamp(started_unix, UTC).isoformat(timespec="milliseconds"),
                wall_s=outcome.wall_s if outcome else max(0.0, time.time() - started_unix),
                **_measurements(launch, index, samples, started_unix),
            )
        )
    return records


def _in_company(launch: Launch, failure: Failure) -> bool:
    """Whether memory ran out beside other layouts' models, which says nothing about the layout alone."""
    return len(launch.runs) > 1 and failure.failure_class in OUT_OF_MEMORY


def _measurements(launch: Launch, index: int, samples: Samples, started_unix: float) -> dict[str, Any]:
    first_step = _first(samples[0], "first_step", index)
    ground = _first(samples[0], "ground", 0)
    gate = _first(samples[0], "gate", index)
    checkpoint = _first(samples[0], "checkpoint", index)
    return {
        "startup_s": max(0.0, first_step["unix"] - started_unix) if first_step else None,
        "ground": Ground.model_validate(ground["ground"]) if ground else None,
        "gate": GateSamples.model_validate(gate["gate"]) if gate else None,
        "checkpoint": Checkpoint.model_validate(checkpoint["checkpoint"]) if checkpoint else None,
        "memory": _memory(index, samples),
        "timing": _timing(launch, index, samples),
    }


def _first(samples: list[dict[str, Any]], kind: str, index: int) -> dict[str, Any] | None:
    return next((s for s in samples if s["kind"] == kind and s["run"] == index), None)


def _memory(index: int, samples: Samples) -> Memory | None:
    rows = [_first(rank, "memory", index) for rank in samples]
    known = [row for row in rows if row is not None]
    if len(known) < len(rows):
        return None
    return Memory(
        method=known[0]["method"],
        peak_bytes=tuple(row["peak"] for row in known),
        peak_reserved_bytes=_column(known, "reserved"),
        peak_rss_bytes=_column(known, "rss"),
    )


def _column(rows: list[dict[str, Any]], name: str) -> tuple[int, ...] | None:
    values = [row[name] for row in rows]
    return None if None in values else tuple(values)


def _timing(launch: Launch, index: int, samples: Samples) -> Timing | None:
    """Steps that every rank finished; None if there is none."""
    steps = [
        {s["cycle"]: s["step_time_s"] for s in rank if s["kind"] == "step" and s["run"] == index} for rank in samples
    ]
    cycles = sorted(set.intersection(*(set(rank) for rank in steps)))
    warmup = _first(samples[0], "warmup", index)
    if not cycles or warmup is None:
        return None
    return Timing(
        design=launch.design,
        companions=tuple(run.layout.label for run in launch.runs),
        warmup_s=tuple(warmup["warmup_s"]),
        steady=warmup["steady"],
        cycles=tuple(cycles),
        step_time_s=tuple(tuple(rank[c] for c in cycles) for rank in steps),
    )


def blame(folder: Path, cancelled: bool) -> tuple[Failure | None, int | None]:
    """The failure of a launch and the index of the run that it belongs to.

    The run is the one at which the rank that failed first was; when no rank is to blame (all hung or timed out),
    the one at which the rank that lags behind all others is. A launch that was cancelled blames none.
    """
    outcome = files.read_outcome(folder)
    positions = read(folder)
    if cancelled or (outcome and all(end.ok for end in outcome.ends)):
        return None, None
    if outcome is None:
        rank = _laggard(positions, ())
        position = None if rank is None else positions[rank]
        message = "the job ended without a trace: its own process was ended from outside, or its host went down"
        return _failure(folder, None, FailureClass.LOST, position, message, rank), position.run if position else 0
    logs = {end.rank: f"{files.read_log(folder, end.rank)}\n{end.error or ''}" for end in outcome.ends}
    # a rank that had to be ended did not die by itself
    codes = {end.rank: 0 if end.hung else end.exit_code if end.exit_code is not None else 1 for end in outcome.ends}
    verdict = classify_exit({rank: code for rank, code in codes.items() if code}, logs)
    failure_class, message, rank = verdict.failure, verdict.line or verdict.rule, verdict.rank
    hung = [end.rank for end in outcome.ends if end.hung]
    if outcome.timed_out and len(hung) == len(outcome.ends):
        failure_class = FailureClass.TIME_LIMIT
        message = f"no end after {outcome.wall_s:.0f} s, the limit of this launch"
    if failure_class in (FailureClass.TIME_LIMIT, FailureClass.COLLECTIVE_TIMEOUT):
        rank = _laggard(positions, hung)
    position = positions[rank] if rank is not None and rank < len(positions) else None
    run = position.run if position else 0
    return _failure(folder, outcome.host, failure_class, position, message, rank), run


def _laggard(positions: list[Position], hung: Sequence[int]) -> int | None:
    """The rank behind all others; among equals one that never came back, while others timed out on it."""
    if not positions:
        return None
    return min(
        range(len(positions)),
        key=lambda rank: (positions[rank].sequence, rank not in hung, positions[rank].since),
    )


def _failure(
    folder: Path,
    host: str | None,
    failure_class: FailureClass,
    position: Position | None,
    message: str,
    rank: int | None,
) -> Failure:
    tail = files.read_log(folder, rank or 0, 20_000).strip().splitlines()[-LOG_TAIL_LINES:]
    return Failure(
        failure_class=failure_class,
        phase=position.phase if position else "start",
        message=message,
        rank=rank,
        host=host,
        log_tail="\n".join(tail),
        log=f"launches/{folder.name}/rank{rank or 0}.log",
    )
