"""Warnings: what weakens the figures, each with its cause and remedy; one warning a kind, naming its cells."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from harness.compare.collect import Cell, Collected
from harness.compare.ground import ground_differences
from harness.compare.models import CellResult, MeasurementWarning
from harness.compare.race import RaceState
from harness.compare.steps import STEP_CHECKS
from harness.compare.transport import surprises, used_transports
from harness.compare.wording import counted, listed
from harness.predict.proof import TOLERANCE
from harness.record import Ground
from harness.spec import SweepPlan

FREE_CPUS = 0.5  # background load, as a share of the CPUs, that is let pass

Warnings = Iterator[MeasurementWarning]


def find_warnings(
    plan: SweepPlan,
    collected: Collected,
    results: Sequence[CellResult],
    gate_reference: str | None,
    race: RaceState | None = None,
) -> tuple[MeasurementWarning, ...]:
    """All warnings about a comparison, those that touch its validity first."""
    cells = collected.cells
    return tuple(
        warning
        for found in (
            _reference(plan, results, gate_reference),
            _checkpoints(results),
            _wire(results),
            _grounds(plan, collected),
            _hosts(cells),
            _rounds(plan, results, {c.label for c in cells if c.elsewhere}, race),
            _lost(cells),
            _interrupted(cells),
            _transports(plan, cells),
            _designs(results),
            _unpaired(plan, results),
            _contradictions(results),
            _steps(cells),
            _load(plan, cells),
            _left_over(collected),
        )
        for warning in found
    )


def _warn(kind: str, cells: Sequence[str], cause: str, remedy: str) -> MeasurementWarning:
    return MeasurementWarning(kind=kind, cells=tuple(cells), cause=cause, remedy=remedy)


def _reference(plan: SweepPlan, results: Sequence[CellResult], gate_reference: str | None) -> Warnings:
    wanted = plan.reference.label
    if gate_reference == wanted or not any(r.gate for r in results):
        return
    cause = f"the reference {wanted} gave no losses, so the layouts were checked against {gate_reference}"
    yield _warn("reference", (wanted,), cause, "a fault that both share would pass; mend the reference and resume")


def _checkpoints(results: Sequence[CellResult]) -> Warnings:
    unequal = [r.label for r in results if r.checkpoint and not r.checkpoint.equal]
    if unequal:
        cause = f"the restored checkpoint of {listed(unequal)} is not equal to the saved state"
        yield _warn("checkpoint", unequal, cause, "do not rely on checkpoints of that layout with these versions")


def _wire(results: Sequence[CellResult]) -> Warnings:
    proofs = {r.label: r.traffic.proof for r in results if r.traffic and r.traffic.proof}
    wrong = {label: proof.ratio for label, proof in proofs.items() if not proof.holds}
    if wrong:
        shown = ", ".join(f"{label} {ratio:.3f}" for label, ratio in wrong.items())
        cause = (
            f"network counters and accounted bytes between nodes differ by more than {100 * TOLERANCE:.0f}%: {shown}"
        )
        remedy = "something else used the network meanwhile, or the backend uses other algorithms than those assumed"
        yield _warn("wire", list(wrong), cause, f"{remedy}: do not rely on the cross-node share before that is known")


def _grounds(plan: SweepPlan, collected: Collected) -> Warnings:
    cells = [c for c in collected.cells if c.world_size == plan.ranks.world_size]
    yield from _other_ground(
        "ground",
        [(c.label, r.record.ground) for c in cells for r in c.elsewhere],
        collected.ground,
        "timed",
        "these rounds are left out of the ranking: time all layouts on one ground",
    )
    yield from _other_ground(
        "verify_ground",
        [(c.label, c.verify.ground) for c in cells if c.verify and c.rounds],
        collected.ground,
        "verified",
        "their memory and checkpoint figures are of that ground: start a sweep on the ranked one for figures of it",
    )


def _other_ground(
    kind: str, found: Sequence[tuple[str, Ground | None]], ranked: Ground | None, done: str, remedy: str
) -> Warnings:
    differences = [(label, ground_differences(ranked, ground)) for label, ground in found]
    labels = list(dict.fromkeys(label for label, fields in differences if fields))
    if labels:
        fields = {name: values for _, fields in differences for name, values in fields.items()}
        shown = ", ".join(
            f"{name} ({here} in the ranked rounds, {there} there)" for name, (here, there) in fields.items()
        )
        yield _warn(kind, labels, f"{listed(labels)} {done} on other ground, which differs in {shown}", remedy)


def _hosts(cells: Sequence[Cell]) -> Warnings:
    hosts = {c.label: {r.record.ground.hosts for r in c.rounds if r.record.ground} for c in cells if c.rounds}
    if len({frozenset(h) for h in hosts.values()}) > 1:
        cause = "not all layouts were timed on the same hosts"
        remedy = "their ratios hold the difference between hosts; time all on the same hosts"
        yield _warn("hosts", list(hosts), cause, remedy)


def _rounds(plan: SweepPlan, results: Sequence[CellResult], elsewhere: set[str], race: RaceState | None) -> Warnings:
    counts = {r.label: r.step_time.rounds for r in results if r.rank is not None and r.step_time}
    single = [label for label, count in counts.items() if count == 1]
    if single:
        so = ", so their order is not decided" if len(counts) > 1 else ""
        remedy = f"how rounds differ is unknown{so}; run at least 3 (--rounds 3)"
        yield _warn("one_round", single, f"{listed(single)} ranked by one round only", remedy)
    if race is not None:
        waiting = list(dict.fromkeys(label for _, label in race.waiting if label in counts))
        if waiting:
            cause = f"the race of {listed(waiting)} is not over"
            yield _warn("missing_rounds", waiting, cause, "'meshsweep resume' goes on with it")
        return
    wanted = plan.settings.rounds
    # rounds on other ground are not missing: a warning of their own says why they do not count
    short = [label for label, count in counts.items() if count < wanted and label not in elsewhere]
    if short:
        cause = f"{listed(short)} timed in fewer than {counted(wanted, 'round')}"
        yield _warn("missing_rounds", short, cause, "'meshsweep resume' runs the missing rounds")


def _lost(cells: Sequence[Cell]) -> Warnings:
    for cell in cells:
        failures = [r.failure.failure_class for r in cell.lost if r.status == "failed" and r.failure]
        if failures and (cell.rounds or cell.elsewhere):
            classes = ", ".join(dict.fromkeys(failures))
            cause = f"{counted(len(failures), 'timed round')} of {cell.label} failed ({classes})"
            yield _warn("lost_rounds", (cell.label,), cause, "read their logs, mend the cause and start a new sweep")


def _interrupted(cells: Sequence[Cell]) -> Warnings:
    used = {c.label: [r.record for r in (*c.rounds, *c.elsewhere)] + ([c.verify] if c.verify else []) for c in cells}
    labels = [label for label, records in used.items() if any(one.status == "interrupted" for one in records)]
    if labels:
        cause = f"runs of {listed(labels)} were interrupted, and what they had measured by then is used"
        torn = {rank for label in labels for one in used[label] for rank in one.torn_ranks}
        if torn:
            ranks = listed([f"rank {rank}" for rank in sorted(torn)])
            cause += f", without the sample that {ranks} had half written"
        yield _warn("interrupted", labels, cause, "'meshsweep resume' runs them in full")


def _transports(plan: SweepPlan, cells: Sequence[Cell]) -> Warnings:
    for used, cause in surprises(used_transports(plan, cells)):
        see = f"; see {used.log}" if used.log else ""
        remedy = "its figures are those of that path; look at NCCL_P2P_DISABLE, NCCL_IB_DISABLE, NCCL_IB_HCA, drivers"
        yield _warn("transport", (used.label,), cause, remedy + see)


def _designs(results: Sequence[CellResult]) -> Warnings:
    ranked = [r for r in results if r.rank is not None]
    designs = sorted({design for r in ranked for design in r.designs})
    if len(designs) > 1:
        cause = f"layouts were timed in different designs ({', '.join(designs)})"
        remedy = "ratios across designs are less certain; choose one with --design"
        yield _warn("designs", [r.label for r in ranked if len(r.designs) > 1], cause, remedy)


def _unpaired(plan: SweepPlan, results: Sequence[CellResult]) -> Warnings:
    apart = [r.label for r in results if r.ratio_to_best and not r.ratio_to_best.paired]
    if apart:
        cause = f"not timed side by side with the fastest layout: {listed(apart)}"
        remedy = "launches differ by more than steps do; use --design alternated, or more rounds (--rounds)"
        if plan.slurm is not None and plan.slurm.pack is not None:
            cause = f"not timed in one job with the fastest layout, so their intervals are wider: {listed(apart)}"
            remedy = (
                "jobs land on other nodes and differ by more than many layouts do; time more layouts in one job "
                "(a larger --pack, or none), or more rounds (--rounds)"
            )
        yield _warn("unpaired", apart, cause, remedy)


def _contradictions(results: Sequence[CellResult]) -> Warnings:
    labels = [r.label for r in results if r.ratio_to_best and r.ratio_to_best.separated and r.ratio_to_best.low > 1]
    if labels:
        cause = f"side by side, {listed(labels)} did better than the layout with the highest tokens/s"
        remedy = "they were not timed in the same rounds and count as ties; complete the rounds with 'meshsweep resume'"
        yield _warn("contradiction", labels, cause, remedy)


def _steps(cells: Sequence[Cell]) -> Warnings:
    for check in STEP_CHECKS:
        labels = [c.label for c in cells if check.applies(c)]
        if labels:
            yield _warn(check.kind, labels, check.cause.format(listed(labels)), check.remedy)


def _load(plan: SweepPlan, cells: Sequence[Cell]) -> Warnings:
    loaded: dict[str, tuple[float, int]] = {}
    for cell in cells:
        for ground in (r.record.ground for r in cell.rounds):
            if ground is None or ground.load_average is None or not ground.cpu_count:
                continue
            # the average covers the ranks of this launch or of the one before
            own = max(plan.ranks.per_node) * (ground.threads_per_rank or 1)
            if ground.load_average - own > FREE_CPUS * ground.cpu_count:
                loaded[cell.label] = max(loaded.get(cell.label, (0.0, own)), (ground.load_average, own))
    if loaded:
        most, own = max(loaded.values())
        cause = f"other work ran on the machine: load average up to {most:.1f}, of which the ranks explain {own}"
        yield _warn("load", list(loaded), cause, "end it, or measure again later")


def _left_over(collected: Collected) -> Warnings:
    if collected.foreign:
        cause = f"{counted(collected.foreign, 'run')} of no layout of this plan left unused"
        yield _warn("foreign", (), cause, "look whether records of another sweep lie in this folder")
