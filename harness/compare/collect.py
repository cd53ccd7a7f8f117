"""From records to cells: which attempt of a run counts, which rounds of a cell count, what a step's time is."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import compress

from harness.compare.ground import choose_ground, ground_key
from harness.layout import Layout
from harness.record import Ground, RunRecord, Timing
from harness.spec import SweepPlan

# A clock gives nothing outside of a nanosecond to thirty years; such a sample is a fault, not a time.
SHORTEST_S, LONGEST_S = 1e-9, 1e9


@dataclass(frozen=True)
class Round:
    """One timed round. ``steps`` are (cycle, the slowest rank's time in seconds); ``faults`` were not times."""

    record: RunRecord
    timing: Timing
    steps: tuple[tuple[int, float], ...]
    faults: int

    @property
    def key(self) -> tuple[str, int]:
        """Rounds of two cells with the same key were timed side by side."""
        return (self.record.launch_id, self.record.spec.repeat)

    @property
    def times(self) -> list[float]:
        return [time for _, time in self.steps]


@dataclass(frozen=True)
class Cell:
    """All that was recorded for one candidate that was to run.

    Attributes:
        rounds: the timed rounds that count, in the order of repeats.
        elsewhere: timed rounds on another ground than the one that is ranked.
        lost: time runs whose last attempt gave no usable round.
    """

    layout: Layout
    is_reference: bool
    world_size: int
    verify: RunRecord | None
    rounds: tuple[Round, ...]
    elsewhere: tuple[Round, ...]
    lost: tuple[RunRecord, ...]

    @cached_property
    def label(self) -> str:
        return self.layout.label

    @property
    def on_main_ground(self) -> bool:
        """Whether its rounds lie on the ground that is ranked."""
        return bool(self.rounds)


@dataclass(frozen=True)
class Collected:
    """The cells in the plan's order, the ground that is ranked, and the count of records of no cell."""

    cells: tuple[Cell, ...]
    ground: Ground | None
    foreign: int


def collect(plan: SweepPlan, records: Sequence[RunRecord]) -> Collected:
    """Sort records to the plan's cells, keep the attempt of each run that counts, and part the grounds."""
    by_cell: dict[str, list[RunRecord]] = {}
    for record in counting_attempts(records):
        by_cell.setdefault(record.cell_id, []).append(record)
    layouts = dict.fromkeys(plan.layouts)
    if plan.reference not in layouts:
        layouts = dict.fromkeys((plan.reference, *plan.layouts))
    specs = {layout: plan.run(layout, "verify") for layout in layouts}
    rounds = {layout: usable_rounds(by_cell.get(spec.cell_id, [])) for layout, spec in specs.items()}
    rivals = [r for layout, found in rounds.items() if specs[layout].ranks == plan.ranks for r in found]
    ground = choose_ground([r.record.ground for r in rivals])
    key = ground_key(ground)
    cells = []
    for layout, spec in specs.items():
        found = by_cell.get(spec.cell_id, [])
        on_it = [ground_key(r.record.ground) == key for r in rounds[layout]]
        used = {r.record.run_id for r in rounds[layout]}
        cells.append(
            Cell(
                layout=layout,
                is_reference=layout == plan.reference,
                world_size=spec.ranks.world_size,
                verify=next((r for r in reversed(found) if r.spec.purpose == "verify"), None),
                rounds=tuple(compress(rounds[layout], on_it)),
                elsewhere=tuple(r for r, here in zip(rounds[layout], on_it, strict=True) if not here),
                lost=tuple(r for r in found if r.spec.purpose == "time" and r.run_id not in used),
            )
        )
    known = {spec.cell_id for spec in specs.values()}
    foreign = sum(len(found) for cell_id, found in by_cell.items() if cell_id not in known)
    return Collected(tuple(cells), ground, foreign)


def counting_attempts(records: Sequence[RunRecord]) -> list[RunRecord]:
    """The attempt of each run that counts: its last; if that was interrupted, the last that was measured, if any."""
    runs: dict[str, list[RunRecord]] = {}
    for record in sorted(records, key=lambda r: (r.spec.repeat, r.run_id, r.attempt)):
        runs.setdefault(record.run_id, []).append(record)
    chosen = []
    for attempts in runs.values():
        last = attempts[-1]
        if last.status == "interrupted":
            last = next((r for r in reversed(attempts) if r.status == "measured"), last)
        chosen.append(last)
    return chosen


def usable_rounds(records: Sequence[RunRecord]) -> list[Round]:
    """The timed rounds among one cell's counting attempts that have at least one step with a time."""
    rounds = []
    for record in records:
        if record.spec.purpose != "time" or record.status == "failed" or record.timing is None:
            continue
        timing = record.timing
        slowest = map(max, zip(*timing.step_time_s, strict=False))
        pairs = tuple(zip(timing.cycles, slowest, strict=False))
        steps = tuple(pair for pair in pairs if SHORTEST_S <= pair[1] <= LONGEST_S)
        if steps:
            rounds.append(Round(record, timing, steps, faults=len(pairs) - len(steps)))
    return rounds
