"""``compare_sweeps``: what changed from one sweep to another that was run apart from it, cell by cell. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import StrEnum

import numpy as np
from pydantic import Field, computed_field

from harness.base import Frozen
from harness.compare.collect import LONGEST_S, SHORTEST_S
from harness.compare.effects import Array, Effects, changes, enough, round_values
from harness.compare.ground import AGREE, ground_differences
from harness.compare.models import CellResult, Comparison
from harness.errors import UnknownNameError


class Change(StrEnum):
    """What became of a cell."""

    SLOWER = "slower"
    FASTER = "faster"
    TIE = "tie"
    TOO_FEW = "too few samples"
    INCOMPARABLE = "incomparable"
    BROKEN = "broken"  # measured before, asked for again, not measured
    NEW = "new"
    GONE = "gone"  # measured before, not asked for any more


class Rule(Frozen):
    """When a difference counts.

    Attributes:
        alpha: probability that sweeps between which nothing changed show any cell as faster or slower.
        slower: least share of its speed that a cell must have lost to be slower, or gained back to be faster.
        visible: a cell that is not shown to have changed is a tie only if the loss of this share of its speed would
            have been found in four of five comparisons; else it has too few samples.
        across: fields of the ground that may differ and are then only named.
    """

    alpha: float = Field(default=0.025, gt=0, lt=1)
    slower: float = Field(default=0.02, ge=0, lt=1)
    visible: float = Field(default=0.1, gt=0, lt=1)
    across: tuple[str, ...] = ()


class Effect(Frozen):
    """Speed after over speed before, with its own 95% interval.

    ``p`` is corrected for all tests of the comparison together; None where the effect is shown but not tested.
    """

    ratio: float
    low: float
    high: float
    p: float | None = None


class CellChange(Frozen):
    """One cell. Rounds and step time (s, the median of all timed steps, as each sweep's report has it) are those before
    and after; effects are taken from the middle half of each round's steps, so they need not be the quotient.

    Attributes:
        absolute: its speed by the clock.
        relative: its speed after the median cell's change is taken out; what the machine did to all cells cancels.
        findable: the least share of its speed whose loss would be found in four of five such comparisons.
    """

    label: str
    change: Change
    reason: str | None = None
    absolute: Effect | None = None
    relative: Effect | None = None
    findable: float | None = None
    rounds: tuple[int, int] | None = None
    step_time_s: tuple[float, float] | None = None


class Difference(Frozen):
    """A field in which the two sweeps' grounds differ; ``refused`` if that makes step times incomparable."""

    field: str
    before: str
    after: str
    refused: bool

    @property
    def text(self) -> str:
        return f"{self.field}: {self.before} then, {self.after} now"


class SweepChange(Frozen):
    """What changed from sweep ``before`` to sweep ``after``.

    ``common`` is the speed, after over before, that more than half of the cells share.
    """

    before: str
    after: str
    rule: Rule
    cells: tuple[CellChange, ...]
    differences: tuple[Difference, ...] = ()
    common: Effect | None = None

    def having(self, change: Change) -> tuple[CellChange, ...]:
        return tuple(cell for cell in self.cells if cell.change is change)

    @property
    def refused(self) -> tuple[Difference, ...]:
        """What made the sweeps incomparable."""
        return tuple(d for d in self.differences if d.refused)

    @property
    def compared(self) -> bool:
        """Whether any cell was timed on both sides, on grounds that can be compared."""
        return any(cell.change in (Change.SLOWER, Change.FASTER, Change.TIE, Change.TOO_FEW) for cell in self.cells)

    @computed_field  # type: ignore[prop-decorator]
    @property
    def exit_code(self) -> int:
        """0 clean, 1 a cell is slower, 2 a cell broke or nothing could be compared."""
        if self.having(Change.BROKEN) or not self.compared:
            return 2
        return 1 if self.having(Change.SLOWER) else 0


# Another commit is what sweeps are compared for, and a job may land on other hosts of the same kind.
QUALIFIED = ("commit", "version", "hosts")
WORK = ("model", "global_batch", "seq_len", "ranks")
FIELDS = (*WORK, *(name for name in AGREE if name not in QUALIFIED))


def compare_sweeps(before: Comparison, after: Comparison, rule: Rule | None = None) -> SweepChange:
    """Compare two sweeps; cells are matched by label.

    A cell is slower (or faster) if it is so against the other cells, or if most cells are and this one by the clock too
    (unless its interval against the others says that it stayed behind): p at most ``rule.alpha``, and at least
    ``rule.slower`` of its speed lost (gained). Slower in one way wins over faster in the other. Where a field differs
    that must agree, no cell is compared.

    Raises:
        UnknownNameError: ``rule.across`` names no such field.
    """
    rule = rule or Rule()
    for name in rule.across:
        if name not in FIELDS:
            raise UnknownNameError("field to compare across", name, FIELDS)
    differences = _differences(before, after, rule.across)
    then = {cell.label: cell for cell in before.cells}
    now = {cell.label: cell for cell in after.cells}
    timed = [timed_rounds(before), timed_rounds(after)]
    shared = [
        cell.label
        for cell in after.cells
        if _measured(cell) and _measured(then.get(cell.label)) and all(_count(side, cell.label) for side in timed)
    ]
    judged: dict[str, CellChange] = {}
    common = None
    if refused := "; ".join(d.text for d in differences if d.refused):
        judged = {label: CellChange(label=label, change=Change.INCOMPARABLE, reason=refused) for label in shared}
    elif shared:
        judged, common = _judged(shared, timed[0], timed[1], rule)
        judged = {label: _timed(cell, then[label], now[label]) for label, cell in judged.items()}
    labels = dict.fromkeys((*now, *then))
    cells = [judged.get(label) or _unshared(label, then.get(label), now.get(label), timed) for label in labels]
    return SweepChange(
        before=before.plan.name,
        after=after.plan.name,
        rule=rule,
        cells=tuple(cell for cell in cells if cell is not None),
        differences=differences,
        common=common,
    )


Timed = Sequence[Mapping[str, Sequence[float]]]


def timed_rounds(comparison: Comparison) -> Timed:
    """The ranked rounds of a sweep in their order: times of the slowest rank (s) by cell."""
    rounds: dict[int, dict[str, list[float]]] = {}
    for one in comparison.samples:
        slowest = [max(column) for column in zip(*one.step_time_s, strict=False)]
        times = [time for time in slowest if SHORTEST_S <= time <= LONGEST_S]
        if one.counts and times:
            rounds.setdefault(one.repeat, {})[one.cell] = times
    return [rounds[repeat] for repeat in sorted(rounds)]


def judge_values(before: Array, after: Array, rule: Rule) -> tuple[list[CellChange], Effect | None]:
    """Verdicts and effects of cells (columns; labels are left empty) from values of rounds; and the common effect."""
    found = changes(before, after, rule.alpha)
    absolute = _effects(found.absolute, tested=found.relative is None)
    relative = _effects(found.relative) if found.relative else [None] * len(absolute)
    common = _effects(found.common)[0] if found.common else None
    losses = -np.expm1(-(found.relative or found.absolute).findable)
    counts = [(~np.isnan(side)).sum(axis=0) for side in (before, after)]
    cells = []
    for own, other, loss, then, now in zip(absolute, relative, losses.tolist(), *counts, strict=True):
        change, reason = _verdict(own, other, common, rule)
        findable = None if np.isnan(loss) else max(loss, rule.slower)
        if change is Change.TIE and (findable is None or findable > rule.visible):
            change, reason = Change.TOO_FEW, _too_few((int(then), int(now)), findable, rule)
        cell = CellChange(label="", change=change, reason=reason, absolute=own, relative=other, findable=findable)
        cells.append(cell)
    return cells, common


def _judged(
    shared: Sequence[str], before: Timed, after: Timed, rule: Rule
) -> tuple[dict[str, CellChange], Effect | None]:
    counts = {label: (_count(before, label), _count(after, label)) for label in shared}
    tested = [label for label in shared if enough(*counts[label])]
    judged = {}
    for label in shared:
        if label not in tested:
            reason = _too_few(counts[label], None, rule)
            judged[label] = CellChange(label=label, change=Change.TOO_FEW, reason=reason, rounds=counts[label])
    if not tested:
        return judged, None
    cells, common = judge_values(round_values(before, tested), round_values(after, tested), rule)
    for label, cell in zip(tested, cells, strict=True):
        judged[label] = cell.model_copy(update={"label": label, "rounds": counts[label]})
    return judged, common


def _timed(cell: CellChange, then: CellResult, now: CellResult) -> CellChange:
    """With the step times that the reports of the two sweeps state."""
    if then.step_time is None or now.step_time is None:
        return cell
    return cell.model_copy(update={"step_time_s": (then.step_time.median, now.step_time.median)})


def _too_few(counts: tuple[int, int], findable: float | None, rule: Rule) -> str:
    rounds = f"{counts[0]} and {counts[1]} rounds"
    if findable is None:
        return f"{rounds} do not tell how rounds scatter; run more (--rounds 5)"
    # what is findable shrinks with the root of 1/n + 1/m
    shrink = np.log1p(-rule.visible) / np.log1p(-min(findable, 1 - 1e-9))
    needed = max(max(counts) + 1, int(np.ceil(2 / ((1 / counts[0] + 1 / counts[1]) * shrink**2))))
    seen = f"a loss of {loss_text(findable)} in four of five comparisons, and a smaller one less often"
    return f"{rounds} would find {seen}; run more (--rounds {needed})"


def loss_text(share: float) -> str:
    """A findable loss in percent, rounded up: one that is just not visible must not read as if it were."""
    return f"{np.ceil(1000 * share - 1e-9) / 10:g}%"


def _effects(found: Effects, tested: bool = True) -> list[Effect | None]:
    """Ratios of speeds, the inverse of those of times; None for a cell without an effect."""
    return [
        None
        if np.isnan(value)
        else Effect(ratio=_exp(-value), low=_exp(-value - half), high=_exp(-value + half), p=p if tested else None)
        for value, half, p in zip(found.value, found.half_width(), found.p.tolist(), strict=True)
    ]


def _exp(value: float) -> float:
    return float(np.exp(np.clip(value, -700, 700)))


def _verdict(own: Effect | None, other: Effect | None, common: Effect | None, rule: Rule) -> tuple[Change, str | None]:
    """The verdict on a cell, and where it changed only as all others did, that it is so."""
    by_itself = [effect for effect in (own, other) if effect and _certain(effect, rule)]
    with_all = [own] if own and common and _certain(common, rule) and _follows(own, other, common) else []
    for change in (Change.SLOWER, Change.FASTER):
        if any(_is(change, effect, rule) for effect in by_itself):
            return change, None
        if any(_is(change, effect, rule) and _is(change, common, rule) for effect in with_all if common):
            return change, "as all cells together: the machine, or code that they share"
    return Change.TIE, None


def _follows(own: Effect, other: Effect | None, common: Effect) -> bool:
    """Whether a cell went the common way, and its interval against the others does not say that it stayed behind."""
    if common.ratio < 1:
        return own.ratio < 1 and (other is None or other.low <= 1)
    return own.ratio > 1 and (other is None or other.high >= 1)


def _certain(effect: Effect, rule: Rule) -> bool:
    return effect.p is not None and effect.p <= rule.alpha


def _is(change: Change, effect: Effect, rule: Rule) -> bool:
    least = 1 - rule.slower
    return effect.ratio <= least if change is Change.SLOWER else effect.ratio >= 1 / least


def _unshared(label: str, then: CellResult | None, now: CellResult | None, timed: Sequence[Timed]) -> CellChange | None:
    """A cell that was not timed on both sides; None if it was on neither, such as a reference."""
    counts = [_count(side, label) for side in timed]
    if now is not None and _measured(now):
        if counts[1]:
            why = "not a cell of the earlier sweep" if then is None else "not timed in the earlier sweep"
            return CellChange(label=label, change=Change.NEW, reason=why)
        return CellChange(label=label, change=Change.INCOMPARABLE, reason=now.unranked) if counts[0] else None
    if not _measured(then) or not counts[0]:
        return None
    if now is None:
        return CellChange(label=label, change=Change.GONE, reason="not a cell of the later sweep")
    return CellChange(label=label, change=Change.BROKEN, reason=now.reason)


def _measured(cell: CellResult | None) -> bool:
    return cell is not None and cell.outcome == "measured"


def _count(rounds: Timed, label: str) -> int:
    return sum(label in timed for timed in rounds)


def _differences(before: Comparison, after: Comparison, across: Sequence[str]) -> tuple[Difference, ...]:
    """Fields of work and ground that differ; the more telling first."""
    pairs = {name: (_work(before)[name], _work(after)[name]) for name in WORK}
    found = {name: (str(a), str(b)) for name, (a, b) in pairs.items() if a != b}
    if before.plan.workload.model != after.plan.workload.model and "model" not in found:
        name = before.plan.workload.model.name
        found["model"] = (f"{name} of one shape", f"{name} of another")
    grounds = [comparison.grounds[0] if comparison.grounds else None for comparison in (before, after)]
    found.update(ground_differences(grounds[0], grounds[1]))
    hosts = [", ".join(sorted(ground.hosts)) if ground else "" for ground in grounds]
    if hosts[0] != hosts[1]:
        found["hosts"] = (hosts[0], hosts[1])
    free = (*QUALIFIED, *across)
    return tuple(Difference(field=name, before=a, after=b, refused=name not in free) for name, (a, b) in found.items())


def _work(comparison: Comparison) -> dict[str, object]:
    work, ranks = comparison.plan.workload, comparison.plan.ranks
    return {
        "model": work.model.name,
        "global_batch": work.global_batch,
        "seq_len": work.seq_len,
        "ranks": f"{ranks.world_size} {ranks.device} over {len(ranks.per_node)} nodes",
    }
