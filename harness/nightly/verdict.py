"""Tonight's sweep against an earlier one and against the weeks before, cell by cell."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import StrEnum

from harness.base import Frozen
from harness.compare import Comparison
from harness.compare.ground import ground_differences
from harness.stats import Ratio, unpaired_ratio

SAME_CODE = "commit"  # nights are compared to see what a change of code did


class Change(StrEnum):
    """What became of a cell."""

    SLOWER = "slower"
    FASTER = "faster"
    TIE = "tie"
    BROKEN = "broken"  # measured then, not now
    NEW = "new"
    INCOMPARABLE = "incomparable"
    TOO_FEW = "too few samples"


class CellChange(Frozen):
    """One cell: its speed now over its speed then, and what that means."""

    label: str
    change: Change
    speed: Ratio | None = None
    reason: str | None = None


class NightVerdict(Frozen):
    """``against``: the name of what tonight is compared with."""

    against: str
    cells: tuple[CellChange, ...]

    def having(self, change: Change) -> tuple[CellChange, ...]:
        return tuple(cell for cell in self.cells if cell.change is change)


Rounds = Sequence[Sequence[float]]  # seconds a step of the slowest rank, by round


def against(tonight: Comparison, before: Comparison, slower: float) -> NightVerdict:
    """Compare with one earlier sweep; cells are matched by label.

    A cell is slower or faster only if the interval of the ratio leaves out 1 and the ratio differs from 1 by at
    least ``slower``. Where the grounds differ (another GPU, driver, torch), no cell is compared.
    """
    difference = _difference(tonight, before)
    then = {cell.label: cell for cell in before.cells}
    old, new = rounds_of(before), rounds_of(tonight)
    cells = []
    for cell in tonight.cells:
        measured_then = cell.label in then and then[cell.label].outcome == "measured"
        if cell.outcome != "measured":
            if measured_then:
                cells.append(CellChange(label=cell.label, change=Change.BROKEN, reason=cell.reason))
        elif cell.label not in new:
            continue
        elif not measured_then or cell.label not in old:
            cells.append(CellChange(label=cell.label, change=Change.NEW))
        elif difference:
            cells.append(CellChange(label=cell.label, change=Change.INCOMPARABLE, reason=difference))
        else:
            cells.append(judge(cell.label, new[cell.label], old[cell.label], slower))
    return NightVerdict(against=before.plan.name, cells=tuple(cells))


def judge(label: str, now: Rounds, then: Rounds, slower: float) -> CellChange:
    """The change of one cell from its rounds now and then."""
    speed = unpaired_ratio(then, now)  # time then over time now is speed now over speed then
    if speed.one_round:
        return CellChange(label=label, change=Change.TOO_FEW, speed=speed)
    if speed.high < 1 and speed.ratio <= 1 - slower:
        return CellChange(label=label, change=Change.SLOWER, speed=speed)
    if speed.low > 1 and speed.ratio >= 1 / (1 - slower):
        return CellChange(label=label, change=Change.FASTER, speed=speed)
    return CellChange(label=label, change=Change.TIE, speed=speed)


def rounds_of(comparison: Comparison) -> Mapping[str, Rounds]:
    """Times of the slowest rank by cell and round."""
    found: dict[str, list[list[float]]] = {}
    for one in comparison.samples:
        steps = [max(column) for column in zip(*one.step_time_s, strict=True)]
        if steps and min(steps) > 0:
            found.setdefault(one.cell, []).append(steps)
    return found


def _difference(a: Comparison, b: Comparison) -> str | None:
    if a.plan.workload != b.plan.workload:
        return "the workload differs"
    if not a.grounds or not b.grounds:
        return "the ground of one is not recorded"
    fields = {k: v for k, v in ground_differences(a.grounds[0], b.grounds[0]).items() if k != SAME_CODE}
    return "; ".join(f"{name}: {old} then, {new} now" for name, (new, old) in fields.items()) or None
