"""Why one layout is faster, smaller or heavier than another, in words, with the numbers of the records.

What was not measured is said to be absent; nothing is filled in from a formula.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence

from harness.base import Frozen
from harness.compare import CellResult, Comparison
from harness.compare.odd import odd_ranks
from harness.compare.wording import counted, lead_text, listed, signed, speed_text, standing
from harness.exposure import StepBreakdown
from harness.layout.placement import Placement, Placer
from harness.layout.subset import first_devices
from harness.memory_kinds import MEMORY_KINDS
from harness.report.breakdown_plot import step_parts
from harness.report.memory_plots import fullest, kind_name, moment_text
from harness.report.units import Unit, bytes_unit, time_unit

_LEAST_SHARE = 0.03  # of the whole; smaller differences of parts are not put into words
_MOST_PARTS = 3

Say = Callable[[Comparison, Sequence[CellResult]], "list[str]"]


class Chapter(Frozen):
    """What there is to say about one matter."""

    title: str
    lines: tuple[str, ...]


class Explanation(Frozen):
    """``cells``: labels; with two of them the second is what the first is held against."""

    cells: tuple[str, ...]
    chapters: tuple[Chapter, ...]
    absent: tuple[str, ...]

    @property
    def text(self) -> str:
        """The whole as plain text."""
        blocks = [" against ".join(self.cells)]
        blocks += ["\n".join([chapter.title, *(f"  {line}" for line in chapter.lines)]) for chapter in self.chapters]
        if self.absent:
            blocks.append("\n".join(["Not in the records", *(f"  {line}" for line in self.absent)]))
        return "\n\n".join(blocks)


def explain(comparison: Comparison, cells: Sequence[CellResult]) -> Explanation:
    """One cell, or one against another."""
    chapters, absent = [], []
    for title, say, missing in _CHAPTERS:
        lines = say(comparison, cells)
        if lines:
            chapters.append(Chapter(title=title, lines=tuple(lines)))
        without = [cell.label for cell in cells if missing(cell)]
        if without:
            absent.append(f"{listed(without)}: {title.lower()}")
    return Explanation(cells=tuple(c.label for c in cells), chapters=tuple(chapters), absent=tuple(absent))


def _speed(comparison: Comparison, cells: Sequence[CellResult]) -> list[str]:
    known = [cell for cell in cells if cell.step_time]
    unit = time_unit(cell.step_time.median for cell in known if cell.step_time)
    lines = []
    for cell in known:
        assert cell.step_time is not None
        rate = f", {speed_text(cell)}" if cell.tokens_per_s else ""
        lines.append(f"{cell.label}: {_with_unit(unit, cell.step_time.median)} a step (median of its own steps){rate}")
    return [*lines, _faster(*known)] if len(known) == 2 else lines


def _faster(one: CellResult, other: CellResult) -> str:
    """The report's ratio where one of the two is the fastest; else their speeds, which a race has put on one scale."""
    best, rival = (one, other) if one.rank == 1 else (other, one)
    if best.rank == 1 and rival.ratio_to_best is not None:
        tie = f"; {standing(rival)}" if standing(rival) in ("tie", "undecided") else ""
        lead = lead_text(rival.ratio_to_best.inverse(), rival.label)
        return f"{best.label} is {lead}, by steps timed side by side{tie}"
    a, b = one.tokens_per_s, other.tokens_per_s
    if a is None or b is None:
        return "their speeds are not both known"
    overlap = a.low <= b.high and b.low <= a.high
    sure = ", but their 95% intervals overlap" if overlap else ""
    return f"{one.label} is {_more(a.value / b.value - 1, 'faster', 'slower')}{sure}"


def _step(comparison: Comparison, cells: Sequence[CellResult]) -> list[str]:
    known = [(cell, cell.breakdown) for cell in cells if cell.breakdown]
    unit = time_unit(breakdown.step_time_s for _, breakdown in known)
    lines = []
    for cell, breakdown in known:
        parts = ", ".join(f"{name} {unit.text(value)}" for name, value in _named(breakdown).items())
        shares = f"{breakdown.exposed_share:z.0%} exposed, {breakdown.idle_share:.0%} waiting for slower ranks"
        lines.append(f"{cell.label}: {parts} of {_with_unit(unit, breakdown.step_time_s)}; {shares}")
        lines += _other_step(cell, breakdown, unit)
    if len(known) == 2:
        one, other = (breakdown for _, breakdown in known)
        lines += _differences(_named(one), _named(other), one.step_time_s - other.step_time_s, unit, "step")
    return lines


def _other_step(cell: CellResult, breakdown: StepBreakdown, unit: Unit) -> list[str]:
    """That the parts are of other steps than the ranking's, with both times; shares carry over, seconds do not."""
    timed = cell.step_time
    if timed is None:
        return []
    off = signed(100 * (timed.median / breakdown.step_time_s - 1), 0)
    return [
        f"{cell.label}: these are steps of its verify run, alone, {_with_unit(unit, breakdown.step_time_s)}; the "
        f"ranking's steps, timed side by side with the others, take {_with_unit(unit, timed.median)} "
        f"({off}%), so take shares from here and speeds from there"
    ]


def _named(breakdown: StepBreakdown) -> dict[str, float]:
    axes = {*breakdown.exposed_by_axis_s, "several axes at once"}
    return {f"exposed {name}" if name in axes else name: value for name, value in step_parts(breakdown).items()}


def _links(comparison: Comparison, cells: Sequence[CellResult]) -> list[str]:
    lines = []
    for cell in cells:
        placement = _placement(comparison, cell)
        if placement is None:
            continue
        for axis in placement.axes:
            where = "crosses nodes" if axis.crosses_nodes else "stays inside a node"
            lines.append(
                f"{cell.label}: {axis.axis} of {counted(axis.size, 'rank')} {where} ({axis.link_class.value}) and "
                f"carries {listed(axis.carries)}"
            )
    return lines


def _traffic(comparison: Comparison, cells: Sequence[CellResult]) -> list[str]:
    known = [(cell, cell.traffic) for cell in cells if cell.traffic]
    unit = bytes_unit(link.sent_bytes for _, traffic in known for link in traffic.wire.links)
    lines = []
    for cell, traffic in known:
        for link in traffic.wire.links:
            counts = Counter[str]()
            for collective in traffic.collectives:
                counts[collective.operation] += collective.count * (collective.axis == link.axis)
            what = listed([f"{count:,} {operation}" for operation, count in counts.most_common() if count])
            sent = f"{_with_unit(unit, link.sent_bytes)} a step over {link.link_class.value}"
            lines.append(f"{cell.label}: {link.axis} sends {sent} ({what} a rank)")
        if traffic.wire.cross_node_share is not None:
            lines.append(f"{cell.label}: {traffic.wire.cross_node_share:.0%} of what all ranks send crosses nodes")
    if len(known) == 2:
        one, other = (traffic.wire.cross_node_bytes for _, traffic in known)
        if one and other:
            lines.append(f"the first one sends {one / other:.2g} times the second one's bytes between nodes")
    return lines


def _placement(comparison: Comparison, cell: CellResult) -> Placement | None:
    topology, mesh = comparison.plan.topology, cell.layout.mesh
    if topology.device_count < mesh.world_size or mesh.world_size == 1:
        return None
    return Placer(first_devices(topology, mesh.world_size), cell.layout.options.order).place(cell.layout)


def _memory(comparison: Comparison, cells: Sequence[CellResult]) -> list[str]:
    known = [(cell, fullest(cell.rank_memory).peak) for cell in cells if cell.rank_memory]
    unit = bytes_unit(peak.peak_bytes for _, peak in known)
    lines = []
    for cell, peak in known:
        parts = sorted(peak.bytes_by_kind.items(), key=lambda item: -item[1])
        large = [f"{kind_name(k)} {unit.text(v)}" for k, v in parts if v >= _LEAST_SHARE * peak.peak_bytes]
        lines.append(
            f"{cell.label}: {_with_unit(unit, peak.peak_bytes)} on the fullest rank, in {moment_text(peak)}: "
            f"{', '.join(large)}"
        )
        odd = odd_ranks([rank.peak.peak_bytes for rank in cell.rank_memory])
        if odd:
            lines.append(f"{cell.label}: odd among its peers: rank {listed([str(rank) for rank in odd])}")
    if len(known) == 2:
        one, other = ({kind_name(k): float(p.bytes_by_kind[k]) for k in MEMORY_KINDS} for _, p in known)
        whole = known[0][1].peak_bytes - known[1][1].peak_bytes
        lines += _differences(one, other, whole, unit, "peak")
    return lines


def _differences(one: dict[str, float], other: dict[str, float], whole: float, unit: Unit, what: str) -> list[str]:
    """The difference of two wholes and the parts that make most of it."""
    total = sum(other.values())
    if abs(whole) < _LEAST_SHARE * total:
        return [f"the {what}s differ by less than {_LEAST_SHARE:.0%}"]
    parts = {name: one.get(name, 0.0) - other.get(name, 0.0) for name in dict.fromkeys((*one, *other))}
    large = sorted(parts.items(), key=lambda item: -abs(item[1]))[:_MOST_PARTS]
    text = ", ".join(
        f"{name} {'+' if value > 0 else '-'}{unit.text(abs(value))}"
        for name, value in large
        if abs(value) >= _LEAST_SHARE * total
    )
    sign = "more" if whole > 0 else "less"
    return [f"the first one's {what} is {_with_unit(unit, abs(whole))} {sign}, most of it: {text}"]


def _more(share: float, longer: str, shorter: str) -> str:
    return f"{abs(share):.0%} {longer if share > 0 else shorter}"


def _with_unit(unit: Unit, value: float) -> str:
    return f"{unit.text(value)} {unit.name}"


_CHAPTERS: tuple[tuple[str, Say, Callable[[CellResult], bool]], ...] = (
    ("Speed", _speed, lambda cell: cell.step_time is None),
    ("What a step is made of", _step, lambda cell: cell.breakdown is None and cell.world_size > 1),
    ("Links", _links, lambda cell: False),
    ("Traffic", _traffic, lambda cell: cell.traffic is None and cell.world_size > 1),
    ("Memory", _memory, lambda cell: not cell.rank_memory),
)
