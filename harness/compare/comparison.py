"""``compare``: a plan and its records to a Comparison. Pure; reads and writes nothing."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from statistics import median

from harness.accelerators import peak_flops
from harness.compare.checks import find_warnings
from harness.compare.collect import Cell, Collected, Round, collect
from harness.compare.ground import distinct_grounds, ground_differences
from harness.compare.history import History
from harness.compare.models import CellResult, CheckpointCost, Comparison, Estimate, MemoryPeak, RoundSamples
from harness.compare.outcome import Verdict, decide, find_gate_reference
from harness.compare.predicted import calibration_in, predicted_steps
from harness.compare.race import race_of, with_savings
from harness.compare.ranking import rank
from harness.compare.traffic import cell_traffic
from harness.compare.transport import group_transports
from harness.exposure import StepBreakdown, break_down, is_whole
from harness.layout import get_strategy
from harness.record import Ground, RunRecord
from harness.spec import Pruned, SweepPlan
from harness.startup import Startup
from harness.stats import Summary, summarize


def compare(plan: SweepPlan, records: Sequence[RunRecord]) -> Comparison:
    """Judge every candidate of the plan by its records and rank those that were measured.

    The last attempt of a run counts. A cell is measured if its verify run passed the equivalence gate and it has at
    least one timed round; only measured cells on one ground and the sweep's world size are ranked.
    """
    collected = collect(plan, records)
    reference = find_gate_reference(collected.cells, plan.settings.gate_steps)
    results = []
    for cell in collected.cells:
        to_time = cell.layout in plan.layouts and cell.world_size == plan.ranks.world_size
        results.append(_result(plan, cell, decide(cell, reference, to_time), collected))
    by_label = {cell.label: cell for cell in collected.cells}
    state = race_of(History(plan, records))
    race = with_savings(plan, state.verdict, collected.cells) if state else None
    ranked = rank([r for r in results if r.outcome == "measured" and r.unranked is None], by_label, race)
    placed = {r.label for r in ranked}
    rest = [r for r in results if r.label not in placed]
    cells = (*ranked, *rest, *(_pruned(p) for p in plan.pruned if p.layout.label not in by_label))
    label = reference.label if reference else None
    return Comparison(
        plan=plan,
        cells=cells,
        gate_reference=label,
        grounds=_grounds(collected),
        warnings=find_warnings(plan, collected, cells, label, state),
        race=race,
        samples=tuple(
            _samples(c.label, r, counts)
            for c in collected.cells
            for rounds, counts in ((c.rounds, True), (c.elsewhere, False))
            for r in rounds
        ),
        transports=group_transports(plan, collected.cells),
        predicted=predicted_steps(plan, calibration_in(records)),
    )


def _result(plan: SweepPlan, cell: Cell, verdict: Verdict, collected: Collected) -> CellResult:
    rounds = cell.rounds or cell.elsewhere
    step_time = summarize([r.times for r in rounds]) if rounds else None
    speed = _speed(plan, step_time) if step_time and verdict.outcome == "measured" else None
    return CellResult(
        layout=cell.layout,
        label=cell.label,
        world_size=cell.world_size,
        outcome=verdict.outcome,
        is_reference=cell.is_reference,
        reason=verdict.reason,
        failure=verdict.failure,
        gate=verdict.gate,
        designs=tuple(dict.fromkeys(r.timing.design for r in rounds)),
        step_time=step_time,
        tokens_per_s=speed,
        tokens_per_s_per_rank=_divide(speed, cell.world_size) if speed else None,
        mfu=_mfu(plan, cell, speed, rounds[0].record.ground) if speed else None,
        memory=_memory(cell.verify),
        checkpoint=_checkpoint(cell.verify),
        traffic=cell_traffic(plan, cell.verify),
        startup=_startup(cell),
        rank_memory=((cell.verify.memory and cell.verify.memory.ranks) or ()) if cell.verify else (),
        hosts=_hosts(cell.verify),
        breakdown=_breakdown(cell.verify),
        first_step_s=cell.verify.startup_s if cell.verify else None,
        unranked=_unranked(plan, cell, collected) if verdict.outcome == "measured" else None,
    )


def _unranked(plan: SweepPlan, cell: Cell, collected: Collected) -> str | None:
    """Why a measured cell is not ranked, None if it is."""
    if cell.world_size != plan.ranks.world_size:
        return f"runs on {_ranks(cell.world_size)}, the sweep on {_ranks(plan.ranks.world_size)}"
    if cell.rounds:
        return None
    if not cell.elsewhere:
        return "was verified only"
    differences = ground_differences(collected.ground, cell.elsewhere[0].record.ground)
    fields = ", ".join(f"{name} ({a} there, {b} here)" for name, (a, b) in differences.items())
    return f"was timed on other ground than the ranked layouts: {fields}"


def _ranks(count: int) -> str:
    return f"{count} rank" + "s" * (count != 1)


def _pruned(pruned: Pruned) -> CellResult:
    return CellResult(
        layout=pruned.layout,
        label=pruned.layout.label,
        world_size=pruned.layout.mesh.world_size,
        outcome="pruned",
        reason=pruned.reason,
        rule=pruned.rule,
    )


def _speed(plan: SweepPlan, step_time: Summary) -> Estimate:
    tokens = plan.workload.tokens_per_step
    return Estimate(value=tokens / step_time.median, low=tokens / step_time.high, high=tokens / step_time.low)


def _divide(estimate: Estimate, by: float) -> Estimate:
    return Estimate(value=estimate.value / by, low=estimate.low / by, high=estimate.high / by)


def _mfu(plan: SweepPlan, cell: Cell, speed: Estimate, ground: Ground | None) -> float | None:
    """Model FLOP/s over peak FLOP/s. fp32 layouts are held against fp32 without TF32, torch's default."""
    names = set(ground.device_names) if ground else set()
    if ground is None or ground.device == "cpu" or len(names) != 1:
        return None
    peak = peak_flops(names.pop(), cell.layout.options.precision)
    if peak is None:
        return None
    return plan.workload.model.flops_per_token(plan.workload.seq_len) * speed.value / (cell.world_size * peak)


def _memory(verify: RunRecord | None) -> MemoryPeak | None:
    memory = verify.memory if verify else None
    if memory is None or not memory.peak_bytes:
        return None
    return MemoryPeak(
        method=memory.method,
        peak_bytes=max(memory.peak_bytes),
        reserved_bytes=max(memory.peak_reserved_bytes or (), default=None),
        rss_bytes=max(memory.peak_rss_bytes or (), default=None),
    )


def _hosts(verify: RunRecord | None) -> tuple[str, ...]:
    """The host of each rank; numbered where the record names other than one a node."""
    if verify is None:
        return ()
    per_node = verify.spec.ranks.per_node
    names = verify.ground.hosts if verify.ground else ()
    if len(names) != len(per_node):
        names = tuple(f"node {node}" for node in range(len(per_node)))
    return tuple(name for name, count in zip(names, per_node, strict=True) for _ in range(count))


def _breakdown(verify: RunRecord | None) -> StepBreakdown | None:
    if verify is None or verify.exposure is None or not is_whole(verify.exposure):
        return None
    return break_down(verify.exposure, get_strategy(verify.spec.layout.strategy).axes)


def _checkpoint(verify: RunRecord | None) -> CheckpointCost | None:
    checkpoint = verify.checkpoint if verify else None
    if checkpoint is None:
        return None
    return CheckpointCost(parts=checkpoint.parts, **checkpoint.model_dump(exclude={"folder", "parts"}))


def _startup(cell: Cell) -> Startup | None:
    records = [r.record for r in (*cell.rounds, *cell.elsewhere)] or ([cell.verify] if cell.verify else [])
    known = [record.startup for record in records if record.startup is not None]
    if not known:
        return None
    ranks = [one.ranks_s for one in known if one.ranks_s is not None]
    timed = [one.first_timed_s for one in known if one.first_timed_s is not None]
    return Startup(ranks_s=median(ranks) if ranks else None, first_timed_s=median(timed) if timed else None)


def _grounds(collected: Collected) -> tuple[Ground, ...]:
    timed = chain.from_iterable((*c.rounds, *c.elsewhere) for c in collected.cells)
    grounds = distinct_grounds([collected.ground, *(r.record.ground for r in timed)])
    return grounds or distinct_grounds([c.verify.ground for c in collected.cells if c.verify])


def _samples(label: str, timed: Round, counts: bool) -> RoundSamples:
    return RoundSamples(
        cell=label,
        repeat=timed.record.spec.repeat,
        attempt=timed.record.attempt,
        launch_id=timed.record.launch_id,
        design=timed.timing.design,
        cycles=timed.timing.cycles,
        step_time_s=timed.timing.step_time_s,
        counts=counts,
    )
