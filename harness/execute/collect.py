"""From a launch's folder to records: complete, failed, or interrupted with what had been measured."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from harness.comms import Communicators
from harness.execute.calibrated import calibration_of
from harness.execute.classify import classify_exit, classify_text
from harness.execute.comm_facts import communicators
from harness.exposure import Exposure, RankExposure, of_ranks
from harness.failure import OUT_OF_MEMORY, FailureClass
from harness.launch import folder as files
from harness.launch.folder import LaunchOutcome
from harness.launch.job_file import JobEnd, read_job_file, read_job_logs
from harness.launch.progress import Position, read, started
from harness.memory_kinds import RankMemory
from harness.record import Checkpoint, Failure, GateSamples, Ground, Memory, RunRecord, Timing
from harness.slurm.verdict import WHOLE, Cause, setup_failure, weigh
from harness.spec import Launch
from harness.startup import Startup
from harness.traffic import Collective, Port, Traffic, gathered

LOG_TAIL_LINES = 30
MESSAGE_CHARS = 500

Samples = list[list[dict[str, Any]]]  # a list of sample lines for each rank


def collect(folder: Path, attempts: Mapping[str, int], cancelled: bool = False) -> list[RunRecord]:
    """The records of a launch that has ended or whose job is gone; none if it never started.

    ``attempts`` says how many attempts of each run_id exist already. The one run that a failure belongs to is
    ``failed``; its unfinished companions are ``interrupted`` and keep their samples. Running out of memory in company
    is an interruption with its failure beside it: the run goes on in a design with less company. So is the end of a
    whole job in company, such as a failed node: the launch is made again.
    """
    if not started(folder) and (cancelled or _job_end(folder) is None):
        return []
    launch = files.read_launch(folder)
    outcomes = [one for one in files.read_outcomes(folder, launch) if one is not None]
    read_ranks = [files.read_samples(folder, rank) for rank in range(launch.ranks.world_size)]
    samples = [one.whole for one in read_ranks]
    torn = tuple(rank for rank, one in enumerate(read_ranks) if one.torn)
    failure, culprit = blame(folder, launch, cancelled)
    started_unix = min((one.started_unix for one in outcomes), default=(folder / "launch.json").stat().st_mtime)
    wall_s = max((one.wall_s for one in outcomes), default=max(0.0, time.time() - started_unix))
    allocated_unix = outcomes[0].allocated_unix if outcomes else None
    started_at = datetime.fromtimestamp(started_unix, UTC).isoformat(timespec="milliseconds")
    records = []
    for index, spec in enumerate(launch.runs):
        done = all(any(s["kind"] == "done" and s["run"] == index for s in rank) for rank in samples)
        measurements = _measurements(launch, index, samples, allocated_unix or started_unix)
        if spec.purpose == "calibrate" and done:
            measurements["calibration"] = calibration_of(launch, samples, measurements["ground"], started_at)
        blamed = failure if culprit in (None, index) and not done else None
        failed = blamed is not None and not _in_company(launch, blamed, culprit)
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
                started_at=started_at,
                wall_s=wall_s,
                torn_ranks=() if done else torn,
                **measurements,
                comms=_comms(folder, launch, index, samples),
            )
        )
    return records


def _in_company(launch: Launch, failure: Failure, culprit: int | None) -> bool:
    """Whether the failure says nothing about the layout alone.

    Memory ran out beside other layouts' models, or the whole job was ended.
    """
    whole = culprit is None and failure.failure_class in WHOLE
    return len(launch.runs) > 1 and (failure.failure_class in OUT_OF_MEMORY or whole)


def _measurements(launch: Launch, index: int, samples: Samples, started_unix: float) -> dict[str, Any]:
    first_step = _first(samples[0], "first_step", index)
    ground = _first(samples[0], "ground", 0)
    gate = _first(samples[0], "gate", index)
    checkpoint = _first(samples[0], "checkpoint", index)
    return {
        "startup_s": max(0.0, first_step["unix"] - started_unix) if first_step else None,
        "startup": _startup(index, samples, started_unix),
        "ground": Ground.model_validate(ground["ground"]) if ground else None,
        "gate": GateSamples.model_validate(gate["gate"]) if gate else None,
        "checkpoint": Checkpoint.model_validate(checkpoint["checkpoint"]) if checkpoint else None,
        "memory": _memory(index, samples),
        "traffic": _traffic(index, samples),
        "timing": _timing(launch, index, samples),
        "exposure": _exposure(index, samples),
    }


def _comms(folder: Path, launch: Launch, index: int, samples: Samples) -> Communicators | None:
    return communicators(folder, [_first(rank, "sockets", index) for rank in samples]) if launch.debug_comms else None


def _startup(index: int, samples: Samples, started_unix: float) -> Startup | None:
    """What rank 0 noted; None of launches before this was noted."""
    entered, warm = _first(samples[0], "entered", 0), _first(samples[0], "warmup", index)
    if entered is None:
        return None
    timed = warm.get("unix") if warm else None
    return Startup(
        ranks_s=max(0.0, entered["unix"] - started_unix),
        first_timed_s=None if timed is None else max(0.0, timed - started_unix),
    )


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
        ranks=_rank_memory(known),
    )


def _traffic(index: int, samples: Samples) -> Traffic | None:
    """Rank 0's collectives and times (all ranks have the slowest's), every rank's total, every host's ports."""
    rows = [_first(rank, "traffic", index) for rank in samples]
    known = [row for row in rows if row is not None]
    if len(known) < len(rows):
        return None
    return gathered(
        [[Collective.model_validate(one) for one in row["collectives"]] for row in known],
        [Port.model_validate(port) for row in known for port in row["ports"]],
        known[0]["plain_step_s"],
        known[0]["counted_step_s"],
    )


def _column(rows: list[dict[str, Any]], name: str) -> tuple[int, ...] | None:
    values = [row[name] for row in rows]
    return None if None in values else tuple(values)


def _rank_memory(rows: list[dict[str, Any]]) -> tuple[RankMemory, ...] | None:
    found = [row.get("by_kind") for row in rows]
    return None if None in found else tuple(map(RankMemory.model_validate, found))


def _exposure(index: int, samples: Samples) -> Exposure | None:
    rows = [_first(rank, "exposure", index) for rank in samples]
    found = [RankExposure.model_validate(row["exposure"]) for row in rows if row and row["exposure"]]
    return of_ranks(found) if len(found) == len(rows) else None


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


def blame(folder: Path, launch: Launch, cancelled: bool) -> tuple[Failure | None, int | None]:
    """The failure of a launch and the index of the run that it belongs to (None: to all of them).

    The run is the one at which the rank that failed first was; when no rank is to blame (all hung or timed out),
    the one at which the rank that lags behind all others is. A launch that was cancelled blames none.
    """
    outcomes = files.read_outcomes(folder, launch)
    if cancelled or files.ended_well(folder, launch):
        return None, None
    end = _job_end(folder)
    positions = read(folder, launch.ranks.per_node)
    cause, rank = _ranks_cause(folder, launch, outcomes, positions)
    if end is not None:
        cause = job_cause(folder, end, cause)
    whole = cause.by_state and cause.failure in WHOLE
    position = positions[rank] if rank is not None and rank < len(positions) else None
    culprit = None if whole or not positions else position.run if position else 0
    if end is not None and (whole or not positions):
        host, rank = next(iter(end.down), None), None
    else:
        host = _host(launch, outcomes, rank)
    return _failure(folder, host, cause, position, rank), culprit


def _job_end(folder: Path) -> JobEnd | None:
    file = read_job_file(folder)
    return file.end if file else None


def _ranks_cause(
    folder: Path, launch: Launch, outcomes: Sequence[LaunchOutcome | None], positions: list[Position]
) -> tuple[Cause, int | None]:
    """What the ranks' ends and outputs say, and the rank to blame."""
    if not any(outcomes):
        message = "the job ended without a trace: its own process was ended from outside, or its host went down"
        return Cause(FailureClass.LOST, message, False), _laggard(positions, ())
    ends = {end.rank: end for outcome in outcomes if outcome for end in outcome.ends}
    codes: dict[int, int | None] = {}
    for rank in range(launch.ranks.world_size):
        end = ends.get(rank)
        # a rank that had to be ended did not die by itself; of a node that left no word nothing is known
        codes[rank] = (
            None if end is None else 0 if end.hung or end.ok else 1 if end.exit_code is None else end.exit_code
        )
    died = [end for end in ends.values() if end.exit_code is not None]
    if died:
        # a process that ended by itself is the root cause; what its peers say of it are symptoms
        codes = {end.rank: end.exit_code for end in died}
    logs = {rank: f"{files.read_log(folder, rank)}\n{ends[rank].error or '' if rank in ends else ''}" for rank in codes}
    verdict = classify_exit({rank: code for rank, code in codes.items() if code != 0}, logs)
    failure_class, message, found = verdict.failure, verdict.line or verdict.rule, verdict.rank
    if died and all(end.exit_code == 0 for end in died):
        failure_class, found = FailureClass.CRASH, died[0].rank
        message = "the process left with exit code 0 in the middle of its work"
    elif found in ends and (error := ends[found].error):
        message = error.strip().splitlines()[-1][:MESSAGE_CHARS] or message
    known = [outcome for outcome in outcomes if outcome]
    if any(one.timed_out for one in known) and all(end.hung for end in ends.values()):
        failure_class = FailureClass.TIME_LIMIT
        message = f"no end after {max(one.wall_s for one in known):.0f} s, the limit of this launch"
    if failure_class in (FailureClass.TIME_LIMIT, FailureClass.COLLECTIVE_TIMEOUT):
        found = _laggard(positions, [rank for rank, end in ends.items() if end.hung])
    return Cause(failure_class, message, False), found


def job_cause(folder: Path, end: JobEnd, ranks: Cause) -> Cause:
    """The cause of a job's end, from what the scheduler, the ranks and the job's own output say."""
    log = read_job_logs(folder)
    failed_line = setup_failure(log)
    if failed_line is not None:
        return Cause(FailureClass.CONFIG, failed_line, False)
    verdict = classify_text(log)
    said = (verdict.failure, verdict.line or verdict.rule)
    return weigh(end.status, (ranks.failure, ranks.message), said, end.message)


def _host(launch: Launch, outcomes: Sequence[LaunchOutcome | None], rank: int | None) -> str | None:
    """The host of a rank; without a rank the first that is known."""
    first = 0
    for outcome, count in zip(outcomes, launch.ranks.per_node, strict=True):
        if outcome is not None and (rank is None or first <= rank < first + count):
            return outcome.host
        first += count
    return None


def _laggard(positions: list[Position], hung: Sequence[int]) -> int | None:
    """The rank behind all others; among equals one that never came back, while others timed out on it."""
    if not positions:
        return None
    return min(
        range(len(positions)),
        key=lambda rank: (positions[rank].sequence, rank not in hung, positions[rank].since),
    )


def _failure(folder: Path, host: str | None, cause: Cause, position: Position | None, rank: int | None) -> Failure:
    if rank is None and read_job_file(folder) is not None:
        text, log = read_job_logs(folder, 20_000), f"launches/{folder.name}/job"
    else:
        text, log = files.read_log(folder, rank or 0, 20_000), f"launches/{folder.name}/rank{rank or 0}.log"
    return Failure(
        failure_class=cause.failure,
        phase=position.phase if position else "start",
        message=cause.message,
        rank=rank,
        host=host,
        log_tail="\n".join(text.strip().splitlines()[-LOG_TAIL_LINES:]),
        log=log,
    )
