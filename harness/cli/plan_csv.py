"""A forecast as CSV."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator

from harness.forecast.models import Forecast, LayoutForecast

AXES = ("tp", "dp_shard", "dp_replicate")
AT_PEAK = ("parameters", "gradients", "optimizer", "unsharded", "activations", "buffers", "other")
_TRAFFIC = ("algorithm", "ring", "cross_node")


def forecast_csv(found: Forecast) -> str:
    """One row a layout with every figure; bytes, seconds, tokens/s. Columns ``at_peak_*`` add up to the peak."""
    out = io.StringIO()
    rows = [dict(_row(one)) for one in found.layouts]
    writer = csv.DictWriter(out, list(rows[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return out.getvalue().rstrip("\n")


def _row(one: LayoutForecast) -> Iterator[tuple[str, object]]:
    for name in ("layout", "dp_replicate", "dp_shard", "tp", "micro_batch"):
        yield name, getattr(one, name)
    yield "fits", {True: "yes", False: "no", None: ""}[one.fits]
    yield "close", "yes" if one.close else "no"
    yield "why", one.why
    yield from _speed(one)
    yield from _memory(one)
    yield from _traffic(one)
    for name in ("total_bytes", "files", "save_time_s", "restore_time_s"):
        short = {"total_bytes": "bytes", "save_time_s": "save_s", "restore_time_s": "restore_s"}.get(name, name)
        yield f"checkpoint_{short}", getattr(one.checkpoint, name)


def _speed(one: LayoutForecast) -> Iterator[tuple[str, object]]:
    time, unknown = one.time, (None, None)
    yield "tokens_per_s", one.tokens_per_s
    yield from zip(("tokens_per_s_low", "tokens_per_s_high"), one.tokens_per_s_range or unknown, strict=True)
    yield "step_time_s", time.step_time_s
    yield from zip(("step_time_low_s", "step_time_high_s"), one.step_time_range_s or unknown, strict=True)
    yield "compute_s", time.compute_s
    yield "optimizer_s", time.optimizer_s
    yield from ((f"exposed_{axis}_s", time.exposed_s.get(axis)) for axis in AXES)
    yield from ((f"communication_{axis}_s", time.communication_s.get(axis)) for axis in AXES)


def _memory(one: LayoutForecast) -> Iterator[tuple[str, object]]:
    memory = one.memory
    yield "peak_memory_bytes", memory.peak_bytes
    yield "peak_moment", memory.peak_moment
    yield from ((f"at_peak_{part}_bytes", getattr(memory.moments[0], f"{part}_bytes")) for part in AT_PEAK)
    for name in ("parameters_bytes", "gradients_bytes", "optimizer_bytes"):
        yield name, getattr(memory, name)
    yield from ((f"activations_{mode}_bytes", size) for mode, size in memory.activations_by_mode_bytes.items())
    yield "unsharded_peak_bytes", memory.unsharded_peak_bytes
    yield "communication_buffers_bytes", memory.communication_buffers_bytes


def _traffic(one: LayoutForecast) -> Iterator[tuple[str, object]]:
    yield "cross_node_share", one.cross_node_share
    found = {part.axis: part for part in one.traffic}
    for axis in AXES:
        for kind in _TRAFFIC:
            yield f"{kind}_{axis}_bytes", getattr(found[axis], f"{kind}_bytes") if axis in found else None
