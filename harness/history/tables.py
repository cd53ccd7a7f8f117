"""One sweep's records to rows: of runs with their raw samples, and of cells with how they ended."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from functools import lru_cache
from itertools import chain
from statistics import fmean, median
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from harness.base import digest
from harness.compare.collect import Cell, Collected, Round, collect, usable_rounds
from harness.compare.effects import round_value
from harness.compare.ground import AGREE, ground_key
from harness.compare.history import History
from harness.compare.outcome import decide, find_gate_reference
from harness.compare.race import race_of
from harness.compare.race_verdict import RaceVerdict
from harness.compare.ranking import stated_speeds
from harness.history.columns import CELL_COLUMNS, RUN_COLUMNS, Columns
from harness.layout import Layout
from harness.record import Ground, RunRecord
from harness.spec import SweepPlan

if TYPE_CHECKING:
    import pyarrow as pa

SAMPLES = "samples_s"  # list of ranks of list of steps, beside the run's columns
CYCLES = "cycles"


class Tables(NamedTuple):
    """Rows of runs (with the columns SAMPLES and CYCLES) and of cells."""

    runs: pa.Table
    cells: pa.Table


def schema(columns: Columns, *more: tuple[str, Any]) -> pa.Schema:
    """The Arrow schema of documented columns and others."""
    import pyarrow as pa

    kinds = {"string": pa.string(), "int64": pa.int64(), "double": pa.float64(), "bool": pa.bool_()}
    kinds["timestamp"] = pa.timestamp("us", tz="UTC")
    return pa.schema([(name, kinds[kind]) for name, (kind, _) in columns.items()] + list(more))


def run_schema() -> pa.Schema:
    import pyarrow as pa

    return schema(RUN_COLUMNS, (CYCLES, pa.list_(pa.int64())), (SAMPLES, pa.list_(pa.list_(pa.float64()))))


def sweep_tables(plan: SweepPlan, records: Sequence[RunRecord], name: str) -> Tables:
    """The rows of one sweep; ``name`` is its folder's, by which it is found again."""
    collected = collect(plan, records)
    rounds = _rounds(collected, records)
    runs = [_run_row(plan, record, name, rounds) for record in records]
    race = race_of(History(plan, records))
    cells = _cell_rows(plan, collected, name, rounds, race.verdict if race else None)
    return Tables(_table(runs, run_schema()), _table(cells, schema(CELL_COLUMNS)))


class RoundFigures(NamedTuple):
    """Of one round: the median of its steps (s), and ``round_value``, what ``compare`` takes of it (ln s)."""

    median_s: float
    level: float


RoundsById = Mapping[int, RoundFigures]  # by id() of the record


def _rounds(collected: Collected, records: Sequence[RunRecord]) -> RoundsById:
    """The figures of every record with a usable round, also of attempts that do not count."""
    rounds = [timed for cell in collected.cells for timed in (*cell.rounds, *cell.elsewhere)]
    counted = {id(timed.record) for timed in rounds}
    rounds += usable_rounds([r for r in records if r.timing and id(r) not in counted])
    by_steps: dict[int, list[Round]] = {}
    for timed in rounds:
        by_steps.setdefault(len(timed.steps), []).append(timed)
    found = {}
    for alike in by_steps.values():
        times = np.array([timed.times for timed in alike])
        medians, levels = np.median(times, axis=1).tolist(), round_value(times).tolist()
        figures = map(RoundFigures, medians, levels)
        found.update({id(timed.record): one for timed, one in zip(alike, figures, strict=True)})
    return found


def _table(rows: Sequence[Mapping[str, Any]], form: pa.Schema) -> pa.Table:
    import pyarrow as pa

    columns = {}
    for field in form:
        values = [row.get(field.name) for row in rows]
        columns[field.name] = _nested(values) if field.name == SAMPLES else pa.array(values, field.type)
    return pa.table(columns, schema=form)


def _nested(values: Sequence[Sequence[Sequence[float]] | None]) -> pa.Array:
    """Lists of lists of floats, as ``pa.array`` makes them but several times faster."""
    import pyarrow as pa

    ranks = [row for value in values if value is not None for row in value]
    steps = np.fromiter(chain.from_iterable(ranks), dtype=np.float64)
    inner = pa.ListArray.from_arrays(_offsets(map(len, ranks)), pa.array(steps))
    offsets = _offsets(0 if value is None else len(value) for value in values)
    return pa.ListArray.from_arrays(offsets, inner, mask=pa.array([value is None for value in values]))


def _offsets(lengths: Iterable[int]) -> pa.Array:
    import pyarrow as pa

    return pa.array(np.cumsum([0, *lengths]), pa.int32())


def _run_row(plan: SweepPlan, record: RunRecord, sweep: str, rounds: RoundsById) -> dict[str, Any]:
    spec, timing, memory, checkpoint = record.spec, record.timing, record.memory, record.checkpoint
    row: dict[str, Any] = {
        "sweep": sweep,
        "cell": _label(spec.layout),
        "purpose": spec.purpose,
        "round": spec.repeat,
        "started_at": _moment(record.started_at),
        "world_size": spec.ranks.world_size,
        "attempt": record.attempt,
        "run_id": record.run_id,
        "launch_id": record.launch_id,
        "status": record.status,
        "wall_s": record.wall_s,
        "startup_s": record.startup_s,
        **_ground_values(record.ground),
    }
    if record.failure is not None:
        row.update(failure_class=str(record.failure.failure_class), failure_phase=record.failure.phase)
    if timing is not None:
        row.update(design=timing.design, steady=timing.steady, steps=len(timing.cycles))
        row.update({CYCLES: timing.cycles, SAMPLES: timing.step_time_s})
        figures = rounds.get(id(record))
        if figures is not None:
            row["step_time_s"] = figures.median_s
            row["tokens_per_s"] = plan.workload.tokens_per_step / row["step_time_s"]
    if memory is not None:
        row["peak_memory_bytes"] = max(memory.peak_bytes, default=None)
        row["peak_reserved_bytes"] = max(memory.peak_reserved_bytes or (), default=None)
        row["peak_rss_bytes"] = max(memory.peak_rss_bytes or (), default=None)
    if checkpoint is not None:
        row.update(checkpoint_bytes=checkpoint.total_bytes, checkpoint_save_s=checkpoint.save_time_s)
        row["checkpoint_restore_s"] = checkpoint.restore_time_s
    return row


@lru_cache(maxsize=4096)
def _label(layout: Layout) -> str:
    return layout.label


@lru_cache(maxsize=1024)
def _ground_values(ground: Ground | None) -> dict[str, Any]:
    if ground is None:
        return {}
    names = ("driver", "torch", "backend", "nccl", "commit", "load_average")
    devices = ", ".join(sorted(set(ground.device_names)))
    return {
        **{name: getattr(ground, name) for name in names},
        "hosts": ", ".join(ground.hosts),
        "device_names": devices or None,
    }


def _cell_rows(
    plan: SweepPlan, collected: Collected, sweep: str, rounds: RoundsById, race: RaceVerdict | None
) -> list[dict[str, Any]]:
    reference = find_gate_reference(collected.cells, plan.settings.gate_steps)
    ground = _ground_values(collected.ground)
    shared = {
        "sweep": sweep,
        "created_at": _moment(plan.created_at),
        "work": work_text(plan),
        "ground": _ground_digest(collected.ground),
        **{name: ground.get(name) for name in ("commit", "torch", "device_names")},
    }
    rows = []
    for cell in collected.cells:
        verdict = decide(cell, reference, cell.layout in plan.layouts and cell.world_size == plan.ranks.world_size)
        row = {**shared, "cell": cell.label, "outcome": verdict.outcome, "reason": verdict.reason}
        rows.append({**row, **_cell_values(plan, cell, rounds)})
    _state_speeds(rows, plan, collected, race)
    seen = {cell.label for cell in collected.cells}
    rows += [
        {**shared, "cell": pruned.layout.label, "outcome": "pruned", "reason": pruned.reason}
        for pruned in plan.pruned
        if pruned.layout.label not in seen
    ]
    return rows


def _state_speeds(
    rows: Sequence[dict[str, Any]], plan: SweepPlan, collected: Collected, race: RaceVerdict | None
) -> None:
    """Put the speeds of a race's layouts on one scale, as the report of that sweep does."""
    cells = {cell.label: cell for cell in collected.cells}
    own = {
        row["cell"]: row["tokens_per_s"]
        for row in rows
        if row["outcome"] == "measured" and cells[row["cell"]].world_size == plan.ranks.world_size and row["rounds"]
    }
    stated = stated_speeds(own, cells, race)
    for row in rows:
        if row["cell"] in stated:
            row["tokens_per_s"] = stated[row["cell"]]


def _cell_values(plan: SweepPlan, cell: Cell, rounds: RoundsById) -> dict[str, Any]:
    row: dict[str, Any] = {"rounds": len(cell.rounds)}
    if cell.rounds:
        row["step_time_s"] = median(chain.from_iterable(timed.times for timed in cell.rounds))
        row["level_step_time_s"] = math.exp(fmean(rounds[id(timed.record)].level for timed in cell.rounds))
        row["tokens_per_s"] = plan.workload.tokens_per_step / row["step_time_s"]
    if cell.verify is not None and cell.verify.memory is not None:
        row["peak_memory_bytes"] = max(cell.verify.memory.peak_bytes, default=None)
    if cell.verify is not None and cell.verify.checkpoint is not None:
        row["checkpoint_bytes"] = cell.verify.checkpoint.total_bytes
    return row


def work_text(plan: SweepPlan) -> str:
    """``tiny, 8 x 64 tokens, 4 cpu``: sweeps of equal text did the same work on as many devices of a kind."""
    work, ranks = plan.workload, plan.ranks
    nodes = f" on {len(ranks.per_node)} nodes" if len(ranks.per_node) > 1 else ""
    return f"{work.model.name}, {work.global_batch} x {work.seq_len} tokens, {ranks.world_size} {ranks.device}{nodes}"


def _ground_digest(ground: Ground | None) -> str | None:
    if ground is None:
        return None
    values = dict(zip(AGREE, ground_key(ground), strict=True))
    return digest({name: value for name, value in values.items() if name not in ("commit", "version")}, 8)


@lru_cache(maxsize=1024)
def _moment(text: str) -> datetime | None:
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        return None
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)
