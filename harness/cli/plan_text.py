"""A forecast as tables for a terminal."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from tabulate import tabulate

from harness.forecast.models import Forecast, LayoutForecast
from harness.predict.error import MEMORY_MARGIN, TOLD_APART
from harness.report.units import Unit, bytes_unit

GIB = 2**30
_SHOWN = 40
_NAMED = 4


def forecast_text(found: Forecast) -> str:
    """Layouts best first, their memory, what was left out by rule, every number's provenance, what to try first."""
    work = found.workload
    shown = found.layouts[:_SHOWN]
    unit = bytes_unit(min(one.memory.peak_bytes, GIB) for one in found.layouts)
    lines = [
        f"{work.model.name} ({work.model.param_count / 1e9:,.4g} B parameters), batch {work.global_batch} x "
        f"{work.seq_len} tokens, {found.nodes} x {found.gpus_per_node} {found.gpu}; predicted, nothing was run",
        settings_line(found),
        "",
        _table([_time_row(one) for one in shown]),
        "step s = compute + optimizer + exposed; hidden communication costs nothing",
        *_more(found),
        *band_lines(found),
        "",
        _table([_memory_row(one, unit) for one in shown]),
        f"peak = the seven columns before it, {unit.name} on the fullest rank at the moment named last",
        *_more(found),
    ]
    if any(one.close for one in found.layouts):
        lines.append(
            f"close: within {MEMORY_MARGIN:.0%} of the limit, as far as a predicted peak may be off; measure it"
        )
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
    return "\n".join([*lines, *_advice(found)])


def settings_line(found: Forecast) -> str:
    """What decides the answer besides the cluster: what the user gave, and what was left to whom."""
    groups = {"given": [f"{one.name} {one.value}" for one in found.settings if one.given]}
    for one in found.settings:
        if not one.given:
            groups.setdefault(one.origin, []).append(f"{one.name} {one.value} ({one.option})")
    return "; ".join(f"{origin}: {', '.join(texts)}" for origin, texts in groups.items() if texts)


def band_lines(found: Forecast) -> Iterator[str]:
    """How far off speeds may be, and by what that is known."""
    for band in dict.fromkeys(one.error for one in found.layouts):
        labels = [one.label for one in found.layouts if one.error == band]
        of = "" if len(labels) == len(found.layouts) else f" of {_named(labels)}"
        if band is None:
            yield f"range{of}: not known, no such prediction was ever held against a measurement"
        else:
            yield f"range{of}: at most {band.share:.0%} off, as were {band.basis}"
    yield (
        f"layouts that differ by under {TOLD_APART:.0%} are not told apart; of published pairs that differ by "
        "more, 96% came in the right order (docs/prediction.md)"
    )


def _more(found: Forecast) -> list[str]:
    left = len(found.layouts) - _SHOWN
    return [f"and {left} more; --json and --csv show all"] if left > 0 else []


def _advice(found: Forecast) -> list[str]:
    best = found.best
    if best is None:
        return []
    lines = ["", f"try first: {best.layout}"]
    if best.close:
        lines[-1] += f" ({best.why})"
        roomy = next((one for one in found.layouts if one.fits and not one.close), None)
        lines.append(f"the fastest that fits with room: {roomy.layout}" if roomy else "nothing fits with room")
    if found.rivals:
        lines.append(f"not told apart from it, so measure both: {_named([one.layout for one in found.rivals])}")
    return lines


def _named(labels: Sequence[str]) -> str:
    more = len(labels) - _NAMED
    return ", ".join(labels[:_NAMED]) + (f" and {more} more" if more > 0 else "")


def _table(rows: Sequence[dict[str, str]]) -> str:
    align = ["left", *["right"] * (len(rows[0]) - 1)] if rows else None
    return tabulate(rows, headers="keys", disable_numparse=True, colalign=align)


def _time_row(one: LayoutForecast) -> dict[str, str]:
    time, speeds = one.time, one.tokens_per_s_range
    return {
        "layout": one.label,
        "checkpointing": one.activation_checkpointing,
        "fits": one.fit_text,
        "tokens/s": f"{one.tokens_per_s:,.0f}",
        "range": "?" if speeds is None else f"[{_rounded(speeds[0])}, {_rounded(speeds[1])}]",
        "step s": f"{time.step_time_s:,.3f}",
        "compute s": f"{time.compute_s:,.3f}",
        "optimizer s": f"{time.optimizer_s:,.3f}",
        "exposed s": _exposed(time.exposed_s),
        "hidden s": f"{time.hidden_s:z,.3f}",
        "cross-node": "-" if one.cross_node_share is None else f"{one.cross_node_share:.0%}",
    }


def _exposed(by_axis: Mapping[str, float]) -> str:
    """``tp 0.056``, or several; axes that add nothing are left out."""
    shown = [f"{axis} {seconds:,.3f}" for axis, seconds in by_axis.items() if seconds >= 0.0005]
    return " + ".join(shown) or ("0.000" if by_axis else "-")


def _memory_row(one: LayoutForecast, unit: Unit) -> dict[str, str]:
    peak, kept = one.memory.moments[0], one.checkpoint.total_bytes
    parts = {
        "parameters": peak.parameters_bytes,
        "gradients": peak.gradients_bytes,
        "optimizer": peak.optimizer_bytes,
        "unsharded": peak.unsharded_bytes,
        "activations": peak.activations_bytes,
        "buffers": peak.buffers_bytes,
        "other": peak.other_bytes,
        f"peak {unit.name}": peak.total_bytes,
    }
    shown = {name: f"{size / unit.divisor:,.1f}" for name, size in parts.items()}
    checkpoint = {f"checkpoint {unit.name}": f"{kept / unit.divisor:,.1f}"}
    return {"layout": one.label, "fits": one.fit_text, **shown, "peak at": one.memory.peak_moment, **checkpoint}


def _rounded(value: float) -> str:
    """Three digits: a band is no sharper."""
    return f"{float(f'{value:.3g}'):,.0f}" if value >= 100 else f"{value:.3g}"
