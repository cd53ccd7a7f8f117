"""The candidates of one sweep, or of several of the same work on other numbers of ranks.

Rounds of sweeps of one size and ground count together. Layouts of one sweep were timed side by side, so their ratios
are paired; those of different sizes were not, and the interval of their ratio is that of two samples taken apart.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from math import exp, log
from typing import NamedTuple

from harness.compare import CellResult, Comparison, Estimate, MeasurementWarning, compare
from harness.compare.change import timed_rounds
from harness.compare.collect import Cell, Round, collect
from harness.compare.ground import ground_key
from harness.compare.pairs import speed_ratio
from harness.recommend.limits import memory_bytes
from harness.record import Ground, RunRecord
from harness.spec import SweepPlan
from harness.stats import Pooled, Ratio, spread_of_rounds, summarize, unpaired_ratio


class Measured(NamedTuple):
    """A sweep, by the name that is shown."""

    name: str
    plan: SweepPlan
    records: Sequence[RunRecord]


@dataclass(frozen=True)
class Group:
    """Sweeps whose rounds count together: one size, one global batch, one ground.

    Attributes:
        place: what tells it from the other groups, such as `` on 8 ranks``; empty where there is no other.
        pooled: how rounds scatter in a race; of a single sweep only.
    """

    sweeps: tuple[str, ...]
    plan: SweepPlan
    place: str
    ground: Ground | None
    pooled: Pooled | None


@dataclass(frozen=True)
class Field:
    """Every layout of every size under a name of its own. ``ranked``: those that may be chosen from, fastest first.

    ``unmeasured``: names of those that failed, strayed or did not run.
    """

    ranked: tuple[CellResult, ...]
    cells: Mapping[str, Cell]
    groups: Mapping[str, Group]
    unmeasured: tuple[str, ...]
    warnings: tuple[MeasurementWarning, ...]

    def ground(self, result: CellResult) -> Ground | None:
        return self.groups[result.label].ground

    def speeds(self, a: CellResult, b: CellResult) -> Ratio:
        """Speed of ``a`` over that of ``b``.

        Of two groups: the interval of their rounds, which were taken apart, about the ratio of the speeds that are
        stated, since a race states them by other rounds than its own.
        """
        group, cell, other = self.groups[a.label], self.cells[a.label], self.cells[b.label]
        if group is self.groups[b.label]:
            return speed_ratio(cell, other, pooled=group.pooled)
        apart = unpaired_ratio([r.times for r in other.rounds], [r.times for r in cell.rounds])
        if a.tokens_per_s is None or b.tokens_per_s is None:
            return apart
        shift = a.tokens_per_s.value / b.tokens_per_s.value / apart.ratio
        return apart.model_copy(update={name: getattr(apart, name) * shift for name in ("ratio", "low", "high")})


def gather(sweeps: Sequence[Measured]) -> Field:
    """The candidates of sweeps that can be compared."""
    found = [(one, compare(one.plan, one.records)) for one in sweeps]
    alike: dict[object, list[tuple[Measured, Comparison]]] = {}
    for one, comparison in found:
        ground = comparison.grounds[0] if comparison.grounds else None
        key = (one.plan.ranks, one.plan.workload.global_batch, ground_key(ground))
        alike.setdefault(key, []).append((one, comparison))
    ranked: list[CellResult] = []
    cells: dict[str, Cell] = {}
    groups: dict[str, Group] = {}
    unmeasured: list[str] = []
    warnings: list[MeasurementWarning] = []
    for members, place in zip(alike.values(), _places([m[0][0] for m in alike.values()]), strict=True):
        group = _group(members, place)
        lost = {c.label for _, found in members for c in found.cells if c.outcome in ("failed", "diverged")}
        absent = {c.label for _, found in members for c in found.cells if c.outcome == "not_run"}
        together = _results([found for _, found in members], lost)
        own = _cells(members)
        for result in together:
            name = result.label + place
            ranked.append(result.model_copy(update={"label": name}))
            cells[name], groups[name] = own[result.label], group
        unmeasured += [label + place for label in sorted(lost | (absent - {r.label for r in together}))]
        for one, comparison in members:
            of_sweep = f" in {one.name}" if len(sweeps) > 1 else ""
            warnings += [_placed(w, place, of_sweep) for w in comparison.warnings]
    ranked.sort(key=lambda r: -(r.tokens_per_s.value if r.tokens_per_s else 0.0))
    return Field(tuple(ranked), cells, groups, tuple(unmeasured), tuple(warnings))


def _group(members: Sequence[tuple[Measured, Comparison]], place: str) -> Group:
    (one, comparison), *more = members
    pooled = comparison.race.fit.pooled if comparison.race is not None and not more else None
    ground = comparison.grounds[0] if comparison.grounds else None
    return Group(tuple(m.name for m, _ in members), one.plan, place, ground, pooled)


def _places(heads: Sequence[Measured]) -> list[str]:
    """What tells each group from the others: ranks, and nodes, batch or sweep where ranks do not."""
    if len(heads) == 1:
        return [""]
    ranks = [h.plan.ranks for h in heads]
    word = "GPUs" if ranks[0].device == "cuda" else "ranks"
    found = [f" on {r.world_size} {word if r.world_size > 1 else word[:-1]}" for r in ranks]
    nodes = [len(r.per_node) for r in ranks]
    parts = [
        [f" over {n} node{'s' * (n > 1)}" for n in nodes],
        [f" with batch {h.plan.workload.global_batch}" for h in heads],
        [f" in {h.name}" for h in heads],
    ]
    for part in parts:
        same = [{part[j] for j in range(len(heads)) if found[j] == found[i]} for i in range(len(heads))]
        found = [text + part[i] * (len(same[i]) > 1) for i, text in enumerate(found)]
    return found


def _placed(warning: MeasurementWarning, place: str, of_sweep: str) -> MeasurementWarning:
    cells = tuple(label + place for label in warning.cells)
    return warning.model_copy(update={"cells": cells, "cause": warning.cause + of_sweep})


def _cells(members: Sequence[tuple[Measured, Comparison]]) -> dict[str, Cell]:
    """The rounds of each layout in all sweeps; which rounds were timed side by side stays known."""
    found: dict[str, list[Cell]] = {}
    for one, _ in members:
        for cell in collect(one.plan, one.records).cells:
            own = replace(cell, rounds=tuple(_of(one.name, r) for r in cell.rounds)) if len(members) > 1 else cell
            found.setdefault(cell.label, []).append(own)
    return {
        label: replace(cells[0], rounds=tuple(chain.from_iterable(c.rounds for c in cells)))
        for label, cells in found.items()
    }


def _of(sweep: str, timed: Round) -> Round:
    launch = f"{sweep}/{timed.record.launch_id}"
    return replace(timed, record=timed.record.model_copy(update={"launch_id": launch}))


def _results(comparisons: Sequence[Comparison], lost: set[str]) -> list[CellResult]:
    """The layouts that were ranked, each once; one that failed in any of the sweeps has failed."""
    by_label: dict[str, list[tuple[CellResult, Comparison]]] = {}
    for comparison in comparisons:
        for result in comparison.ranked:
            if result.label not in lost:
                by_label.setdefault(result.label, []).append((result, comparison))
    return [found[0][0] if len(found) == 1 else _merged(found) for found in by_label.values()]


def _merged(found: Sequence[tuple[CellResult, Comparison]]) -> CellResult:
    """One layout of several sweeps: the mean of its speeds by rounds, the most memory, the slowest checkpoint."""
    results = [result for result, _ in found]
    rounds = [timed.get(result.label, ()) for result, comparison in found for timed in timed_rounds(comparison)]
    factor = spread_of_rounds(rounds)
    weights = [result.step_time.rounds if result.step_time else 0 for result in results]
    logs = [log(result.tokens_per_s.value) if result.tokens_per_s else 0.0 for result in results]
    value = exp(sum(w * x for w, x in zip(weights, logs, strict=True)) / sum(weights))
    speed = Estimate(value=value, low=value / factor, high=value * factor)
    size = results[0].world_size
    checkpoints = [r.checkpoint for r in results if r.checkpoint]
    return results[0].model_copy(
        update={
            "step_time": summarize(rounds),
            "tokens_per_s": speed,
            "tokens_per_s_per_rank": Estimate(value=value / size, low=speed.low / size, high=speed.high / size),
            "memory": max(results, key=lambda r: memory_bytes(r) or 0).memory,
            "checkpoint": max(checkpoints, key=lambda c: c.restore_time_s, default=None),
        }
    )
