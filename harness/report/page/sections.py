"""The sections of one sweep, each a function that gives None when the sweep has nothing for it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from harness.compare import OUTCOMES, CellResult, Comparison
from harness.report.checkpoints import checkpoint_parts
from harness.report.ground import Facts, ground_facts, node_rows, topology_facts, work_facts
from harness.report.notes import MEANINGS, table_notes, unranked_notes
from harness.report.page.tables import Table, figures_table, main_table, more_table, plain_table
from harness.report.plots import describe
from harness.report.race import race_lines, stopped_lines
from harness.report.tables import shown_cells
from harness.report.traffic import traffic_notes, traffic_tables
from harness.report.units import plain

Pictures = Mapping[str, bytes]  # name -> SVG


class Picture(NamedTuple):
    """A picture by its name in the report's folder, what it shows in a line, and its SVG."""

    name: str
    caption: str
    svg: bytes


class Entry(NamedTuple):
    """A candidate without a rank: how it ended, why, and the end of its log, empty for none."""

    label: str
    outcome: str
    reason: str
    log: str = ""


class Section(NamedTuple):
    """A part of the page as plain texts, tables and pictures; only the template writes HTML."""

    anchor: str
    title: str
    intro: str = ""
    pictures: tuple[Picture, ...] = ()
    tables: tuple[Table, ...] = ()
    notes: tuple[str, ...] = ()
    entries: tuple[Entry, ...] = ()
    facts: tuple[Facts, ...] = ()


class Pictured(NamedTuple):
    """A section that is its pictures, those of its names that there are."""

    anchor: str
    title: str
    names: tuple[str, ...]
    intro: str = ""

    def make(self, _: Comparison, pictures: Pictures) -> Section | None:
        shown = _shown(pictures, self.names)
        return Section(self.anchor, self.title, self.intro, pictures=shown) if shown else None


class TrafficSection(NamedTuple):
    """What a step sends, as picture and tables."""

    names: tuple[str, ...] = ("traffic",)

    def make(self, comparison: Comparison, pictures: Pictures) -> Section | None:
        tables = traffic_tables(comparison)
        if not tables:
            return None
        shown = _shown(pictures, self.names)
        return Section("traffic", "Traffic", pictures=shown, tables=tables, notes=traffic_notes(comparison))


def speed(comparison: Comparison, pictures: Pictures) -> Section | None:
    """The ranking as picture and table, with what its columns mean."""
    cells = shown_cells(comparison)
    if not cells:
        return None
    notes = (" ".join(table_notes(comparison)), *unranked_notes(comparison))
    shown = _shown(pictures, _FIRST)
    return Section("speed", "Speed", pictures=shown, tables=(main_table(cells),), notes=notes)


def other_pictures(_: Comparison, pictures: Pictures) -> Section | None:
    """Pictures that no section has asked for."""
    claimed = {*_FIRST, *_CHECKPOINT, *(name for section in PICTURED for name in section.names)}
    shown = _shown(pictures, [name for name in pictures if name not in claimed])
    return Section("more-pictures", "More pictures", pictures=shown) if shown else None


def race(comparison: Comparison, _: Pictures) -> Section | None:
    """How a race ended, and the layouts that it stopped."""
    notes = tuple(plain(line) for line in race_lines(comparison))
    entries = tuple(Entry(plain(label), "stopped early", plain(text)) for label, text in stopped_lines(comparison))
    return Section("race", "Race", notes=notes, entries=entries) if notes or entries else None


def more_figures(comparison: Comparison, _: Pictures) -> Section | None:
    """The columns that the ranking leaves out."""
    table = more_table(shown_cells(comparison))
    return Section("figures", "More figures", tables=(table,)) if table else None


def not_ranked(comparison: Comparison, _: Pictures) -> Section | None:
    """Every candidate that is not in the ranking, with its reason."""
    found = {o: comparison.with_outcome(o) for o in OUTCOMES if o != "measured"}
    entries = tuple(_entry(cell) for cells in found.values() for cell in cells)
    if not entries:
        return None
    intro = " ".join(f"{_word(outcome).capitalize()}: {MEANINGS[outcome]}" for outcome, cells in found.items() if cells)
    return Section("not-ranked", f"Not ranked ({len(entries)})", intro, entries=entries)


def warnings(comparison: Comparison, _: Pictures) -> Section | None:
    """What weakens the figures."""
    texts = tuple(plain(w.text) for w in comparison.warnings)
    return Section("warnings", f"Warnings ({len(texts)})", notes=texts) if texts else None


def ground(comparison: Comparison, _: Pictures) -> Section:
    """What was run, where and with what."""
    first, *others = [ground_facts(found) for found in comparison.grounds] or [()]
    rows = node_rows(comparison)
    return Section(
        "ground",
        "Ground",
        "The rounds on the second and further grounds are not ranked against those on the first." if others else "",
        tables=(plain_table("Nodes", ("nodes", "devices of each", "links of each"), rows),) if rows else (),
        facts=((*work_facts(comparison), *first, *topology_facts(comparison)), *others),
    )


def checkpoint(comparison: Comparison, pictures: Pictures) -> Section | None:
    """Pictures, then what checkpoints are made of, what they cost, and why."""
    parts = checkpoint_parts(comparison)
    shown = _shown(pictures, _CHECKPOINT)
    tables = tuple(figures_table(part.title, part.titles, part.rows) for part in parts if part.rows)
    notes = tuple(plain(note) for part in parts for note in part.notes)
    return Section("checkpoint", "Checkpoint", pictures=shown, tables=tables, notes=notes) if shown or parts else None


_FIRST = ("tokens_per_s",)
_CHECKPOINT = ("checkpoint", "checkpoint_matrix")
PICTURED = (
    Pictured("frontier", "Speed against memory", ("speed_memory",)),
    Pictured("step", "Where a step goes", ("step_breakdown",)),
    Pictured("memory", "Memory", ("peak_memory", "memory_by_kind", "memory_heat")),
    TrafficSection(),
    Pictured("prediction", "Predicted against measured", ("predicted",)),
    Pictured("mesh", "Mesh of the fastest layout", ("mesh",)),
)
MAKERS: tuple[Callable[[Comparison, Pictures], Section | None], ...] = (
    *(speed, *(section.make for section in PICTURED), checkpoint, other_pictures),
    *(race, more_figures, not_ranked, warnings, ground),
)


def sections(comparison: Comparison, pictures: Pictures) -> tuple[Section, ...]:
    """The sections that have something to say, in the order of the page."""
    found = (make(comparison, pictures) for make in MAKERS)
    return tuple(section for section in found if section is not None)


def _shown(pictures: Pictures, names: Sequence[str]) -> tuple[Picture, ...]:
    return tuple(Picture(name, describe(name), pictures[name]) for name in names if name in pictures)


def _word(outcome: str) -> str:
    return outcome.replace("_", " ")


def _entry(cell: CellResult) -> Entry:
    tail = cell.failure.log_tail if cell.failure else ""
    how = f"{_word(cell.outcome)} by {plain(cell.rule)}" if cell.rule else _word(cell.outcome)
    return Entry(plain(cell.label), how, plain(cell.reason or "no reason recorded"), tail if tail.strip() else "")
