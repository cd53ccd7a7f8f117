"""Predicted beside measured, layout by layout: how far predictions can be trusted on this machine."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import median
from typing import TYPE_CHECKING

from harness.accelerators import find_accelerator
from harness.compare import CellResult, Comparison
from harness.compare.predicted import ordered
from harness.compare.wording import signed
from harness.layout import AXES
from harness.predict.device import device_of, nominal_nic_gbit
from harness.predict.job import job_of
from harness.predict.memory import predict_memory
from harness.predict.network import Network
from harness.predict.software import TORCH
from harness.predict.time import predict_time
from harness.report.canvas import BLUE, INK, ORANGE, heading
from harness.report.checkpoints import Part
from harness.report.rows import cell_rows, finished, write_values
from harness.report.tables import MISSING, shown_cells
from harness.report.units import bytes_unit, number, time_unit

if TYPE_CHECKING:
    from matplotlib.figure import Figure

TITLES = ("layout", "peak predicted", "peak measured", "error")
TIME_TITLES = ("step predicted", "step measured", "error")


def predicted_part(comparison: Comparison) -> Part | None:
    """The table; None without a measured figure, or where the model is the user's own, which no formula knows."""
    cells = [cell for cell in shown_cells(comparison) if cell.memory is not None]
    if not cells or comparison.plan.workload.model_path is not None:
        return None
    peaks = {cell.label: peak_bytes(comparison, cell) for cell in cells}
    steps = {cell.label: step_time_s(comparison, cell) for cell in cells}
    timed = any(step is not None for step in steps.values())
    unit = bytes_unit(cell.memory.peak_bytes for cell in cells if cell.memory)
    seconds = time_unit(cell.step_time.median for cell in cells if cell.step_time)
    rows, errors = [], []
    for cell in cells:
        assert cell.memory is not None
        predicted, measured = peaks[cell.label], cell.memory.peak_bytes
        errors.append(predicted / measured - 1)
        row = [
            cell.label,
            number(predicted / unit.divisor),
            number(measured / unit.divisor),
            f"{signed(100 * (predicted / measured - 1))}%",
        ]
        if timed:
            row += _step_row(steps[cell.label], cell, seconds.divisor)
        rows.append(tuple(row))
    titles = (*TITLES, *(TIME_TITLES if timed else ()))
    notes = [
        f"peaks in {unit.name}" + (f", steps in {seconds.name}" if timed else ""),
        f"peak memory: median absolute error {median(map(abs, errors)):.1%}, largest {max(map(abs, errors)):.1%}",
    ]
    if timed:
        notes += step_notes(comparison, steps)
    return Part("Predicted beside measured", titles, tuple(rows), tuple(notes))


def steps_part(comparison: Comparison) -> Part | None:
    """What the steps predicted from a calibration are made of; None without one."""
    if not comparison.predicted:
        return None
    unit = time_unit(one.time.step_time_s for one in comparison.predicted)
    rows = []
    for one in comparison.predicted:
        time = one.time
        hidden = time.hidden_s
        figures = (time.compute_s, time.optimizer_s, *(time.exposed_s.get(axis) for axis in AXES), hidden)
        shown = [MISSING if figure is None else number(figure / unit.divisor) for figure in figures]
        rows.append((one.label, number(time.step_time_s / unit.divisor), *shown))
    titles = ("layout", "step predicted", "compute", "optimizer", *(f"exposed {axis}" for axis in AXES), "hidden")
    return Part("Predicted step in parts", titles, tuple(rows), (f"in {unit.name}",))


def peak_bytes(comparison: Comparison, cell: CellResult) -> int:
    """The predicted peak of a cell's fullest rank."""
    kernels = "cpu" if comparison.plan.ranks.device == "cpu" else "cuda"
    return predict_memory(cell.layout, comparison.plan.workload, kernels=kernels).peak_bytes  # type: ignore[arg-type]


def step_time_s(comparison: Comparison, cell: CellResult) -> float | None:
    """The step time predicted from the sweep's own calibration, else from the accelerator's data and nominal links.

    None where it is not calibrated and the accelerator is not in the catalogue, as CPUs are not.
    """
    if comparison.predicted:
        return next((one.time.step_time_s for one in comparison.predicted if one.label == cell.label), None)
    names = {name for ground in comparison.grounds[:1] for name in ground.device_names}
    entry = find_accelerator(names.pop()) if len(names) == 1 else None
    if entry is None:
        return None
    network = Network(link=entry.link_bandwidth, nic=nominal_nic_gbit(entry) * 1e9 / 8, source=entry.source)
    job = job_of(cell.layout, comparison.plan.workload, max(comparison.plan.ranks.per_node))
    return predict_time(job, device_of(entry), network, TORCH).step_time_s


def step_notes(comparison: Comparison, steps: Mapping[str, float | None]) -> list[str]:
    """What predicted step times rest on, how far they are off, and whether layouts come in the measured order."""
    predicted = {label: step for label, step in steps.items() if step is not None}
    measured = {c.label: c.step_time for c in comparison.cells if c.step_time is not None and c.label in predicted}
    if comparison.predicted:
        source = "measured: compute without communication and links, by the sweep's calibration"
    else:
        source = "nominal: the accelerator's data and links"
    notes = [f"step times from what is {source}; see docs/prediction.md"]
    if measured:
        errors = [abs(predicted[label] / step.median - 1) for label, step in measured.items()]
        notes.append(f"step time: median absolute error {median(errors):.1%}, largest {max(errors):.1%}")
    pairs = ordered(measured, predicted)
    if count := pairs.right + len(pairs.wrong):
        wrong = "; wrong: " + ", ".join(f"{fast} before {slow}" for fast, slow in pairs.wrong) if pairs.wrong else ""
        notes.append(f"order of pairs whose measured intervals do not overlap: {pairs.right} of {count} right{wrong}")
    return notes


def _step_row(predicted: float | None, cell: CellResult, divisor: float) -> Sequence[str]:
    if predicted is None or cell.step_time is None:
        return (MISSING, MISSING, MISSING)
    measured = cell.step_time.median
    return (number(predicted / divisor), number(measured / divisor), f"{signed(100 * (predicted / measured - 1), 0)}%")


def draw_predicted(comparison: Comparison) -> Figure | None:
    """Measured peak memory as bars, the prediction as a mark on each."""
    part = predicted_part(comparison)
    if part is None:
        return None
    cells = [cell for cell in shown_cells(comparison) if cell.memory is not None]
    unit = bytes_unit(cell.memory.peak_bytes for cell in cells if cell.memory)
    measured = [cell.memory.peak_bytes / unit.divisor for cell in cells if cell.memory]
    predicted = [peak_bytes(comparison, cell) / unit.divisor for cell in cells]
    figure, (axes,) = cell_rows(cells)
    axes.barh(range(len(cells)), measured, height=0.5, color=BLUE, label="measured")
    axes.scatter(predicted, range(len(cells)), marker="D", color=ORANGE, edgecolor=INK, zorder=3, label="predicted")
    ends = {
        at: (max(m, p), f"{signed(100 * (p / m - 1))}%")
        for at, (m, p) in enumerate(zip(measured, predicted, strict=True))
    }
    write_values(axes, ends, gap=8.0)  # a mark stands on the end
    axes.set_xlabel(f"peak memory of the fullest rank, {unit.name}")
    return finished(figure, axes, heading(comparison, "Predicted beside measured"))
