"""A forecast as a table for a terminal and as CSV."""

from __future__ import annotations

import csv
import io

from tabulate import tabulate

from harness.forecast.models import Forecast, LayoutForecast
from harness.report.units import Unit, bytes_unit

GIB = 2**30
_SHOWN = 40


def forecast_text(found: Forecast) -> str:
    """Layouts best first, what was left out by rule, and every number's provenance."""
    work = found.workload
    unit = bytes_unit(min(one.memory.peak_bytes, GIB) for one in found.layouts)
    lines = [
        f"{work.model.name} ({work.model.param_count / 1e9:,.4g} B parameters), batch {work.global_batch} x "
        f"{work.seq_len} tokens, {found.nodes} x {found.gpus_per_node} {found.gpu}; predicted, nothing was run",
        "",
        tabulate(
            [_row(one, unit) for one in found.layouts[:_SHOWN]], headers="keys", disable_numparse=True, stralign="right"
        ),
    ]
    if len(found.layouts) > _SHOWN:
        lines.append(f"and {len(found.layouts) - _SHOWN} more; --json and --csv show all")
    misfits = [one for one in found.layouts if one.fits is False]
    lines += ["", *(f"does not fit: {one.label}: {one.why}" for one in misfits[:6])]
    if len(misfits) > 6:
        lines.append(f"and {len(misfits) - 6} more do not fit")
    by_rule: dict[str, int] = {}
    for one in found.left_out:
        by_rule[one.rule] = by_rule.get(one.rule, 0) + 1
    lines += [f"not legal by {rule}: {count}" for rule, count in by_rule.items()]
    sources = list(dict.fromkeys(number.source for number in found.numbers))
    lines += ["", *(f"{n.provenance}: {n.name} {n.value} [{sources.index(n.source) + 1}]" for n in found.numbers)]
    lines += [f"[{at}] {source}" for at, source in enumerate(sources, 1)]
    if found.best is not None:
        lines += ["", f"try first: {found.best.layout}"]
    return "\n".join(lines)


def _row(one: LayoutForecast, unit: Unit) -> dict[str, str]:
    time, memory = one.time, one.memory
    state = memory.parameters_bytes + memory.gradients_bytes + memory.optimizer_bytes
    return {
        "layout": one.label,
        "checkpointing": one.activation_checkpointing,
        "fits": {True: "yes", False: "no", None: "?"}[one.fits],
        "tokens/s": f"{one.tokens_per_s:,.0f}",
        "step s": f"{time.step_time_s:,.3f}",
        "compute s": f"{time.compute_s:,.3f}",
        "exposed s": " ".join(f"{axis} {seconds:,.3f}" for axis, seconds in time.exposed_s.items()) or "-",
        "hidden s": f"{time.hidden_s:z,.3f}",
        f"peak {unit.name}": f"{memory.peak_bytes / unit.divisor:,.1f}",
        f"state {unit.name}": f"{state / unit.divisor:,.1f}",
        f"activations {unit.name}": f"{memory.activations_bytes / unit.divisor:,.1f}",
        "cross-node": "-" if one.cross_node_share is None else f"{one.cross_node_share:.0%}",
        f"checkpoint {unit.name}": f"{one.checkpoint.total_bytes / unit.divisor:,.1f}",
    }


def forecast_csv(found: Forecast) -> str:
    """One row a layout with every figure; bytes, seconds, tokens/s."""
    axes = ("tp", "dp_shard", "dp_replicate")
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(
        [
            *("layout", "dp_replicate", "dp_shard", "tp", "micro_batch", "fits", "why", "tokens_per_s", "step_time_s"),
            *("compute_s", "optimizer_s", *(f"exposed_{axis}_s" for axis in axes)),
            *(f"communication_{axis}_s" for axis in axes),
            *("peak_memory_bytes", "parameters_bytes", "gradients_bytes", "optimizer_bytes"),
            *("activations_none_bytes", "activations_selective_bytes", "activations_full_bytes"),
            *("unsharded_peak_bytes", "communication_buffers_bytes", "cross_node_share"),
            *(f"{kind}_{axis}_bytes" for axis in axes for kind in ("algorithm", "ring", "cross_node")),
            *("checkpoint_bytes", "checkpoint_files", "checkpoint_save_s", "checkpoint_restore_s"),
        ]
    )
    for one in found.layouts:
        time, memory, checkpoint = one.time, one.memory, one.checkpoint
        traffic = {part.axis: part for part in one.traffic}
        writer.writerow(
            [
                *(one.layout, one.dp_replicate, one.dp_shard, one.tp, one.micro_batch),
                *({True: "yes", False: "no", None: ""}[one.fits], one.why, one.tokens_per_s, time.step_time_s),
                *(time.compute_s, time.optimizer_s, *(time.exposed_s.get(axis) for axis in axes)),
                *(time.communication_s.get(axis) for axis in axes),
                *(memory.peak_bytes, memory.parameters_bytes, memory.gradients_bytes, memory.optimizer_bytes),
                *memory.activations_by_mode_bytes.values(),
                *(memory.unsharded_peak_bytes, memory.communication_buffers_bytes, one.cross_node_share),
                *(
                    getattr(traffic[axis], f"{kind}_bytes") if axis in traffic else None
                    for axis in axes
                    for kind in ("algorithm", "ring", "cross_node")
                ),
                *(checkpoint.total_bytes, checkpoint.files, checkpoint.save_time_s, checkpoint.restore_time_s),
            ]
        )
    return out.getvalue().rstrip("\n")
