"""Console tables of plans, candidates, topologies and progress."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tabulate import tabulate

from harness.calibration import CALIBRATED, Calibration, bus_factor
from harness.cli.found import found_lines
from harness.compare.history import History
from harness.compare.race import race_of
from harness.compute_profile import ComputeProfile
from harness.execute.jobs import Running, running_jobs
from harness.launch.folder import has_ended, read_launch
from harness.launch.progress import read
from harness.layout import AXES
from harness.layout.candidates import Candidates
from harness.record import RunRecord
from harness.spec import Launch, SweepPlan
from harness.store import SweepStore
from harness.sweep.steps import next_launches, rankable
from harness.topology.model import LinkSpeed
from harness.topology.speed import speed_lines

_FOLDED = 6
USES = 3


def placements_text(found: Candidates) -> str:
    """Legal layouts with where each lies, then excluded ones by rule, then notes."""
    rows = [
        {
            "layout": layout.text,
            **dict(zip(AXES, layout.mesh.sizes, strict=True)),
            "node-aligned": "yes" if placement.node_aligned else "no",
            "placement": placement.remark,
        }
        for layout, placement in zip(found.layouts, found.placements, strict=True)
    ]
    lines = [tabulate(rows, headers="keys")]
    by_rule: dict[str, list[str]] = {}
    for one in found.excluded:
        by_rule.setdefault(one.rule, []).append(f"  {one.layout.text}: {one.reason}")
    for rule, reasons in by_rule.items():
        lines += ["", f"excluded by {rule}:", *reasons[:_FOLDED]]
        if len(reasons) > _FOLDED:
            lines.append(f"  and {len(reasons) - _FOLDED} more; --json shows all")
    lines += ["", *(f"note: {note}" for note in found.notes)] if found.notes else []
    return "\n".join(lines)


def placements_json(found: Candidates) -> dict[str, Any]:
    """Layouts with their placement, exclusions, notes."""
    return {
        "layouts": [
            {**layout.model_dump(mode="json"), "text": layout.text, "placement": placement.model_dump(mode="json")}
            for layout, placement in zip(found.layouts, found.placements, strict=True)
        ],
        "excluded": [
            {"layout": e.layout.model_dump(mode="json"), "rule": e.rule, "reason": e.reason} for e in found.excluded
        ],
        "notes": list(found.notes),
    }


def plan_text(plan: SweepPlan) -> str:
    """What a sweep would run."""
    first = next_launches(plan, [], 0)
    rows = [
        {
            "layout": layout.text,
            "verify": "1 launch of its own",
            "timing": _timing_text(plan),
        }
        for layout in plan.layouts
    ]
    lines = [
        f"sweep {plan.name}: model {plan.workload.model.name}, batch {plan.workload.global_batch} x "
        f"{plan.workload.seq_len} tokens, {plan.ranks.world_size} {plan.ranks.device} ranks, design {plan.design}",
        f"reference: {plan.reference.label}; {len(first)} verify launches, then {_rounds_text(plan)}",
        "",
        tabulate(rows, headers="keys"),
    ]
    lines += [f"pruned: {p.layout.text} [{p.rule}] {p.reason}" for p in plan.pruned]
    lines += [f"measured {line}" for line in speed_lines(plan.topology.measured)]
    return "\n".join(lines)


def _timing_text(plan: SweepPlan) -> str:
    if plan.race is None:
        return f"{plan.settings.rounds} rounds x {plan.settings.timed_steps} steps"
    race = plan.race
    return f"{race.opening_rounds} rounds x {race.opening_steps} steps, then it races"


def _rounds_text(plan: SweepPlan) -> str:
    if plan.race is None:
        return f"{plan.settings.rounds} timing rounds"
    race = plan.race
    return (
        f"{race.opening_rounds} to {race.most_rounds} timing rounds, in which plainly slower layouts stop early "
        f"({race.error:g} chance of error; --exhaustive times all in {plan.settings.rounds})"
    )


def topology_text(form: Mapping[str, Any]) -> str:
    """Nodes with devices, islands, the suggested mesh and what else was found; warnings."""
    rows = [
        {
            "host": node["host"],
            "device": device["index"],
            "name": device["name"] or "-",
            "NUMA node": "-" if device["numa_node"] is None else device["numa_node"],
            "PCI bus": device["pci_bus"] or "-",
        }
        for node in form.get("nodes", ())
        for device in node.get("devices", ())
    ]
    lines = [tabulate(rows, headers="keys", disable_numparse=True)] if rows else []
    counts: dict[str, int] = {}
    for link in form.get("links", ()):
        name = link["link_class"] + (f" x{link['nvlink_count']}" if link.get("nvlink_count") else "")
        counts[name] = counts.get(name, 0) + 1
    if counts:
        lines.append("links: " + ", ".join(f"{n} pair{'s' * (n != 1)} {name}" for name, n in counts.items()))
    speeds = [LinkSpeed.model_validate(one) for one in form.get("measured", ())]
    lines += [f"measured {line}" for line in speed_lines(speeds)]
    if form.get("islands"):
        lines.append("islands: " + "  ".join("{" + ",".join(map(str, i)) + "}" for i in form["islands"]))
    if form.get("suggested_mesh"):
        why = f" ({form['mesh_reason']})" if form.get("mesh_reason") else ""
        lines.append("suggested mesh: " + " x ".join(map(str, form["suggested_mesh"])) + why)
    lines += found_lines(form)
    if not rows:
        lines.append("names no devices; add a listing such as `nvidia-smi topo -m` for links and a mesh")
    lines += [f"warning: {warning}" for warning in form.get("warnings", ())]
    return "\n".join(lines)


def status_rows(plan: SweepPlan, records: Sequence[RunRecord]) -> list[dict[str, Any]]:
    """A row a cell: what is done of it."""
    history = History(plan, records)
    passed = set(rankable(plan, records))
    race = race_of(history)
    rows = []
    for layout in plan.layouts:
        verify = history.measured(plan.run(layout, "verify"))
        rounds = sum(history.measured(plan.run(layout, "time", r)) is not None for r in range(plan.most_rounds))
        stopped = race.verdict.stop_of(layout.label) if race else None
        waits = race is not None and any(label == layout.label for _, label in race.waiting)
        timed = not waits if race is not None else rounds == plan.settings.rounds
        failures = [
            r
            for r in records
            if r.spec.layout == layout and r.status == "failed" and r.failure and r.spec.purpose != "calibrate"
        ]
        if failures and (verify is None or not timed or layout not in passed):
            state = f"failed: {failures[-1].failure.failure_class}"  # type: ignore[union-attr]
        elif verify is None:
            state = "to verify"
        elif layout not in passed:
            state = "diverged"
        elif stopped is not None:
            state = "stopped early"
        else:
            state = "measured" if timed else "to time"
        row = {"layout": layout.label, "state": state, "verified": verify is not None, "rounds": rounds}
        rows.append({**row, "why": stopped.text} if stopped else row)
    return rows


def status_text(plan: SweepPlan, records: Sequence[RunRecord], folder: Path) -> str:
    """The rows as a table, under the sweep's name."""
    cells = status_rows(plan, records)
    rows = [
        {
            "layout": row["layout"],
            "state": row["state"],
            "verified": "yes" if row["verified"] else "no",
            "rounds": f"{row['rounds']}/{plan.most_rounds}",
        }
        for row in cells
    ]
    table = f"{folder}\n\n{tabulate(rows, headers='keys')}\n\n"
    table += "".join(f"{row['layout']}: {row['why']}\n" for row in cells if "why" in row)
    store = SweepStore(folder)
    running = "\n".join(
        f"running: job {job.job_id} {job.state}, {_under_way(folder, job)}" for job in running_jobs(store, plan)
    )
    if running:
        return table + running
    left = next_launches(plan, records, 0)
    if not left:
        return table + "complete"
    who = "a meshsweep command is at it" if store.driven else f"'meshsweep resume {plan.name}' runs them"
    return table + f"{left_text(plan, left)}; {who}"


def left_text(plan: SweepPlan, launches: Sequence[Launch]) -> str:
    """How many launches come next, and that others follow where they do."""
    count = f"{len(launches)} launch{'es' if len(launches) > 1 else ''} to go"
    if launches[0].runs[0].purpose != "time":
        return f"{count} before the first round"
    return f"{count} before the race's next look" if plan.race else count


def _under_way(folder: Path, job: Running) -> str:
    """What a job is at: the launch that has begun and has no outcome yet."""
    for name in job.launches:
        launch_folder = folder / "launches" / name
        launch = read_launch(launch_folder)
        positions = read(launch_folder, launch.ranks.per_node)
        if positions and not has_ended(launch_folder, launch):
            return f"launch {name}, phase {max(positions).phase}"
    return f"launch {job.launches[0]}" if len(job.launches) == 1 else f"{len(job.launches)} launches"


def calibration_text(calibration: Calibration) -> str:
    """A row for each operation in each set of groups, of the group that is slowest with large messages."""
    rows = []
    for axis in calibration.axes:
        uses = "; ".join(f"{layout} {name}" for layout, name in axis.uses[:USES])
        uses += f" and {len(axis.uses) - USES} more" if len(axis.uses) > USES else ""
        where = "1 host" if axis.hosts == 1 else f"{axis.hosts} hosts"
        for operation in CALIBRATED:
            found = axis.slowest(operation, 1 << 30)
            if found is None:
                continue
            speed = found.bandwidth_bytes_per_s
            factor = bus_factor(operation, axis.group_size)
            rows.append(
                (
                    f"{len(axis.groups)} x {axis.group_size} on {where}",
                    operation,
                    f"{1e6 * found.latency_s:,.0f}",
                    "-" if speed is None else f"{speed / 1e6:,.1f}",
                    "-" if speed is None else f"{factor * speed / 1e6:,.1f}",
                    f"{100 * found.max_relative_error:.0f}",
                    f"{found.samples[-1].size_bytes / 1024:,.0f}",
                    uses,
                )
            )
    headers = ("groups", "operation", "latency us", "MB/s", "bus MB/s", "off by %", "up to KiB", "axis of")
    table = tabulate(rows, headers=headers, disable_numparse=True, colalign=("left", "left", *["right"] * 5, "left"))
    return (
        f"{table}\n\ntime = latency + size / bandwidth, of the slowest group; bus MB/s as in nccl-tests; off by: the "
        "worst size's distance from that line"
    )


def compute_text(profiles: Sequence[ComputeProfile]) -> str:
    """A row for each layout's step without communication, and one for that in which ranks wait for each other."""
    rows = [
        (
            one.layout.label,
            "wait" if one.waits else "run on",
            *(f"{1e3 * seconds:,.2f}" for seconds in (*one.parts, one.parts.step)),
        )
        for one in profiles
    ]
    headers = ("layout", "ranks", "forward ms", "backward ms", "optimizer ms", "step ms")
    table = tabulate(rows, headers=headers, disable_numparse=True, colalign=("left", "left", *["right"] * 4))
    told = "compute without communication, all ranks busy at once; the slowest rank's step, median over steps"
    if any(one.waits for one in profiles):
        told += "\nwait: where a collective was, ranks wait for each other by an all-reduce of one number"
    return f"{table}\n\n{told}"
