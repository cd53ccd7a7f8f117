"""A sweep's cells as runs of experiment trackers: TensorBoard, Weights & Biases, MLflow. Each is imported when used."""

from __future__ import annotations

import importlib
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from harness.base import Frozen
from harness.compare import Comparison
from harness.compare.change import timed_rounds
from harness.errors import UsageError

STEP_METRIC = "step_time_s"


class TrackedRun(Frozen):
    """One measured cell: what it is, its figures with units in names, the slowest rank's time of each step (s)."""

    name: str
    sweep: str
    params: dict[str, str | int]
    metrics: dict[str, float]
    step_time_s: tuple[float, ...]


def tracked_runs(comparison: Comparison) -> tuple[TrackedRun, ...]:
    """The measured cells, in the comparison's order; steps of all rounds one after the other."""
    rounds = timed_rounds(comparison)
    plan = comparison.plan
    shared: dict[str, str | int] = {
        "model": plan.workload.model.name,
        "global_batch": plan.workload.global_batch,
        "seq_len": plan.workload.seq_len,
        "torch": comparison.grounds[0].torch if comparison.grounds else "unknown",
    }
    runs = []
    for cell in comparison.with_outcome("measured"):
        figures: dict[str, float | None] = {
            "tokens_per_s": cell.tokens_per_s.value if cell.tokens_per_s else None,
            "tokens_per_s_low": cell.tokens_per_s.low if cell.tokens_per_s else None,
            "tokens_per_s_high": cell.tokens_per_s.high if cell.tokens_per_s else None,
            "mfu": cell.mfu,
            "peak_memory_bytes": cell.memory.peak_bytes if cell.memory else None,
            "checkpoint_bytes": cell.checkpoint.total_bytes if cell.checkpoint else None,
            "checkpoint_save_s": cell.checkpoint.save_time_s if cell.checkpoint else None,
            "checkpoint_restore_s": cell.checkpoint.restore_time_s if cell.checkpoint else None,
            "rank": cell.rank,
        }
        mesh = cell.layout.mesh
        own: dict[str, str | int] = {"layout": cell.layout.text, "strategy": cell.layout.strategy}
        own.update(dp_replicate=mesh.dp_replicate, dp_shard=mesh.dp_shard, tp=mesh.tp, world_size=cell.world_size)
        runs.append(
            TrackedRun(
                name=cell.label,
                sweep=plan.name,
                params={**own, **shared},
                metrics={name: float(value) for name, value in figures.items() if value is not None},
                step_time_s=tuple(time for one in rounds for time in one.get(cell.label, ())),
            )
        )
    return tuple(runs)


def to_tensorboard(runs: Sequence[TrackedRun], folder: Path) -> None:
    """A folder of event files a cell: ``step_time_s`` by step, the other figures once, parameters as text."""
    event_file_writer = _client("tensorboard.summary.writer.event_file_writer", "tensorboard")
    events = _client("tensorboard.compat.proto.event_pb2", "tensorboard")
    summaries = _client("tensorboard.compat.proto.summary_pb2", "tensorboard")
    for run in runs:
        writer = event_file_writer.EventFileWriter(str(folder / run.sweep / _slug(run.name)))
        points = [(STEP_METRIC, time, step) for step, time in enumerate(run.step_time_s)]
        points += [(name, value, 0) for name, value in run.metrics.items()]
        for name, value, step in points:
            summary = summaries.Summary(value=[summaries.Summary.Value(tag=name, simple_value=value)])
            writer.add_event(events.Event(step=step, summary=summary))
        writer.add_event(events.Event(step=0, summary=_text_summary("params", run.params)))
        writer.close()


def _text_summary(tag: str, values: Mapping[str, str | int]) -> Any:
    """Names and values for TensorBoard's text tab, as preformatted lines; its own helper needs tensorflow."""
    summaries = _client("tensorboard.compat.proto.summary_pb2", "tensorboard")
    tensors = _client("tensorboard.compat.proto.tensor_pb2", "tensorboard")
    types = _client("tensorboard.compat.proto.types_pb2", "tensorboard")
    lines = "\n".join(f"    {name}: {value}" for name, value in values.items())
    plugin = summaries.SummaryMetadata.PluginData(plugin_name="text")
    tensor = tensors.TensorProto(dtype=types.DT_STRING, string_val=[lines.encode()])
    metadata = summaries.SummaryMetadata(plugin_data=plugin)
    return summaries.Summary(value=[summaries.Summary.Value(tag=tag, metadata=metadata, tensor=tensor)])


def to_wandb(runs: Sequence[TrackedRun], folder: Path, client: Any = None) -> None:
    """A run a cell in project ``meshsweep``, grouped by sweep. Whether it goes online is W&B's to say (WANDB_MODE)."""
    wandb = client or _client("wandb", "wandb")
    folder.mkdir(parents=True, exist_ok=True)
    for run in runs:
        started = wandb.init(
            project="meshsweep", group=run.sweep, name=run.name, config=dict(run.params), dir=str(folder), reinit=True
        )
        for step, time in enumerate(run.step_time_s):
            started.log({STEP_METRIC: time}, step=step)
        for name, value in run.metrics.items():
            started.summary[name] = value
        started.finish()


def to_mlflow(runs: Sequence[TrackedRun], folder: Path, client: Any = None) -> None:
    """A run a cell in an experiment named after the sweep; where MLFLOW_TRACKING_URI says, else in ``folder``."""
    mlflow = client or _client("mlflow", "mlflow")
    if not mlflow.is_tracking_uri_set():
        folder.mkdir(parents=True, exist_ok=True)
        mlflow.set_tracking_uri(f"sqlite:///{folder.resolve() / 'mlflow.db'}")
    for run in runs:
        mlflow.set_experiment(f"meshsweep/{run.sweep}")
        with mlflow.start_run(run_name=run.name):
            mlflow.log_params(dict(run.params))
            mlflow.log_metrics(dict(run.metrics))
            for step, time in enumerate(run.step_time_s):
                mlflow.log_metric(STEP_METRIC, time, step=step)


TRACKERS: Mapping[str, Callable[[Sequence[TrackedRun], Path], None]] = {
    "tensorboard": to_tensorboard,
    "wandb": to_wandb,
    "mlflow": to_mlflow,
}


def _client(module: str, package: str) -> Any:
    try:
        return importlib.import_module(module)
    except ImportError as error:
        remedy = f"pip install '.[{package}]' in meshsweep's folder"
        raise UsageError(f"this needs the package {package} ({error}); {remedy}") from error


def _slug(label: str) -> str:
    return re.sub(r"[^A-Za-z0-9_.=-]+", "-", label)
