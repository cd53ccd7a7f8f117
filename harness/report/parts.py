"""Tables of what a step's time and peak memory are made of, for any form of the report: titles, rows, notes."""

from __future__ import annotations

from typing import NamedTuple

from harness.compare import Comparison
from harness.compare.odd import RULE, odd_ranks
from harness.compare.wording import listed
from harness.memory_kinds import MEMORY_KINDS
from harness.report.breakdown_plot import part_name, step_parts
from harness.report.memory_plots import fullest, kind_name, moment_text
from harness.report.tables import MISSING, shown_cells
from harness.report.units import bytes_unit, time_unit


class PartsTable(NamedTuple):
    """A table; ``rows`` have a text a title, and the first column is the layout."""

    heading: str
    titles: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    notes: tuple[str, ...]


def parts_tables(comparison: Comparison) -> list[PartsTable]:
    """The tables that have a row."""
    return [table for table in (step_table(comparison), memory_table(comparison)) if table.rows]


def step_table(comparison: Comparison) -> PartsTable:
    """Seconds of the mean rank's step by part."""
    known = [(c.label, c.breakdown) for c in shown_cells(comparison) if c.breakdown]
    parts = [step_parts(breakdown) for _, breakdown in known]
    names = tuple(dict.fromkeys(name for found in parts for name in found))
    unit = time_unit(breakdown.step_time_s for _, breakdown in known)
    rows = [
        (
            *(label, unit.text(breakdown.step_time_s)),
            *(unit.text(found[name]) if name in found else MISSING for name in names),
            f"{100 * breakdown.exposed_share:z.0f}",
        )
        for (label, breakdown), found in zip(known, parts, strict=True)
    ]
    note = (
        "From untimed steps of the verify run, in which steps as they are and steps without communication take turns: "
        "exposed is what communication adds to the slowest rank's step, by axis what turning that axis off takes away; "
        "compute and waiting are means over ranks. The ranking's steps are others, timed side by side, and take "
        "another time. A difference of two steps may be negative by noise; the "
        "picture leaves such parts out and fits the others into what is exposed."
    )
    titles = ("layout", f"step ({unit.name})", *(f"{part_name(n)} ({unit.name})" for n in names), "exposed (%)")
    return PartsTable("What a step is made of", titles, tuple(rows), (note,))


def memory_table(comparison: Comparison) -> PartsTable:
    """Bytes of the fullest rank's peak by kind, and its moment."""
    known = [(c, fullest(c.rank_memory).peak) for c in shown_cells(comparison) if c.rank_memory]
    kinds = [kind for kind in MEMORY_KINDS if any(peak.bytes_by_kind[kind] for _, peak in known)]
    unit = bytes_unit(peak.peak_bytes for _, peak in known)
    rows = [
        (
            *(cell.label, unit.text(peak.peak_bytes), moment_text(peak)),
            *(unit.text(peak.bytes_by_kind[kind]) for kind in kinds),
        )
        for cell, peak in known
    ]
    notes = [f"Kinds are those of the fullest rank at the moment of its peak and sum to it. A rank is {RULE}."]
    for cell, _ in known:
        allocator = fullest(cell.rank_memory).allocator
        if allocator is not None:
            notes.append(f"{cell.label}: {100 * allocator.fragmentation:.0f}% of reserved memory is not allocated.")
        odd = odd_ranks([rank.peak.peak_bytes for rank in cell.rank_memory])
        if odd:
            names = [f"{rank} of {cell.hosts[rank]}" for rank in odd]
            notes.append(f"{cell.label}: odd among its peers is rank {listed(names)}.")
    titles = ("layout", f"peak ({unit.name})", "moment", *(f"{kind_name(k)} ({unit.name})" for k in kinds))
    return PartsTable("What peak memory is made of", titles, tuple(rows), tuple(notes))
