"""The table of layouts: columns with units for a terminal or for Markdown."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from harness.compare import CellResult, CheckpointCost, Comparison, Estimate, MemoryPeak
from harness.compare.wording import Standing, counted, percent_text, standing
from harness.report.units import bytes_unit, fold, plain, rate_unit, time_unit
from harness.startup import Startup
from harness.stats import Summary

MISSING = "-"
_LABEL = "layout"
_SHORTEST_LABEL = 16
AGAINST = "the mean over rounds of the median ratio of speeds of steps timed in the same cycle, less 1"
AGAINST_ORDER = "so it, and the order by it, may differ from the speeds shown"
RACED_SPEED = (
    "in a race, whose layouts are not all timed in the same rounds, all other speeds are the fastest's times the ratio "
    "to it"
)
_MARKS: Mapping[Standing, tuple[str, str]] = {
    "tie": ("=", "a tie with the fastest: the interval holds 0%"),
    "undecided": ("?", "not decided: one round"),
    "stopped": ("s", "stopped early by the race"),
}
# the columns of the first table of a report; the others follow in a second one
MAIN_TITLES = ("#", _LABEL, "speed", "95% interval", "against fastest", "MFU", "step", "memory", "ckpt")
_FIRST_TO_GO = ("95% interval", "MFU", "ckpt", "save")  # what a narrow terminal misses least

Value = TypeVar("Value")
Text = Callable[[CellResult], str | None]


@dataclass(frozen=True)
class Column:
    """A column: title, unit (empty for none), a cell's text in it (None: no value), and whether a terminal has it."""

    title: str
    unit: str
    text: Text
    align: str = "right"
    console: bool = True


def shown_cells(comparison: Comparison) -> tuple[CellResult, ...]:
    """The rows: ranked cells fastest first, then what was measured without being ranked."""
    others = [c for c in comparison.with_outcome("measured") if c.rank is None]
    return (*comparison.ranked, *others)


def console_table(comparison: Comparison, width: int = 100) -> str:
    """The table for a terminal, empty if no cell was measured. Labels are folded and some columns left out to fit."""
    from tabulate import SEPARATING_LINE, tabulate

    cells = shown_cells(comparison)
    if not cells:
        return ""
    columns = [c for c in table_columns(cells) if c.console]
    for title in _FIRST_TO_GO:
        if _room_for_labels(columns, cells, width) < _SHORTEST_LABEL:
            columns = [c for c in columns if c.title != title]
    room = max(_SHORTEST_LABEL, _room_for_labels(columns, cells, width))

    def shown(column: Column, cell: CellResult) -> str:
        text = column.text(cell) or MISSING
        return "\n".join(fold(text, room)) if column.title == _LABEL else text

    rows = [[shown(column, cell) for column in columns] for cell in cells]
    # titles as rows, since headers are padded, which costs two characters a column
    return tabulate(
        [[c.title for c in columns], [c.unit for c in columns], SEPARATING_LINE, *rows],
        colalign=[c.align for c in columns],
        disable_numparse=True,
        tablefmt="simple",
    )


def _room_for_labels(columns: Sequence[Column], cells: Sequence[CellResult], width: int) -> int:
    """Characters that the other columns leave for labels; a label that fits needs no more than itself."""
    others = [c for c in columns if c.title != _LABEL]
    used = sum(max(len(c.title), len(c.unit), *(len(c.text(cell) or "") for cell in cells)) for c in others)
    return width - used - 2 * len(others)


def shown_marks(comparison: Comparison) -> dict[str, str]:
    """The marks behind places that the table has, with what they mean."""
    found = {standing(cell) for cell in comparison.ranked}
    return {mark: meaning for key, (mark, meaning) in _MARKS.items() if key in found}


def markdown_tables(comparison: Comparison) -> list[str]:
    """Every column as GitHub-flavoured Markdown in two tables, the main one first; none if nothing was measured."""
    cells = shown_cells(comparison)
    if not cells:
        return []
    columns = table_columns(cells)
    others = [c for c in columns if c.title not in MAIN_TITLES]
    tables = [[c for c in columns if c.title in MAIN_TITLES], [c for c in columns if c.title == _LABEL] + others]
    return [_markdown_table(found, cells) for found in (tables if others else tables[:1])]


def _markdown_table(columns: Sequence[Column], cells: Sequence[CellResult]) -> str:
    titles = [f"{c.title} ({c.unit})" if c.unit else c.title for c in columns]
    rows = [[column.text(cell) or MISSING for column in columns] for cell in cells]
    return markdown_rows(titles, rows, [c.align for c in columns])


def markdown_rows(titles: Sequence[str], rows: Iterable[Sequence[str]], align: Sequence[str] = ()) -> str:
    """A GitHub-flavoured Markdown table; cells are escaped."""
    from tabulate import tabulate

    return tabulate(
        [[escape(value) for value in row] for row in rows],
        headers=list(titles),
        colalign=list(align) or ["left"] * len(titles),
        disable_numparse=True,
        tablefmt="pipe",
    )


def escape(text: str) -> str:
    """Text as one line of Markdown, shown as it is; what needs no escape, such as ``[9, 18]``, stays readable."""
    line = plain(text).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    line = re.sub(r"([\\`*|~])", r"\\\1", line)
    line = re.sub(r"\](?=[(\[:])", r"\\]", line)
    return re.sub(r"(?<![A-Za-z0-9])_|_(?![A-Za-z0-9])", r"\\_", line)


def table_columns(cells: Sequence[CellResult]) -> list[Column]:
    """Every column that at least one cell has a value in."""
    columns = [
        Column("#", "", _place),
        Column(_LABEL, "", lambda c: plain(c.label), "left"),
        *_speed_columns(cells),
        *_memory_columns(cells),
        *_checkpoint_columns(cells),
        *_startup_columns(cells),
    ]
    return [c for c in columns if any(c.text(cell) is not None for cell in cells)]


def _speed_columns(cells: Sequence[CellResult]) -> list[Column]:
    rates = rate_unit(c.tokens_per_s.value for c in cells if c.tokens_per_s)
    each = rate_unit(c.tokens_per_s_per_rank.value for c in cells if c.tokens_per_s_per_rank)
    times = time_unit(c.step_time.median for c in cells if c.step_time)

    def speed(show: Callable[[Estimate], str]) -> Text:
        return _of(lambda c: c.tokens_per_s, show)

    def step(title: str, unit: str, show: Callable[[Summary], str]) -> Column:
        return Column(title, unit, _of(lambda c: c.step_time, show), console=False)

    return [
        Column("speed", rates.name, speed(lambda s: rates.text(s.value))),
        Column("95% interval", rates.name, speed(lambda s: f"[{rates.text(s.low)}, {rates.text(s.high)}]")),
        Column("against fastest", "", _against),
        Column("MFU", "%", _of(lambda c: c.mfu, lambda mfu: f"{100 * mfu:.1f}")),
        Column(
            "speed of a rank",
            each.name,
            _of(lambda c: c.tokens_per_s_per_rank, lambda s: each.text(s.value)),
            console=False,
        ),
        step("step", times.name, lambda t: times.text(t.median)),
        step("step range", times.name, lambda t: f"{times.text(t.minimum)} to {times.text(t.maximum)}"),
        step("step cv", "%", lambda t: f"{100 * t.cv:.1f}"),
        step("samples", "", lambda t: f"{counted(t.rounds, 'round')}, {counted(t.steps, 'step')}"),
    ]


def _memory_columns(cells: Sequence[CellResult]) -> list[Column]:
    peaks = bytes_unit(c.memory.peak_bytes for c in cells if c.memory)

    def peak(cell: CellResult) -> str | None:
        return None if cell.memory is None else peaks.text(cell.memory.peak_bytes) + "*" * bool(cell.frontier)

    def more(title: str, pick: Callable[[MemoryPeak], int | None]) -> Column:
        return Column(title, peaks.name, _of(lambda c: pick(c.memory) if c.memory else None, peaks.text), console=False)

    return [
        Column("memory", peaks.name, peak),
        more("reserved", lambda m: m.reserved_bytes),
        more("RSS", lambda m: m.rss_bytes),
    ]


def _checkpoint_columns(cells: Sequence[CellResult]) -> list[Column]:
    saved = [c.checkpoint for c in cells if c.checkpoint]
    sizes = bytes_unit(c.total_bytes for c in saved)
    times = time_unit(t for c in saved for t in (c.save_time_s, c.restore_time_s))

    def column(title: str, unit: str, show: Callable[[CheckpointCost], str], console: bool = True) -> Column:
        return Column(title, unit, _of(lambda c: c.checkpoint, show), console=console)

    return [
        column("ckpt", sizes.name, lambda c: sizes.text(c.total_bytes)),
        column("files", "", lambda c: str(c.files), console=False),
        column("save", times.name, lambda c: times.text(c.save_time_s)),
        column("restore", times.name, lambda c: times.text(c.restore_time_s)),
    ]


def _startup_columns(cells: Sequence[CellResult]) -> list[Column]:
    known = [c.startup for c in cells if c.startup]
    firsts = [c.first_step_s for c in cells if c.first_step_s is not None]
    times = time_unit([*firsts, *(t for one in known for t in (one.ranks_s, one.first_timed_s) if t is not None)])

    def column(title: str, pick: Callable[[Startup], float | None]) -> Column:
        return Column(
            title, times.name, _of(lambda c: pick(c.startup) if c.startup else None, times.text), console=False
        )

    return [
        Column("first step after", times.name, _of(lambda c: c.first_step_s, times.text), console=False),
        column("ranks ready after", lambda one: one.ranks_s),
        column("timed after", lambda one: one.first_timed_s),
    ]


def _of(pick: Callable[[CellResult], Value | None], show: Callable[[Value], str]) -> Text:
    """The text of something that a cell may lack."""

    def text(cell: CellResult) -> str | None:
        value = pick(cell)
        return None if value is None else show(value)

    return text


def _place(cell: CellResult) -> str:
    if cell.rank is None:
        return "ref" if cell.is_reference else "."
    return f"{cell.rank}{_MARKS.get(standing(cell), ('', ''))[0]}"


def _against(cell: CellResult) -> str | None:
    if cell.rank == 1:
        return "fastest"
    if cell.ratio_to_best is None:
        return None
    return percent_text(cell.ratio_to_best)
