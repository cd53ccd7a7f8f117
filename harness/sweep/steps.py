"""What a sweep still has to do, from its plan and its records alone; so a resumed sweep is like a running one."""

from __future__ import annotations

from collections.abc import Sequence

from harness.compare.history import History
from harness.compare.race import race_of
from harness.failure import OUT_OF_MEMORY
from harness.layout import Layout
from harness.record import RunRecord
from harness.spec import Design, Launch, RunSpec, SweepPlan

DESIGNS: tuple[Design, ...] = ("alternated", "blocks", "launches")
MEMORY_SHARE = 0.7


def next_launches(plan: SweepPlan, records: Sequence[RunRecord], launched: int) -> tuple[Launch, ...]:
    """The launches of the next job, empty when the sweep is complete. ``launched`` numbers them on."""
    history = History(plan, records)
    if plan.calibrate != "never" and (calibrate := _calibration_launch(history, launched)):
        return (calibrate,)
    if plan.calibrate == "only":
        return ()
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
                debug_comms=plan.debug_comms,
            )
            for i, run in enumerate(verify, start=1)
        )
    return _timing_launches(history, launched)


def _calibration_launch(history: History, launched: int) -> Launch | None:
    plan = history.plan
    run = plan.run(plan.layouts[0], "calibrate")
    if not history.pending(run):
        return None
    return Launch(
        launch_id=_launch_id(launched + 1, "", "calibrate"),
        runs=(run,),
        design="launches",
        contracts=(plan.contract_of(run.layout),),
        layouts=tuple(layout for layout in plan.layouts if layout.mesh.world_size == plan.ranks.world_size),
    )


def _timing_launches(history: History, launched: int) -> tuple[Launch, ...]:
    plan = history.plan
    layouts = rankable(plan, history.records)
    design = choose_design(plan, history.records, layouts)
    groups: list[tuple[int, tuple[RunSpec, ...]]] = []
    for repeat, runs in _rounds_to_run(history, layouts):
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


def _rounds_to_run(history: History, layouts: Sequence[Layout]) -> list[tuple[int, list[RunSpec]]]:
    """What is missing of each round; of a race only what its next look waits for."""
    plan, race = history.plan, race_of(history)
    found = []
    for repeat in range(plan.most_rounds):
        runs = [plan.run(layout, "time", repeat) for layout in layouts]
        if race is None:
            found.append((repeat, [run for run in runs if history.pending(run)]))
        else:
            found.append((repeat, [run for run in runs if (repeat, run.layout.label) in race.waiting]))
    return found


def _pack(plan: SweepPlan, runs: int) -> int:
    """How many of ``runs`` layouts are timed side by side in one launch."""
    return max(1, runs if plan.slurm is None or plan.slurm.pack is None else plan.slurm.pack)


def _launch_id(number: int, label: str, purpose: str) -> str:
    words = "".join(c if c.isalnum() else "-" for c in label).strip("-")
    return f"{number:03d}-{purpose}" + (f"-{words}" if words else "")


def rankable(plan: SweepPlan, records: Sequence[RunRecord]) -> list[Layout]:
    """The layouts that passed the gate and failed nowhere for good, in plan order."""
    return [cell.layout for cell in History(plan, records).rankable()]


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
