"""Tidy frames: one row a cell, one row a step and rank. Missing is missing, never 0."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal

from harness.compare import CellResult, Comparison
from harness.layout import AXES

if TYPE_CHECKING:
    import pandas as pd

Dtype = Literal["string", "Int64", "Float64", "boolean"]
Columns = Mapping[str, tuple[Dtype, str]]  # column -> (pandas dtype, definition)

CELL_COLUMNS: Columns = {
    "sweep": ("string", "name of the sweep"),
    "cell": ("string", "label of the layout"),
    "strategy": ("string", "how training is distributed"),
    "dp_replicate": ("Int64", "size of the mesh axis over which parameters are replicated"),
    "dp_shard": ("Int64", "size of the mesh axis over which parameters are sharded"),
    "tp": ("Int64", "size of the tensor-parallel mesh axis"),
    "world_size": ("Int64", "ranks"),
    "precision": ("string", "fp32, or bf16 parameters with fp32 reduction"),
    "options": ("string", "options that differ from their default, name=value, blank-separated"),
    "outcome": ("string", "measured, diverged, failed, not_run or pruned"),
    "reason": ("string", "why it is not measured, with the numbers that decided"),
    "is_reference": ("boolean", "whether the others' losses were to be checked against it"),
    "rank": ("Int64", "place by tokens/s, 1 is fastest; missing where it is not ranked"),
    "tie": ("boolean", "whether it cannot be told apart from the fastest, or was never in two rounds"),
    "stopped_early": ("boolean", "whether the race stopped it; missing where it is not ranked"),
    "stopped_reason": ("string", "the rule's numbers, if it was stopped early"),
    "frontier": ("boolean", "whether no ranked layout is at least as fast with less memory"),
    "design": ("string", "how layouts were timed against each other: alternated, blocks or launches"),
    "rounds": ("Int64", "timed rounds"),
    "steps": ("Int64", "timed steps over all rounds"),
    "step_time_s": ("Float64", "median over all timed steps of the slowest rank's time, seconds"),
    "step_time_low_s": ("Float64", "lower end of its 95% interval, seconds"),
    "step_time_high_s": ("Float64", "upper end of its 95% interval, seconds"),
    "step_time_min_s": ("Float64", "shortest timed step, seconds"),
    "step_time_max_s": ("Float64", "longest timed step, seconds"),
    "step_time_cv": ("Float64", "standard deviation over mean of all timed steps, fraction"),
    "tokens_per_s": ("Float64", "tokens of a global batch over step_time_s; of a race the leader's x the ratio to it"),
    "tokens_per_s_low": ("Float64", "lower end of its 95% interval"),
    "tokens_per_s_high": ("Float64", "upper end of its 95% interval"),
    "tokens_per_s_per_rank": ("Float64", "tokens_per_s over world_size"),
    "mfu": ("Float64", "model FLOP/s over the peak of all ranks, fraction; missing where the peak is unknown"),
    "ratio_to_best": (
        "Float64",
        "speed over the fastest layout's: mean of its rounds' median ratios of steps of one cycle",
    ),
    "ratio_to_best_low": ("Float64", "lower end of the ratio's 95% interval"),
    "ratio_to_best_high": ("Float64", "upper end of the ratio's 95% interval"),
    "ratio_is_paired": ("boolean", "whether the ratio rests on steps timed next to each other"),
    "peak_memory_bytes": ("Int64", "peak of one untimed step, largest over ranks, bytes"),
    "peak_reserved_bytes": ("Int64", "peak reserved by the device allocator, largest over ranks, bytes"),
    "peak_rss_bytes": ("Int64", "peak resident set of a rank's process, largest over ranks, bytes"),
    "memory_method": ("string", "what peak_memory_bytes counts"),
    "checkpoint_bytes": ("Int64", "sharded checkpoint with optimizer state on disk, bytes"),
    "checkpoint_files": ("Int64", "files of that checkpoint"),
    "checkpoint_save_s": ("Float64", "time to save it, slowest rank, seconds"),
    "checkpoint_restore_s": ("Float64", "time to restore it into a fresh model, slowest rank, seconds"),
    "checkpoint_equal": ("boolean", "whether every restored tensor equals the saved one"),
    "first_step_s": ("Float64", "from the start of its verify launch to its first training step, seconds"),
    "startup_ranks_s": ("Float64", "from a job's start on its nodes to all ranks in their process group, seconds"),
    "startup_timed_s": ("Float64", "from a job's start on its nodes to the first timed step, seconds"),
    "sent_bytes": ("Int64", "bytes that all ranks send in one step, with the backend's algorithms"),
    "dp_replicate_sent_bytes": ("Int64", "those of them for collectives on that axis"),
    "dp_shard_sent_bytes": ("Int64", "those of them for collectives on that axis"),
    "tp_sent_bytes": ("Int64", "those of them for collectives on that axis"),
    "cross_node_bytes": ("Int64", "those of them that go to another node"),
    "cross_node_share": ("Float64", "cross_node_bytes over sent_bytes"),
    "collectives": ("Int64", "collectives that rank 0 issues in one step"),
    "wire_ratio": ("Float64", "bytes that nodes' network counters moved, less headers, over cross_node_bytes"),
    "gate_passed": ("boolean", "whether losses and gradient norms follow the reference"),
    "gate_first_bad_step": ("Int64", "first step outside the tolerance, counted from 0"),
    "gate_max_loss_error": ("Float64", "largest relative error of the loss"),
    "gate_max_grad_norm_error": ("Float64", "largest relative error of the gradient norm"),
    "failure_class": ("string", "what kind of failure ended it"),
    "failure_phase": ("string", "what it was doing then"),
    "failure_log": ("string", "its log, relative to the sweep's folder"),
}

SAMPLE_COLUMNS: Columns = {
    "sweep": ("string", "name of the sweep"),
    "cell": ("string", "label of the layout"),
    "round": ("Int64", "round, counted from 0"),
    "attempt": ("Int64", "attempt of that run, counted from 0"),
    "launch_id": ("string", "rounds of one launch share their rank processes"),
    "design": ("string", "how layouts were timed against each other"),
    "step": ("Int64", "timed step within the round, counted from 0"),
    "cycle": ("Int64", "equal cycles of one launch are neighbours in time"),
    "rank": ("Int64", "rank in the process group"),
    "step_time_s": ("Float64", "that rank's time of that step, seconds"),
}


def cell_frame(comparison: Comparison) -> pd.DataFrame:
    """One row a cell, in the comparison's order; columns as in CELL_COLUMNS."""
    return _frame([_row(comparison.plan.name, cell) for cell in comparison.cells], CELL_COLUMNS)


def sample_frame(comparison: Comparison) -> pd.DataFrame:
    """One row a timed step and rank, as recorded; columns as in SAMPLE_COLUMNS."""
    rows = [
        (comparison.plan.name, s.cell, s.repeat, s.attempt, s.launch_id, s.design, step, cycle, rank, time)
        for s in comparison.samples
        for rank, times in enumerate(s.step_time_s)
        for step, (cycle, time) in enumerate(zip(s.cycles, times, strict=False))
    ]
    return _frame([dict(zip(SAMPLE_COLUMNS, row, strict=True)) for row in rows], SAMPLE_COLUMNS)


def _frame(rows: list[dict[str, Any]], columns: Columns) -> pd.DataFrame:
    import pandas as pd

    series = {name: pd.Series([r[name] for r in rows], dtype=kind) for name, (kind, _) in columns.items()}
    return pd.DataFrame(series)


def _row(sweep: str, cell: CellResult) -> dict[str, Any]:
    return {
        "sweep": sweep,
        "cell": cell.label,
        "outcome": cell.outcome,
        "reason": cell.reason,
        "is_reference": cell.is_reference,
        "rank": cell.rank,
        "tie": cell.tie if cell.rank is not None else None,
        "stopped_early": cell.stopped is not None if cell.rank is not None else None,
        "stopped_reason": cell.stopped.text if cell.stopped else None,
        "frontier": cell.frontier,
        "design": " ".join(cell.designs) or None,
        **_layout_values(cell),
        **_speed_values(cell),
        **_verify_values(cell),
    }


def _layout_values(cell: CellResult) -> dict[str, Any]:
    mesh, options = cell.layout.mesh, cell.layout.options
    return {
        "strategy": cell.layout.strategy,
        "dp_replicate": mesh.dp_replicate,
        "dp_shard": mesh.dp_shard,
        "tp": mesh.tp,
        "world_size": cell.world_size,
        "precision": options.precision,
        "options": " ".join(f"{name}={str(value).lower()}" for name, value in options.changed().items()),
    }


def _speed_values(cell: CellResult) -> dict[str, Any]:
    times, speed, per_rank, ratio = cell.step_time, cell.tokens_per_s, cell.tokens_per_s_per_rank, cell.ratio_to_best
    return {
        "rounds": times and times.rounds,
        "steps": times and times.steps,
        "step_time_s": times and times.median,
        "step_time_low_s": times and times.low,
        "step_time_high_s": times and times.high,
        "step_time_min_s": times and times.minimum,
        "step_time_max_s": times and times.maximum,
        "step_time_cv": times and times.cv,
        "tokens_per_s": speed and speed.value,
        "tokens_per_s_low": speed and speed.low,
        "tokens_per_s_high": speed and speed.high,
        "tokens_per_s_per_rank": per_rank and per_rank.value,
        "mfu": cell.mfu,
        "ratio_to_best": ratio and ratio.ratio,
        "ratio_to_best_low": ratio and ratio.low,
        "ratio_to_best_high": ratio and ratio.high,
        "ratio_is_paired": ratio and ratio.paired,
    }


def _verify_values(cell: CellResult) -> dict[str, Any]:
    memory, checkpoint, gate, failure = cell.memory, cell.checkpoint, cell.gate, cell.failure
    startup = cell.startup
    return {
        "peak_memory_bytes": memory and memory.peak_bytes,
        "peak_reserved_bytes": memory and memory.reserved_bytes,
        "peak_rss_bytes": memory and memory.rss_bytes,
        "memory_method": memory and memory.method,
        "checkpoint_bytes": checkpoint and checkpoint.total_bytes,
        "checkpoint_files": checkpoint and checkpoint.files,
        "checkpoint_save_s": checkpoint and checkpoint.save_time_s,
        "checkpoint_restore_s": checkpoint and checkpoint.restore_time_s,
        "checkpoint_equal": checkpoint and checkpoint.equal,
        "first_step_s": cell.first_step_s,
        "startup_ranks_s": startup and startup.ranks_s,
        "startup_timed_s": startup and startup.first_timed_s,
        **_traffic_values(cell),
        "gate_passed": gate and gate.passed,
        "gate_first_bad_step": gate and gate.first_bad_step,
        "gate_max_loss_error": gate and gate.max_loss_error,
        "gate_max_grad_norm_error": gate and gate.max_grad_norm_error,
        "failure_class": failure and str(failure.failure_class),
        "failure_phase": failure and failure.phase,
        "failure_log": failure and failure.log,
    }


def _traffic_values(cell: CellResult) -> dict[str, Any]:
    traffic = cell.traffic
    return {
        "sent_bytes": traffic and traffic.wire.sent_bytes,
        **{f"{axis}_sent_bytes": traffic and traffic.bytes_of_axis(axis) for axis in AXES},
        "cross_node_bytes": traffic and traffic.wire.cross_node_bytes,
        "cross_node_share": traffic and traffic.wire.cross_node_share,
        "collectives": traffic and traffic.count,
        "wire_ratio": traffic.proof.ratio if traffic and traffic.proof else None,
    }
