"""``meshsweep plan --trace``: what the layouts' own code does, beside the closed formulas."""

from __future__ import annotations

import gc
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager

from tabulate import tabulate

from harness.errors import UsageError
from harness.forecast.models import Forecast, LayoutForecast, TracedAxis, TracedLayout, Untraced
from harness.layout import Layout, Mesh, parse_layout
from harness.predict.collectives import step_collectives
from harness.predict.memory import predict_memory
from harness.report.units import bytes_unit
from harness.traffic import Collective
from harness.workload import Workload

GIB = 2**30


def with_traces(found: Forecast, every: bool) -> Forecast:
    """The forecast with a trace of its best layout, or of ``every`` one; of what cannot be traced, with the reason."""
    chosen = found.layouts if every else tuple(one for one in (found.best,) if one is not None)
    traced, untraced = [], []
    for one in chosen:
        try:
            traced.append(_traced(one, found.workload))
        except UsageError as error:
            untraced.append(Untraced(layout=one.layout, reason=str(error)))
    return found.model_copy(update={"traced": tuple(traced), "untraced": tuple(untraced)})


@contextmanager
def _no_collections() -> Iterator[None]:
    """Without the garbage collector, which takes a third of the time of torch's import and finds nothing."""
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def _traced(one: LayoutForecast, workload: Workload) -> TracedLayout:
    with _no_collections():
        from harness.predict.trace import trace  # here, since it imports torch

    request = parse_layout(one.layout)
    layout = Layout(strategy=request.strategy, mesh=request.mesh or Mesh(), options=request.options)
    formula = step_collectives(layout, workload)
    memory = predict_memory(layout, workload, kernels="cpu")  # the trace is of a CPU, where step counts are tensors too
    start = time.perf_counter()
    found = trace(layout, workload)
    seconds = time.perf_counter() - start
    axes = dict.fromkeys(c.axis for c in (*formula, *found.collectives))
    return TracedLayout(
        layout=one.layout,
        seconds=seconds,
        equal=set(found.collectives) == set(formula),
        axes=tuple(_axis(axis, found.collectives, formula) for axis in axes),
        state_bytes=found.parameters_bytes + found.gradients_bytes + found.optimizer_bytes,
        formula_state_bytes=memory.parameters_bytes + memory.gradients_bytes + memory.optimizer_bytes,
        peak_bytes=found.peak.peak_bytes if found.peak else None,
        peak_moment=found.peak.text if found.peak else None,
        formula_peak_bytes=memory.peak_bytes,
        formula_peak_moment=memory.peak_moment,
    )


def _axis(axis: str, traced: Iterable[Collective], formula: Iterable[Collective]) -> TracedAxis:
    def on_axis(found: Iterable[Collective]) -> list[Collective]:
        return [c for c in found if c.axis == axis]

    ours, theirs = on_axis(traced), on_axis(formula)
    return TracedAxis(
        axis=axis,
        collectives=sum(c.count for c in ours),
        formula_collectives=sum(c.count for c in theirs),
        algorithm_bytes=sum(c.total_bytes for c in ours),
        formula_bytes=sum(c.total_bytes for c in theirs),
    )


def traced_text(found: Forecast) -> str:
    """Traces beside formulas, and what could not be traced."""
    blocks = [_tables(found.traced)] if found.traced else []
    blocks += [f"not traced: {one.reason}" for one in found.untraced]
    return "\n\n".join(blocks) or "not traced: no layout fits; name those to trace with --layouts"


def _tables(traced: Sequence[TracedLayout]) -> str:
    """A table of collectives, a row an axis, and one of memory, a row a layout."""
    collectives = [
        {
            "layout": one.layout,
            "axis": axis.axis,
            "traced": f"{axis.collectives:,}",
            "formula": f"{axis.formula_collectives:,}",
            "traced bytes": f"{axis.algorithm_bytes:,}",
            "formula bytes": f"{axis.formula_bytes:,}",
            "each collective": "equal" if one.equal else "DIFFERS",
            "took s": f"{one.seconds:.1f}",
        }
        for one in traced
        for axis in one.axes
    ]
    unit = bytes_unit(min(one.formula_peak_bytes, GIB) for one in traced)
    memory = [
        {
            "layout": one.layout,
            f"state traced {unit.name}": f"{one.state_bytes / unit.divisor:,.3f}",
            f"formula {unit.name}": f"{one.formula_state_bytes / unit.divisor:,.3f}",
            f"peak traced {unit.name}": "-" if one.peak_bytes is None else f"{one.peak_bytes / unit.divisor:,.3f}",
            f"peak by formula {unit.name}": f"{one.formula_peak_bytes / unit.divisor:,.3f}",
            "traced moment": one.peak_moment or "-",
            "moment by formula": one.formula_peak_moment,
        }
        for one in traced
    ]
    title = "collectives of a step, by the layout's own code on a fake process group:"
    blocks = [title, _table(collectives), "memory of the first rank, as on a CPU:", _table(memory)]
    if any(one.peak_bytes is None for one in traced):
        blocks.append("-: the moments of 3 and of 4 blocks differ in more than bytes, so that no peak follows for more")
    return "\n\n".join(blocks)


def _table(rows: Sequence[dict[str, str]]) -> str:
    return tabulate(rows, headers="keys", disable_numparse=True, stralign="right")
