"""The comparison for a terminal: sentence, table, cells that are not in it and why, warnings."""

from __future__ import annotations

import textwrap

from harness.compare import OUTCOMES, Comparison, sentence
from harness.report.race import race_lines, stopped_lines
from harness.report.tables import AGAINST, AGAINST_ORDER, RACED_SPEED, console_table, shown_cells, shown_marks
from harness.report.units import plain

_MOST_LINES = 12  # cells of one outcome that a terminal lists; the report lists all
_LONGEST_REASON = 320


def render(comparison: Comparison, width: int = 100) -> str:
    """Text for a terminal of ``width`` columns; a label of a layout is never broken to fit."""
    blocks = [_wrap(sentence(comparison), width)]
    table = console_table(comparison, width)
    if table:
        blocks.append("\n".join([table, *_legend(comparison, width)]))
    blocks += _race(comparison, width) + _excluded(comparison, width)
    if comparison.warnings:
        lines = [_wrap(plain(w.text), width, "  - ") for w in comparison.warnings]
        blocks.append("\n".join(["warnings", *lines]))
    return "\n\n".join(blocks)


def _legend(comparison: Comparison, width: int) -> list[str]:
    notes = []
    if comparison.best:
        notes.append("speed, which orders the rows: tokens of a batch over the median step time of the slowest rank")
        if comparison.race is not None:
            notes.append(RACED_SPEED)
    if len(comparison.ranked) > 1:
        notes.append(f"against fastest: {AGAINST}, with its 95% interval; {AGAINST_ORDER}")
    notes += [f"{mark} {meaning}" for mark, meaning in shown_marks(comparison).items()]
    if any(c.frontier for c in comparison.ranked):
        notes.append("* no ranked layout is at least as fast with less memory")
    for cell in shown_cells(comparison):
        if cell.unranked:
            name = "the reference " if cell.is_reference else ""
            notes.append(f"{name}{cell.label} is not ranked: it {plain(cell.unranked)}")
    return [_wrap(note, width, "  ") for note in notes]


def _race(comparison: Comparison, width: int) -> list[str]:
    lines = [_wrap(line, width, "  ") for line in race_lines(comparison)]
    stopped = [_wrap(f"{plain(label)}: {text}", width, "  ") for label, text in stopped_lines(comparison)]
    if len(stopped) > _MOST_LINES:
        stopped[_MOST_LINES:] = [f"  and {len(stopped) - _MOST_LINES} more, which the report lists"]
    blocks = ["\n".join(["race", *lines])] if lines else []
    return [*blocks, "\n".join([f"stopped early ({len(stopped_lines(comparison))})", *stopped])] if stopped else blocks


def _excluded(comparison: Comparison, width: int) -> list[str]:
    blocks = []
    for outcome in OUTCOMES:
        cells = comparison.with_outcome(outcome) if outcome != "measured" else ()
        if not cells:
            continue
        lines = [f"{outcome.replace('_', ' ')} ({len(cells)})"]
        for cell in cells[:_MOST_LINES]:
            rule = f" ({cell.rule})" if cell.rule else ""
            lines.append(_wrap(plain(f"{cell.label}{rule}: {cell.reason}", _LONGEST_REASON), width, "  "))
        if len(cells) > _MOST_LINES:
            lines.append(f"  and {len(cells) - _MOST_LINES} more, which the report lists")
        blocks.append("\n".join(lines))
    return blocks


def _wrap(text: str, width: int, lead: str = "") -> str:
    hang = " " * (len(lead) + 2) if lead else ""
    return textwrap.fill(text, width, initial_indent=lead, subsequent_indent=hang, break_long_words=False)
