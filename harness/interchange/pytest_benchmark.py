"""pytest-benchmark's JSON: a sweep in its form, and its files as a table.

A step of the slowest rank is a round in pytest-benchmark's words; rounds of meshsweep are told apart in ``extra_info``.
The form is that of pytest-benchmark 5 (``--benchmark-json``), read by ``pytest-benchmark compare``.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from harness.base import Frozen
from harness.compare import CellResult, Comparison
from harness.compare.change import timed_rounds
from harness.errors import UsageError

VERSION = "5.0.0"


class Benchmark(Frozen):
    """One benchmark of a file: times in seconds, ``rounds`` calls; what it told of itself in ``extra``."""

    name: str
    group: str | None
    rounds: int
    median_s: float
    q1_s: float
    q3_s: float
    extra: dict[str, Any]


def to_benchmarks(comparison: Comparison) -> dict[str, Any]:
    """The measured cells as a document of pytest-benchmark's form."""
    rounds = timed_rounds(comparison)
    plan = comparison.plan
    group = f"step: {plan.workload.model.name}, world size {plan.ranks.world_size}"
    timed = []
    for cell in comparison.cells:
        times = [time for one in rounds for time in one.get(cell.label, ())]
        if cell.outcome == "measured" and times:
            timed.append(_entry(cell, group, times, sum(cell.label in one for one in rounds)))
    ground = comparison.grounds[0] if comparison.grounds else None
    machine = {} if ground is None else ground.model_dump(mode="json", exclude_none=True)
    cpu = {"brand_raw": ground.cpu or "unknown" if ground else "unknown"}
    machine.update(node=(machine.get("hosts") or ["unknown"])[0], cpu=cpu)
    return {
        "machine_info": machine,
        "commit_info": {"id": ground.commit if ground else None, "dirty": False, "project": "meshsweep"},
        "benchmarks": timed,
        "datetime": plan.created_at,
        "version": VERSION,
    }


def _entry(cell: CellResult, group: str, times: Sequence[float], rounds: int) -> dict[str, Any]:
    text = cell.layout.text
    speed, memory, checkpoint = cell.tokens_per_s, cell.memory, cell.checkpoint
    extra = {
        "layout": text,
        "mesh_signature": cell.layout.mesh.signature,
        "world_size": cell.world_size,
        "rounds_of_processes": rounds,
        "tokens_per_s": speed.value if speed else None,
        "peak_memory_bytes": memory.peak_bytes if memory else None,
        "checkpoint_bytes": checkpoint.total_bytes if checkpoint else None,
        "save_time_s": checkpoint.save_time_s if checkpoint else None,
        "restore_time_s": checkpoint.restore_time_s if checkpoint else None,
    }
    return {
        "group": group,
        "name": f"step[{text}]",
        "fullname": f"meshsweep::step[{text}]",
        "params": {"layout": text},
        "param": text,
        "extra_info": {name: value for name, value in extra.items() if value is not None},
        "options": {
            "disable_gc": False,
            "timer": "perf_counter",
            "min_rounds": 1,
            "max_time": 0.0,
            "min_time": 0.0,
            "warmup": True,
        },
        "stats": statistics(times),
    }


def statistics(times: Sequence[float]) -> dict[str, Any]:
    """pytest-benchmark's statistics of times (s), by its definitions (``pytest_benchmark.stats.Stats``)."""
    values = np.sort(np.asarray(times, dtype=np.float64))
    mean, deviation = float(values.mean()), float(values.std(ddof=1)) if len(values) > 1 else 0.0
    median = float(np.median(values))
    half = len(values) // 2
    q1, q3 = _quartiles(values, median, half)
    iqr = q3 - q1
    far = int(((values < q1 - 1.5 * iqr) | (values > q3 + 1.5 * iqr)).sum())
    spread = int((np.abs(values - mean) > deviation).sum())
    return {
        "min": float(values[0]),
        "max": float(values[-1]),
        "mean": mean,
        "stddev": deviation,
        "rounds": len(values),
        "median": median,
        "iqr": iqr,
        "q1": q1,
        "q3": q3,
        "iqr_outliers": far,
        "stddev_outliers": spread,
        "outliers": f"{spread};{far}",
        "ld15iqr": float(values[values >= q1 - 1.5 * iqr][0]),
        "hd15iqr": float(values[values <= q3 + 1.5 * iqr][-1]),
        "ops": 1 / mean,
        "total": float(values.sum()),
        "data": [float(time) for time in times],
        "iterations": 1,
    }


def _quartiles(ordered: np.ndarray[Any, Any], median: float, half: int) -> tuple[float, float]:
    """Medians of the lower and the upper half; of an odd count the mean with and without the middle value."""
    if len(ordered) == 1:
        return median, median
    if len(ordered) % 2 == 0:
        return float(np.median(ordered[:half])), float(np.median(ordered[half:]))
    lower = (float(np.median(ordered[:half])) + float(np.median(ordered[: half + 1]))) / 2
    upper = (float(np.median(ordered[half + 1 :])) + float(np.median(ordered[half:]))) / 2
    return lower, upper


def read_benchmarks(path: Path) -> tuple[Benchmark, ...]:
    """The benchmarks of a file that ``pytest --benchmark-json`` or ``--benchmark-save`` wrote.

    Raises:
        UsageError: it cannot be read, or is not such a file; the message says what is missing.
    """
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror or error}; give pytest-benchmark's JSON") from error
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{path} is not JSON ({error}); give a file of pytest --benchmark-json") from error
    entries = document.get("benchmarks") if isinstance(document, dict) else None
    if not isinstance(entries, list):
        raise UsageError(f"{path} has no list 'benchmarks'; give a file of pytest --benchmark-json")
    try:
        return tuple(_benchmark(entry) for entry in entries)
    except (KeyError, TypeError, ValueError) as error:
        raise UsageError(f"{path} is not of pytest-benchmark's form ({error!r}); write it anew") from error


def _benchmark(entry: Mapping[str, Any]) -> Benchmark:
    stats = entry["stats"]
    return Benchmark(
        name=entry["name"],
        group=entry.get("group"),
        rounds=stats["rounds"],
        median_s=stats["median"],
        q1_s=stats["q1"],
        q3_s=stats["q3"],
        extra=dict(entry.get("extra_info") or {}),
    )
