"""Tables of the page, as plain text in rows; the template escapes every cell."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from harness.compare import CellResult
from harness.report.tables import MAIN_TITLES, MISSING, Column, table_columns

LONGEST_NUMBER = 20
LONGEST_WORD = 24


class Head(NamedTuple):
    """A column's title, its unit (empty for none), and whether its cells are numbers."""

    title: str
    unit: str
    number: bool


class Table(NamedTuple):
    """Rows of texts under their heads. ``marked`` are the numbers of rows that stand out."""

    caption: str
    heads: tuple[Head, ...]
    rows: tuple[tuple[str, ...], ...]
    marked: frozenset[int] = frozenset()

    def is_long(self, column: int) -> bool:
        """Whether a column has cells that are wrapped, and needs room for that."""
        return any(len(row[column]) > LONGEST_WORD for row in self.rows)


def plain_table(caption: str, titles: Sequence[str], rows: Sequence[Sequence[str]]) -> Table:
    """A table of words."""
    return Table(caption, tuple(Head(t, "", False) for t in titles), tuple(tuple(r) for r in rows))


def figures_table(caption: str, titles: Sequence[str], rows: Sequence[Sequence[str]]) -> Table:
    """A table of words and of numbers: a column of short values that begin with a digit, or are missing, is one."""

    def is_number(value: str) -> bool:
        return value == MISSING or (value[:1].isdigit() and len(value) < LONGEST_NUMBER)

    numbers = [all(map(is_number, column)) for column in zip(*rows, strict=True)]
    heads = tuple(Head(title, "", number) for title, number in zip(titles, numbers, strict=True))
    return Table(caption, heads, tuple(tuple(row) for row in rows))


def main_table(cells: Sequence[CellResult]) -> Table:
    """The ranking: what a reader needs to choose."""
    columns = [c for c in table_columns(cells) if c.title in MAIN_TITLES]
    marked = frozenset(i for i, c in enumerate(cells) if c.rank == 1 or (c.rank is not None and c.tie))
    return _table("Layouts, fastest first", columns, cells)._replace(marked=marked)


def more_table(cells: Sequence[CellResult]) -> Table | None:
    """Every other figure; None if there is none."""
    columns = table_columns(cells)
    others = [c for c in columns if c.title not in MAIN_TITLES]
    labels = [c for c in columns if c.title == "layout"]
    return _table("More figures of each layout", [*labels, *others], cells) if others else None


def _table(caption: str, columns: Sequence[Column], cells: Sequence[CellResult]) -> Table:
    return Table(
        caption,
        tuple(Head(c.title, c.unit, c.align == "right") for c in columns),
        tuple(tuple(c.text(cell) or MISSING for c in columns) for cell in cells),
    )
