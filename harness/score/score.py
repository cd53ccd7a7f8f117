"""How far predictions lie from a table of published runs, by source."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Hashable, Iterable, Sequence
from itertools import combinations
from statistics import median
from typing import Literal

from harness.base import Frozen
from harness.predict.error import TOLD_APART
from harness.predict.jobmemory import predict_job_memory
from harness.predict.time import predict_time
from harness.score.published import FAMILIES, MASTER_COPY, is_calibration
from harness.score.table import Left, Row

SEPARATED = 1 + TOLD_APART  # two layouts differ where one is faster by more than this
FIT_MARGIN = 0.94  # of the device's memory that a job can allocate; driver, context and NCCL hold the rest
SPLIT_RULE = (
    "calibration: the rows listed in harness/score/published.py; evaluation: all others; the form of the model was "
    "chosen with the project's whole table in view"
)
Split = Literal["calibration", "evaluation"]


class ScoredRow(Frozen):
    """One row beside its prediction. Measured values are None where not stated."""

    id: str
    source: str
    split: Split
    software: str
    tokens_per_s: float | None
    predicted_tokens_per_s: float
    speed_error: float | None
    peak_bytes: float | None
    predicted_peak_bytes: float
    memory_error: float | None
    fits: bool | None
    predicted_fits: bool | None


class SourceScore(Frozen):
    """One source. Errors are medians of absolute relative errors; ``bias`` is the median error with its sign.

    ``pairs``: layouts on the same hardware and model whose measured speeds differ by over 10%; ``pairs_right``: those
    whose faster one is named.
    """

    source: str
    rows: int
    calibration_rows: int
    speed_rows: int
    speed_error: float | None
    speed_bias: float | None
    speed_error_evaluation: float | None
    memory_rows: int
    memory_error: float | None
    memory_bias: float | None
    memory_kind: str
    false_fits: int
    false_does_not_fit: int
    pairs: int
    pairs_right: int


class Score(Frozen):
    """All of a table."""

    table: str
    split_rule: str
    rows: tuple[ScoredRow, ...]
    sources: tuple[SourceScore, ...]
    left_out: dict[str, dict[str, int]]
    left_out_rows: tuple[tuple[str, str], ...]


def score(table: str, rows: Sequence[Row], left: Sequence[Left]) -> Score:
    """Predict and compare every row."""
    scored = {row.id: _scored(row) for row in rows}
    by_source: dict[str, list[Row]] = defaultdict(list)
    for row in rows:
        by_source[row.source].append(row)
    reasons: dict[str, Counter[str]] = defaultdict(Counter)
    for one in left:
        reasons[one.source][one.reason] += 1
    return Score(
        table=table,
        split_rule=SPLIT_RULE,
        rows=tuple(scored.values()),
        sources=tuple(_source(name, of, [scored[row.id] for row in of]) for name, of in sorted(by_source.items())),
        left_out={source: dict(count) for source, count in sorted(reasons.items())},
        left_out_rows=tuple((one.id, one.reason) for one in left),
    )


def _scored(row: Row) -> ScoredRow:
    family = FAMILIES[row.family]
    software = family.software
    speed = predict_time(row.job, row.device, row.network, software).tokens_per_s_per_rank
    peak = predict_job_memory(
        row.job, master_copy=row.family in MASTER_COPY, logit_bytes=family.logit_bytes, lean=family.lean
    ).peak_bytes
    room = row.device.memory_bytes
    failed = row.status in ("oom", "out of memory", "out_of_memory")
    known = failed or row.status == "ok"
    return ScoredRow(
        id=row.id,
        source=row.source,
        split="calibration" if is_calibration(row.id) else "evaluation",
        software=software.name,
        tokens_per_s=row.tokens_per_s,
        predicted_tokens_per_s=speed,
        speed_error=None if row.tokens_per_s is None else speed / row.tokens_per_s - 1,
        peak_bytes=row.peak_bytes,
        predicted_peak_bytes=peak,
        memory_error=None if row.peak_bytes is None else peak / row.peak_bytes - 1,
        fits=None if not known else not failed,
        predicted_fits=None if room is None else peak <= room * FIT_MARGIN,
    )


def _source(name: str, rows: Sequence[Row], scored: Sequence[ScoredRow]) -> SourceScore:
    speed = [one.speed_error for one in scored if one.speed_error is not None]
    memory = [one.memory_error for one in scored if one.memory_error is not None]
    unseen = [one.speed_error for one in scored if one.speed_error is not None and one.split == "evaluation"]
    right, pairs = _ordering(rows, scored)
    kinds = {"reserved" if row.reserved else "allocated" for row in rows if row.peak_bytes is not None}
    return SourceScore(
        source=name,
        rows=len(rows),
        calibration_rows=sum(one.split == "calibration" for one in scored),
        speed_rows=len(speed),
        speed_error=_middle(map(abs, speed)),
        speed_bias=_middle(speed),
        speed_error_evaluation=_middle(map(abs, unseen)),
        memory_rows=len(memory),
        memory_error=_middle(map(abs, memory)),
        memory_bias=_middle(memory),
        memory_kind=", ".join(sorted(kinds)),
        false_fits=sum(one.fits is False and one.predicted_fits is True for one in scored),
        false_does_not_fit=sum(one.fits is True and one.predicted_fits is False for one in scored),
        pairs=pairs,
        pairs_right=right,
    )


def _middle(values: Iterable[float]) -> float | None:
    found = list(values)
    return median(found) if found else None


def _ordering(rows: Sequence[Row], scored: Sequence[ScoredRow]) -> tuple[int, int]:
    """Pairs of layouts named in the right order, and all that measurement separates."""
    groups: dict[Hashable, list[ScoredRow]] = defaultdict(list)
    for row, one in zip(rows, scored, strict=True):
        if row.tokens_per_s is not None:
            groups[_work(row)].append(one)
    right = total = 0
    for members in groups.values():
        for a, b in combinations(members, 2):
            ratio = (a.tokens_per_s or 1) / (b.tokens_per_s or 1)
            if max(ratio, 1 / ratio) > SEPARATED:
                total += 1
                right += (a.predicted_tokens_per_s > b.predicted_tokens_per_s) == (ratio > 1)
    return right, total


def _work(row: Row) -> Hashable:
    """What two rows must share to be two layouts of one work on the same hardware: their table's group, or these."""
    if row.group:
        return row.group
    job = row.job
    return (row.gpu.key, job.world_size, job.model, job.seq_len, job.arithmetic)
