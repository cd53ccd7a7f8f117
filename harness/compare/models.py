"""What a comparison says: one CellResult a candidate, and what must be known to read them."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from harness.base import Frozen
from harness.checkpoint.measured import CheckpointParts
from harness.checkpoint.study import CheckpointStudy
from harness.compare.predicted import PredictedStep
from harness.compare.race_verdict import RaceVerdict, Stopped
from harness.compare.traffic import CellTraffic
from harness.exposure import StepBreakdown
from harness.gate import GateVerdict
from harness.layout import Layout
from harness.memory_kinds import RankMemory
from harness.record import Failure, Ground
from harness.spec import Design, SweepPlan
from harness.startup import Startup
from harness.stats import Ratio, Summary

Outcome = Literal["measured", "pruned", "failed", "diverged", "not_run"]
OUTCOMES: tuple[Outcome, ...] = ("measured", "diverged", "failed", "not_run", "pruned")


class Estimate(Frozen):
    """A value with its 95% interval."""

    value: float
    low: float
    high: float


class MemoryPeak(Frozen):
    """Peaks of one step, bytes, each the largest over ranks. ``reserved_bytes`` is None on CPUs."""

    method: str
    peak_bytes: int
    reserved_bytes: int | None = None
    rss_bytes: int | None = None


class CheckpointCost(Frozen):
    """One sharded checkpoint with optimizer state; times are the slowest rank's."""

    total_bytes: int
    files: int
    save_time_s: float
    restore_time_s: float
    equal: bool
    parts: CheckpointParts | None = None


class CellResult(Frozen):
    """How one candidate ended, and its figures where it has them.

    Attributes:
        reason: why it is not measured, with the numbers that decided; None for a measured cell.
        rule: the rule that pruned it.
        failure: what ended it, if ``failed``; a record's own words.
        attempts_log: log of the failed run, relative to the sweep's folder.
        gate: the verdict on its losses and gradient norms; None if they were not compared.
        step_time: seconds, the slowest rank's time of each step, over all rounds.
        tokens_per_s: over all ranks; of measured cells only, as are ``tokens_per_s_per_rank`` and ``mfu``.
        mfu: model FLOP/s over the peak of all ranks, a fraction; None where the peak is unknown.
        first_step_s: from the start of its verify launch, in processes of its own, to its first training step.
        startup: medians over the timed rounds, else those of the verify run; what was started in company counts it.
        rank_memory: what each rank's memory was made of, in rank order; empty where it was not measured.
        hosts: of those ranks, a name a rank.
        breakdown: what a step's time is made of; None where it was not measured.
        rank: 1 is fastest; None where the cell is not ranked, for the reason in ``unranked``.
        ratio_to_best: speed of this cell over the fastest cell's; None for the fastest itself.
        tie: whether this cell cannot be told apart from the fastest.
        stopped: how the race stopped it early; None if it did not.
        frontier: whether no other ranked cell is at least as fast with less memory; None without memory figures.
    """

    layout: Layout
    label: str
    world_size: int
    outcome: Outcome
    is_reference: bool = False
    reason: str | None = None
    rule: str | None = None
    failure: Failure | None = None
    gate: GateVerdict | None = None
    designs: tuple[Design, ...] = ()
    step_time: Summary | None = None
    tokens_per_s: Estimate | None = None
    tokens_per_s_per_rank: Estimate | None = None
    mfu: float | None = None
    memory: MemoryPeak | None = None
    checkpoint: CheckpointCost | None = None
    traffic: CellTraffic | None = None
    startup: Startup | None = None
    rank_memory: tuple[RankMemory, ...] = ()
    hosts: tuple[str, ...] = ()
    breakdown: StepBreakdown | None = None
    first_step_s: float | None = None
    rank: int | None = None
    unranked: str | None = None
    ratio_to_best: Ratio | None = None
    tie: bool = False
    stopped: Stopped | None = None
    frontier: bool | None = None


class GroupTransports(Frozen):
    """What the communicators of one role in a cell used: ``groups`` of ``size`` ranks each."""

    cell: str
    role: str
    groups: int
    size: int
    transports: tuple[str, ...]
    rings: int | None
    source: str


class MeasurementWarning(Frozen):
    """Something that weakens the figures of ``cells`` (labels; empty: of the whole sweep)."""

    kind: str
    cells: tuple[str, ...] = ()
    cause: str
    remedy: str

    @property
    def text(self) -> str:
        """Cause and remedy in one line."""
        return f"{self.cause}; {self.remedy}"


class RoundSamples(Frozen):
    """Raw step times of one round of one cell, as recorded: rows are ranks, columns steps, seconds.

    ``counts``: whether the round stands on the ground that is ranked.
    """

    cell: str
    repeat: int
    attempt: int
    launch_id: str
    design: Design
    cycles: tuple[int, ...]
    step_time_s: tuple[tuple[float, ...], ...]
    counts: bool = True


class Comparison(Frozen):
    """Every candidate of a sweep, ranked cells first in the order of rank, then the others in the plan's order.

    ``grounds`` are the distinct ones of the timed rounds, the one that was ranked first; ``gate_reference`` is the
    label of the layout whose losses all others were judged by. ``race`` is None where every layout ran every round.
    ``transports`` are there with ``--debug-comms``, ``predicted`` with ``--calibrate``.
    """

    plan: SweepPlan
    cells: tuple[CellResult, ...]
    gate_reference: str | None = None
    grounds: tuple[Ground, ...] = ()
    warnings: tuple[MeasurementWarning, ...] = ()
    race: RaceVerdict | None = None
    transports: tuple[GroupTransports, ...] = ()
    samples: tuple[RoundSamples, ...] = Field(default=(), repr=False)
    predicted: tuple[PredictedStep, ...] = ()
    checkpoint_study: CheckpointStudy | None = None  # every way and every pair of meshes, where they were measured

    @property
    def ranked(self) -> tuple[CellResult, ...]:
        """The ranked cells, fastest first."""
        return tuple(sorted((c for c in self.cells if c.rank is not None), key=lambda c: c.rank or 0))

    @property
    def best(self) -> CellResult | None:
        """The cell with the highest tokens/s, None if nothing is ranked."""
        return next(iter(self.ranked), None)

    @property
    def ties(self) -> tuple[CellResult, ...]:
        """Cells that cannot be told apart from the best, in the order of rank."""
        return tuple(c for c in self.ranked if c.tie)

    def with_outcome(self, outcome: Outcome) -> tuple[CellResult, ...]:
        """The cells that ended this way."""
        return tuple(c for c in self.cells if c.outcome == outcome)
