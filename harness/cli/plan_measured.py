"""``meshsweep plan --measured SWEEP [--nodes N]``: from a sweep on few nodes to many, or beside what it measured."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from tabulate import tabulate

from harness.cli.options import sweep_folder
from harness.errors import UsageError

if TYPE_CHECKING:
    from harness.compare import Comparison
    from harness.forecast.scale import Scaling
    from harness.predict.device import Device
    from harness.predict.network import Network


def scaling(
    results: Path, sweep: str, nodes: int, gpu: str | None, nic_gbit: float | None, calibration: Path | None
) -> Scaling:
    """Grow what a sweep measured.

    Raises:
        UsageError: the sweep measured no layout, or its nodes are unlike.
    """
    from harness.compare import compare
    from harness.forecast.scale import Measured, scale
    from harness.predict.software import TORCH
    from harness.store import SweepStore

    store = SweepStore.open(sweep_folder(results, sweep))
    plan = store.plan()
    cells = [cell for cell in compare(plan, store.records()).cells if cell.step_time is not None and cell.rank]
    if not cells:
        raise UsageError(f"sweep {plan.name} has no ranked layout; 'meshsweep resume {plan.name}' runs what is missing")
    per_node = set(plan.ranks.per_node)
    if len(per_node) > 1:
        raise UsageError(f"sweep {plan.name} ran on nodes with {sorted(per_node)} ranks; measure on alike nodes")
    measured = [
        Measured(
            layout=cell.layout,
            step_time_s=cell.step_time.median,
            low_s=cell.step_time.low,
            high_s=cell.step_time.high,
        )
        for cell in cells
        if cell.step_time is not None
    ]
    names = {device.name for node in plan.topology.nodes for device in node.devices if device.name}
    device, network = _machine(names, plan.ranks.device, gpu, nic_gbit, calibration)
    # on CPUs communication takes the cores that compute needs, so nothing is hidden
    software = TORCH.model_copy(update={"overlap_dp": 0.0}) if plan.ranks.device == "cpu" else TORCH
    return scale(measured, plan.workload, per_node.pop(), nodes, device, network, software)


def _machine(
    names: Iterable[str], kind: str, gpu: str | None, nic_gbit: float | None, calibration: Path | None
) -> tuple[Device, Network]:
    from harness.accelerators import accelerator
    from harness.forecast.calibrated import nic_of, read_groups
    from harness.predict.device import CPU, device_of, nominal_nic_gbit
    from harness.predict.network import CPU_LINK, ETHERNET, Network

    groups = read_groups(calibration) if calibration else ()
    given = None if nic_gbit is None else nic_gbit * 1e9 / 8
    if kind == "cpu":
        if gpu is not None:
            raise UsageError("the sweep ran on CPUs; leave out --gpu")
        # of compute only its change counts, and a rank's work stays the same: any rate will do
        nic = given or nic_of(groups) or ETHERNET
        return CPU, Network(link=CPU_LINK, nic=nic, groups=groups, source="host memory and Ethernet")
    entry = accelerator(gpu or next(iter(names), ""))
    nic = given or nic_of(groups) or nominal_nic_gbit(entry) * 1e9 / 8
    return device_of(entry), Network(link=entry.link_bandwidth, nic=nic, groups=groups, source=entry.source)


def predicted_comparison(results: Path, sweep: str, calibration: Path | None) -> Comparison:
    """The sweep's comparison with step times predicted from its own calibration, or from the given one.

    Raises:
        UsageError: there is no calibration, or it has none of the sweep's layouts.
    """
    from harness.compare import compare
    from harness.compare.predicted import predicted_steps
    from harness.forecast.calibrated import read_calibration
    from harness.store import SweepStore

    store = SweepStore.open(sweep_folder(results, sweep))
    plan = store.plan()
    found = compare(plan, store.records())
    if calibration is not None:
        found = found.model_copy(update={"predicted": predicted_steps(plan, read_calibration(calibration))})
    if not found.predicted:
        raise UsageError(
            f"no calibration has the compute of a layout of sweep {plan.name}; run it with --calibrate, give the file "
            "of 'meshsweep calibrate' on the same ranks and workload with --calibration, or grow it with --nodes"
        )
    return found


def predicted_text(comparison: Comparison) -> str:
    """Every measured layout's predicted memory and step beside what was measured, and the step's predicted parts."""
    from harness.report.predicted import predicted_part, steps_part

    parts = [part for part in (predicted_part(comparison), steps_part(comparison)) if part is not None]
    blocks = []
    for part in parts:
        align = ("left", *["right"] * (len(part.titles) - 1))
        blocks += [part.title, tabulate(part.rows, headers=part.titles, disable_numparse=True, colalign=align)]
        blocks.append("\n".join(part.notes))
    return "\n\n".join(blocks)


def scaling_text(found: Scaling) -> str:
    """Step times with intervals over node counts, and from where another layout wins."""
    first = found.at(found.measured_nodes)
    order = {one.layout: at for at, one in enumerate(first)}
    rows = []
    for at in range(len(order)):
        row = {"layout": first[at].layout}
        for count in found.nodes:
            one = [scaled for scaled in found.layouts if scaled.nodes == count][_place(found, first[at].layout)]
            row[f"{count} node{'s' * (count > 1)}"] = f"{one.step_time_s:.3g} [{one.low_s:.3g}, {one.high_s:.3g}]"
        rows.append(row)
    lines = [
        f"step time, s, with its interval: measured on {found.measured_nodes} node(s), predicted beyond, "
        "each rank keeping its samples",
        "",
        tabulate(rows, headers="keys", disable_numparse=True),
        "",
    ]
    for change in found.changes:
        how = "" if change.separated else ", though their intervals overlap"
        lines.append(f"from {change.nodes} nodes on {change.winner} is faster than {change.before}{how}")
    if not found.changes:
        lines.append(f"no other layout overtakes {first[0].layout} up to {found.nodes[-1]} nodes")
    lines += [f"left out: {label} has no data-parallel axis that could grow" for label in found.left_out]
    return "\n".join(lines)


def _place(found: Scaling, layout: str) -> int:
    """A layout's place in the measured order, which is the same at every node count."""
    return [one.layout for one in found.layouts if one.nodes == found.measured_nodes].index(layout)
