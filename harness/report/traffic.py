"""What a step sends: by mesh axis, by class of link, between nodes, and in how many collectives of which sizes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from harness.compare import CellResult, Comparison
from harness.compare.traffic import CellTraffic
from harness.compare.wording import signed
from harness.layout import AXES
from harness.predict.proof import TOLERANCE
from harness.report.page.tables import Head, Table
from harness.report.tables import MISSING
from harness.report.units import bytes_unit, number
from harness.traffic import Collective

if TYPE_CHECKING:
    from matplotlib.figure import Figure

NOTES = (
    "Bytes are those that all ranks together send in one step, with the backend's own algorithm for each collective "
    "(gloo carries a reduce-scatter as an all-reduce of the whole tensor). The cross-node share is bytes between nodes "
    "over all bytes that ranks send. Sizes of collectives are nccl-tests' size: of the whole tensor on one rank.",
)


def cells_with_traffic(comparison: Comparison) -> list[tuple[CellResult, CellTraffic]]:
    """The cells whose collectives were counted, in the comparison's order."""
    return [(cell, cell.traffic) for cell in comparison.cells if cell.traffic is not None]


def traffic_tables(comparison: Comparison) -> tuple[Table, ...]:
    """Bytes by axis and between nodes; then each layout's collectives. None where nothing was counted."""
    found = cells_with_traffic(comparison)
    return (_bytes_table(found), _collectives_table(found)) if found else ()


def traffic_notes(comparison: Comparison) -> tuple[str, ...]:
    """How to read the tables, what counting costs and how well the wire agrees."""
    found = [traffic for _, traffic in cells_with_traffic(comparison)]
    costs = [one.counting_cost for one in found if one.counting_cost is not None]
    proofs = [one.proof.ratio for one in found if one.proof is not None]
    notes = list(NOTES) if found else []
    if costs:
        span = f"{signed(100 * min(costs), 0)}% to {signed(100 * max(costs), 0)}%"
        notes.append(
            f"Counting is done in steps of its own, which take {span} against plain ones; timed steps have none."
        )
    if proofs:
        notes.append(
            f"Network counters of the nodes moved {min(proofs):.4f} to {max(proofs):.4f} times the accounted bytes, "
            f"headers of packets taken off; tolerance {100 * TOLERANCE:.0f}%."
        )
    return tuple(notes)


def _bytes_table(found: Sequence[tuple[CellResult, CellTraffic]]) -> Table:
    unit = bytes_unit(traffic.wire.sent_bytes for _, traffic in found)
    used = {link.axis for _, traffic in found for link in traffic.wire.links}
    axes = [axis for axis in AXES if axis in used] + sorted(used - set(AXES))
    sizes = ("sent", *axes, "between nodes")
    heads = [Head("layout", "", False), *(Head(title, unit.name, True) for title in sizes)]
    heads += [Head("cross-node share", "%", True), Head("collectives", "", True), Head("wire / accounted", "", True)]
    rows = []
    for cell, traffic in found:
        share, proof = traffic.wire.cross_node_share, traffic.proof
        rows.append(
            (
                cell.label,
                unit.text(traffic.wire.sent_bytes),
                *(unit.text(size) if (size := traffic.bytes_of_axis(axis)) else MISSING for axis in axes),
                unit.text(traffic.wire.cross_node_bytes),
                MISSING if share is None else f"{100 * share:.1f}",
                str(traffic.count),
                MISSING if proof is None else f"{proof.ratio:.4f}",
            )
        )
    return Table("Bytes of one step, all ranks together", tuple(heads), tuple(rows))


def _collectives_table(found: Sequence[tuple[CellResult, CellTraffic]]) -> Table:
    rows = tuple(
        (cell.label, axis, operation.replace("_", "-"), str(sum(one.count for one in group)), _sizes(group))
        for cell, traffic in found
        for (axis, operation), group in _by_kind(traffic.collectives).items()
    )
    heads = (*(Head(title, "", False) for title in ("layout", "axis", "operation")), Head("count", "", True))
    return Table("Collectives of one step, one rank", (*heads, Head("sizes", "", False)), rows)


def _by_kind(collectives: Iterable[Collective]) -> dict[tuple[str, str], list[Collective]]:
    kinds: dict[tuple[str, str], list[Collective]] = {}
    for one in collectives:
        kinds.setdefault((one.axis, one.operation), []).append(one)
    return dict(sorted(kinds.items()))


def _sizes(group: Sequence[Collective]) -> str:
    """``4 x 192 KiB, 256 KiB``; many sizes as their range."""
    counts: dict[int, int] = {}
    for one in sorted(group, key=lambda one: one.size_bytes):
        counts[one.size_bytes] = counts.get(one.size_bytes, 0) + one.count
    if len(counts) > 4:
        return f"{_size(min(counts))} to {_size(max(counts))}"
    return ", ".join(f"{count} x {_size(size)}" if count > 1 else _size(size) for size, count in counts.items())


def _size(size: int) -> str:
    unit = bytes_unit([size])
    return f"{number(size / unit.divisor)} {unit.name}"


def draw_traffic(comparison: Comparison) -> Figure | None:
    """Bytes sent in one step as bars stacked by axis, hatched where they go to another node."""
    from harness.report.canvas import BLUE, GREY, ORANGE, SKY, heading
    from harness.report.rows import cell_rows, finished, write_values

    found = cells_with_traffic(comparison)
    if not found:
        return None
    unit = bytes_unit(traffic.wire.sent_bytes for _, traffic in found)
    figure, (axes,) = cell_rows([cell for cell, _ in found])
    colours = dict(zip(AXES, (ORANGE, BLUE, SKY), strict=True))
    shown: dict[int, tuple[float, str]] = {}
    named: set[str] = set()
    for row, (_, traffic) in enumerate(found):
        left = 0.0
        for link in sorted(traffic.wire.links, key=lambda one: (_place(one.axis), one.link_class.crosses_nodes)):
            width, crosses = link.sent_bytes / unit.divisor, link.link_class.crosses_nodes
            name = f"{link.axis}, {str(link.link_class).replace('_', ' ')}"
            axes.barh(
                *([row], [width]),
                left=left,
                height=0.62,
                color=colours.get(link.axis, GREY),
                edgecolor="white",
                hatch="//" if crosses else "",
                label=None if name in named else name,
            )
            named.add(name)
            left += width
        share = traffic.wire.cross_node_share
        between = f", {100 * share:.0f}% between nodes" if share else ""
        shown[row] = (left, unit.text(traffic.wire.sent_bytes) + between)
    write_values(axes, shown)
    axes.margins(x=0.3)
    axes.set_xlabel(f"sent in one step, all ranks together, {unit.name} (hatched: to another node)")
    title = heading(comparison, "Traffic by mesh axis and link")
    return finished(figure, axes, title, columns=4)


def _place(axis: str) -> int:
    return AXES.index(axis) if axis in AXES else len(AXES)
