"""Several sweeps beside each other: which layouts win in all of them, speeds by layout, and what else differs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from harness.compare import CellResult, Comparison
from harness.compare.ground import ground_differences
from harness.compare.sentence import sentence_of_several
from harness.compare.wording import listed
from harness.report.page.tables import Head, Table
from harness.report.tables import MISSING
from harness.report.units import Unit, plain, rate_unit


class SideBySide(NamedTuple):
    """What stands above the chapters of several sweeps."""

    sentence: str
    notes: tuple[str, ...]
    tables: tuple[Table, ...]


def side_by_side(comparisons: Sequence[Comparison]) -> SideBySide:
    """Sweeps in the order given; the first is what the others' ground and work are held against."""
    return SideBySide(plain(sentence_of_several(comparisons)), _notes(comparisons), (_table(comparisons),))


def _notes(comparisons: Sequence[Comparison]) -> tuple[str, ...]:
    first, *others = comparisons
    notes = []
    for other in others:
        fields = {**_work_differences(first, other), **_ground_differences(first, other)}
        shown = "; ".join(f"{name} {a} there, {b} here" for name, (a, b) in fields.items())
        if shown:
            notes.append(plain(f"{other.plan.name} differs from {first.plan.name} in: {shown}."))
        else:
            notes.append(plain(f"{other.plan.name} stands on the same ground and work as {first.plan.name}."))
    notes.append("Speeds of different sweeps were not timed side by side; 'meshsweep compare' judges what changed.")
    return tuple(notes)


def _work_differences(a: Comparison, b: Comparison) -> dict[str, tuple[str, str]]:
    values = [
        {
            "model": c.plan.workload.model.name,
            "global batch": str(c.plan.workload.global_batch),
            "sequence": f"{c.plan.workload.seq_len} tokens",
            "world size": str(c.plan.ranks.world_size),
        }
        for c in (a, b)
    ]
    return {name: (values[0][name], values[1][name]) for name in values[0] if values[0][name] != values[1][name]}


def _ground_differences(a: Comparison, b: Comparison) -> Mapping[str, tuple[str, str]]:
    grounds = [c.grounds[0] if c.grounds else None for c in (a, b)]
    return ground_differences(grounds[0], grounds[1])


def _table(comparisons: Sequence[Comparison]) -> Table:
    rates = rate_unit(c.tokens_per_s.value for one in comparisons for c in one.ranked if c.tokens_per_s)
    by_label = [{cell.label: cell for cell in c.cells} for c in comparisons]
    labels = dict.fromkeys(cell.label for c in comparisons for cell in (*c.ranked, *c.cells))
    heads = (Head("layout", "", False), *(Head(plain(c.plan.name), rates.name, True) for c in comparisons))
    rows = tuple((plain(label), *(_text(found.get(label), rates) for found in by_label)) for label in labels)
    return Table(f"Speed of each layout in each sweep, {listed([c.plan.name for c in comparisons])}", heads, rows)


def _text(cell: CellResult | None, rates: Unit) -> str:
    if cell is None:
        return MISSING
    if cell.tokens_per_s is None:
        return cell.outcome.replace("_", " ")
    speed = cell.tokens_per_s
    place = f" (#{cell.rank})" if cell.rank else ""
    return f"{rates.text(speed.value)} [{rates.text(speed.low)}, {rates.text(speed.high)}]{place}"
