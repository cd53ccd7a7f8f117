"""Predicted step times and memory of all layouts as one picture."""

from __future__ import annotations

from typing import TYPE_CHECKING

from harness.forecast.models import Forecast, LayoutForecast
from harness.report.canvas import BLUE, GREY, GRID, INK, ORANGE, SKY, new_figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_SHOWN = 16
GIB = 2**30
_PARTS = ("compute", "optimizer", "exposed dp_shard and dp_replicate", "exposed tp")


def draw_forecast(found: Forecast) -> Figure:
    """Bars of step time by part, beside peak memory against what a device has, the best layouts on top."""
    rows = found.layouts[:_SHOWN]
    figure = new_figure(1.8 + 0.32 * len(rows))
    times, memory = figure.subplots(1, 2, sharey=True)
    _times(times, rows)
    _memory(memory, rows)
    times.set_yticks(range(len(rows)), [one.label for one in rows], fontsize=7, parse_math=False)
    times.invert_yaxis()
    work = found.workload
    title = f"Predicted: {work.model.name}, {found.nodes} x {found.gpus_per_node} {found.gpu}"
    figure.suptitle(title, x=0.01, ha="left", fontsize=12, parse_math=False)
    figure.legend(loc="outside lower left", ncols=4, frameon=False, fontsize=8)
    return figure


def _times(axes: Axes, rows: tuple[LayoutForecast, ...]) -> None:
    left = [0.0] * len(rows)
    for part, colour in zip(_PARTS, (BLUE, GREY, ORANGE, SKY), strict=True):
        widths = [_part(one, part) for one in rows]
        axes.barh(range(len(rows)), widths, left=left, color=colour, label=part)
        left = [a + b for a, b in zip(left, widths, strict=True)]
    for at, one in enumerate(rows):
        if one.step_time_range_s is not None:
            low, high = one.step_time_range_s
            step = one.time.step_time_s
            axes.errorbar(step, at, xerr=[[step - low], [high - step]], color=INK, linewidth=0.9, capsize=2)
    axes.set_xlabel("step time and its error band, s (less is better)")
    axes.grid(axis="x", color=GRID, linewidth=0.6)
    axes.set_axisbelow(True)


def _part(one: LayoutForecast, part: str) -> float:
    exposed = one.time.exposed_s
    tp = exposed.get("tp", 0.0)
    return {
        "compute": one.time.compute_s,
        "optimizer": one.time.optimizer_s,
        "exposed dp_shard and dp_replicate": sum(exposed.values()) - tp,
        "exposed tp": tp,
    }[part]


def _memory(axes: Axes, rows: tuple[LayoutForecast, ...]) -> None:
    peaks = [one.memory.peak_bytes / GIB for one in rows]
    colours = [GREY if one.fits is False else BLUE for one in rows]
    axes.barh(range(len(rows)), peaks, color=colours)
    for at, (one, peak) in enumerate(zip(rows, peaks, strict=True)):
        note = (
            {True: " close", False: ""}[one.close] if one.fits is not False else " does not fit" + ", close" * one.close
        )
        axes.text(peak, at, f" {peak:,.1f}{note}", va="center", fontsize=7, color=INK)
    axes.set_xlim(right=max(peaks, default=1.0) * 1.5)
    axes.set_xlabel("peak memory, GiB")
    axes.grid(axis="x", color=GRID, linewidth=0.6)
    axes.set_axisbelow(True)
