"""What a sweep still has to do, from its plan and its records alone; so a resumed sweep is like a running one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

from harness.compare.collect import collect
from harness.compare.outcome import decide, find_gate_reference
from harness.failure import FailureClass
from harness.layout import Layout
from harness.record import RunRecord
from harness.spec import Design, Launch, RunSpec, SweepPlan

# Failures that say nothing about the layout.
RETRIED = frozenset({FailureClass.NODE_FAILURE, FailureClass.PREEMPTED, FailureClass.NETWORK, FailureClass.LOST})
# Ends of a whole job; a launch of several layouts is made again after one, for none of them is to blame.
ENDED_TOGETHER = RETRIED | {FailureClass.CANCELLED}
OUT_OF_MEMORY = frozenset({FailureClass.DEVICE_OOM, FailureClass.HOST_OOM})
DESIGNS: tuple[Design, ...] = ("alternated", "blocks", "launches")
MEMORY_SHARE = 0.7


class History(NamedTuple):
    """Records by run."""

    plan: SweepPlan
    records: Sequence[RunRecord]

    def of(self, run: RunSpec) -> list[RunRecord]:
        return [r for r in self.records if r.run_id == run.run_id]

    def measured(self, run: RunSpec) -> RunRecord | None:
        return next((r for r in self.of(run) if r.status == "measured"), None)

    def given_up(self, run: RunSpec) -> bool:
        """Whether the run failed in a way that another attempt would not change, or was tried often enough."""
        failures = [r.failure for r in self.of(run) if r.status == "failed" and r.failure]
        ended = sum(
            r.status == "interrupted" and r.failure is not None and r.failure.failure_class in ENDED_TOGETHER
            for r in self.of(run)
        )
        most = self.plan.settings.max_attempts
        return any(f.failure_class not in RETRIED for f in failures) or len(failures) + ended >= most

    def pending(self, run: RunSpec) -> bool:
        return self.measured(run) is None and not self.given_up(run)


def next_launches(plan: SweepPlan, records: Sequence[RunRecord], launched: int) -> tuple[Launch, ...]:
    """The launches of the next job, empty when the sweep is complete. ``launched`` numbers them on."""
    history = History(plan, records)
    verify = [
        run
        for layout in dict.fromkeys((plan.reference, *plan.layouts))
        if history.pending(run := plan.run(layout, "verify"))
    ]
    if verify:
        return tuple(
            Launch(
                launch_id=_launch_id(launched + i, run.layout.label, "verify"),
                runs=(run,),
                design="launches",
                contracts=(plan.contract_of(run.layout),),
            )
            for i, run in enumerate(verify, start=1)
        )
    return _timing_launches(history, launched)


def _timing_launches(history: History, launched: int) -> tuple[Launch, ...]:
    plan = history.plan
    layouts = rankable(plan, history.records)
    design = choose_design(plan, history.records, layouts)
    groups: list[tuple[int, tuple[RunSpec, ...]]] = []
    for repeat in range(plan.settings.rounds):
        runs = [plan.run(layout, "time", repeat) for layout in layouts]
        runs = [run for run in runs if history.pending(run)]
        pack = 1 if design == "launches" else _pack(plan, len(runs))
        groups += [(repeat, tuple(runs[at : at + pack])) for at in range(0, len(runs), pack)]
    return tuple(
        Launch(
            launch_id=_launch_id(launched + i, runs[0].layout.label if len(runs) == 1 else "", f"time-round{repeat}"),
            runs=runs,
            design=design,
            contracts=tuple(plan.contract_of(run.layout) for run in runs),
        )
        for i, (repeat, runs) in enumerate(groups, start=1)
    )


def _pack(plan: SweepPlan, runs: int) -> int:
    """How many of ``runs`` layouts are timed side by side in one launch."""
    return max(1, runs if plan.slurm is None or plan.slurm.pack is None else plan.slurm.pack)


def _launch_id(number: int, label: str, purpose: str) -> str:
    words = "".join(c if c.isalnum() else "-" for c in label).strip("-")
    return f"{number:03d}-{purpose}" + (f"-{words}" if words else "")


def rankable(plan: SweepPlan, records: Sequence[RunRecord]) -> list[Layout]:
    """The layouts that passed the gate and failed nowhere for good, in plan order."""
    collected = collect(plan, records)
    reference = find_gate_reference(collected.cells, plan.settings.gate_steps)
    history = History(plan, records)
    found = []
    for cell in collected.cells:
        lost = tuple(r for r in cell.lost if not history.pending(r.spec))
        verdict = decide(replace(cell, lost=lost), reference, to_time=False)
        if cell.layout in plan.layouts and verdict.outcome == "measured":
            found.append(cell.layout)
    return found


def choose_design(plan: SweepPlan, records: Sequence[RunRecord], layouts: Sequence[Layout]) -> Design:
    """Alternated where all models fit together, else blocks; one step down after each out-of-memory in company."""
    if plan.slurm is not None and plan.slurm.pack == 1:
        return "launches"
    if plan.design != "auto":
        return plan.design
    history = History(plan, records)
    start = 0 if _fit_together(history, layouts) else 1
    too_much = {
        r.launch_design
        for r in records
        if r.status == "interrupted" and r.failure and r.failure.failure_class in OUT_OF_MEMORY
    }
    return next(design for design in DESIGNS[start:] if design not in too_much or design == DESIGNS[-1])


def _fit_together(history: History, layouts: Sequence[Layout]) -> bool:
    need = 0
    capacity: int | None = None
    for layout in layouts:
        record = history.measured(history.plan.run(layout, "verify"))
        if record is None or record.memory is None or record.ground is None:
            continue
        peaks = record.memory.peak_reserved_bytes or record.memory.peak_bytes
        if history.plan.ranks.device == "cpu":
            need += sum(record.memory.peak_bytes)
            capacity = record.ground.memory_bytes
        else:
            need += max(peaks)
            capacity = record.ground.device_memory_bytes
    return capacity is None or need <= MEMORY_SHARE * capacity
