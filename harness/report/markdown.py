"""report.md: the answer, the table, every candidate that is not in it and why, warnings, then the ground."""

from __future__ import annotations

import re
from collections.abc import Sequence

from harness.compare import OUTCOMES, CellResult, Comparison, sentence
from harness.report.checkpoints import checkpoint_parts
from harness.report.ground import Facts, ground_facts, node_rows, topology_facts, work_facts
from harness.report.notes import MEANINGS, table_notes, unranked_notes
from harness.report.page.several import SideBySide
from harness.report.page.tables import Table
from harness.report.parts import parts_tables
from harness.report.plots import describe
from harness.report.predicted import predicted_part
from harness.report.race import race_lines, stopped_lines
from harness.report.tables import escape, markdown_rows, markdown_tables
from harness.report.traffic import traffic_notes, traffic_tables


def to_markdown(comparison: Comparison, pictures: Sequence[str] = ()) -> str:
    """The whole report; ``pictures`` are paths relative to it."""
    plan = comparison.plan
    blocks = [f"# {escape(plan.name)}", f"**{escape(sentence(comparison))}**", *_table(comparison)]
    blocks += [f"![{describe(path.removesuffix('.png'))}]({path})" for path in pictures]
    blocks += _race(comparison)
    blocks += _traffic(comparison)
    blocks += _predicted(comparison)
    blocks += _checkpoints(comparison)
    for table in parts_tables(comparison):
        blocks += [f"## {table.heading}", markdown_rows([escape(t) for t in table.titles], table.rows)]
        blocks += map(escape, table.notes)
    for outcome in OUTCOMES:
        if outcome != "measured" and (cells := comparison.with_outcome(outcome)):
            title = outcome.replace("_", " ").capitalize()
            blocks += [f"## {title} ({len(cells)})", MEANINGS[outcome], *map(_excluded, cells)]
    if comparison.warnings:
        blocks += ["## Warnings", _list([escape(w.text) for w in comparison.warnings])]
    blocks += ["## Ground", *_ground(comparison)]
    return "\n\n".join(blocks) + "\n"


def _predicted(comparison: Comparison) -> list[str]:
    part = predicted_part(comparison)
    if part is None:
        return []
    rows = [[escape(text) for text in row] for row in part.rows]
    align = ["left", *["right"] * (len(part.titles) - 1)]
    return [f"## {part.title}", markdown_rows(part.titles, rows, align), _list([escape(note) for note in part.notes])]


def _checkpoints(comparison: Comparison) -> list[str]:
    parts = checkpoint_parts(comparison)
    blocks = ["## Checkpoints"] if parts else []
    for part in parts:
        blocks.append(f"### {part.title}")
        blocks += [markdown_rows(part.titles, part.rows)] if part.rows else []
        blocks += [_list([escape(note) for note in part.notes])] if part.notes else []
    return blocks


def side_by_side_markdown(together: SideBySide, comparisons: Sequence[Comparison], pictures: Sequence[str] = ()) -> str:
    """Several sweeps: what they say together, then each one's answer and table."""
    blocks = [f"# {len(comparisons)} sweeps side by side", f"**{escape(together.sentence)}**"]
    blocks += map(_page_table, together.tables)
    blocks += [_list([escape(note) for note in together.notes])]
    blocks += [f"![{describe(path.removesuffix('.png'))}]({path})" for path in pictures]
    for comparison in comparisons:
        blocks += [f"## {escape(comparison.plan.name)}", f"**{escape(sentence(comparison))}**"]
        blocks += markdown_tables(comparison)[:1]
    return "\n\n".join(blocks) + "\n"


def _table(comparison: Comparison) -> list[str]:
    table, *more = markdown_tables(comparison) or [""]
    if not table:
        return []
    notes = [" ".join(map(escape, table_notes(comparison))), *map(escape, unranked_notes(comparison))]
    return ["## Layouts", table, *notes, *(["### More figures", *more] if more else [])]


def _page_table(table: Table) -> str:
    titles = [f"{head.title} ({head.unit})" if head.unit else head.title for head in table.heads]
    align = ["right" if head.number else "left" for head in table.heads]
    return markdown_rows([escape(title) for title in titles], table.rows, align)


def _traffic(comparison: Comparison) -> list[str]:
    tables = traffic_tables(comparison)
    if not tables:
        return []
    first, *others = map(_page_table, tables)
    return ["## Traffic", first, *map(escape, traffic_notes(comparison)), "### Collectives", *others]


def _race(comparison: Comparison) -> list[str]:
    lines, stopped = race_lines(comparison), stopped_lines(comparison)
    blocks = ["## Race", " ".join(map(escape, lines))] if lines else []
    if stopped:
        blocks += [f"### Stopped early ({len(stopped)})"]
        blocks += [f"**{escape(label)}**: {escape(text)}" for label, text in stopped]
    return blocks


def _excluded(cell: CellResult) -> str:
    rule = f" ({escape(cell.rule)})" if cell.rule else ""
    line = f"**{escape(cell.label)}**{rule}: {escape(cell.reason or 'no reason recorded')}"
    tail = cell.failure.log_tail if cell.failure else ""
    return f"{line}\n\n{_folded('end of its log', tail)}" if tail.strip() else line


def _folded(title: str, text: str) -> str:
    """Text in a fence that it cannot close, folded away."""
    clean = re.sub(r"[^\S\n ]|[\x00-\x09\x0b-\x1f\x7f-\x9f]", " ", re.sub(r"\x1b\[[0-9;]*[A-Za-z]", "", text)).rstrip()
    fence = "`" * max(3, 1 + max((len(run) for run in re.findall(r"`+", clean)), default=0))
    return f"<details><summary>{title}</summary>\n\n{fence}text\n{clean}\n{fence}\n\n</details>"


def _ground(comparison: Comparison) -> list[str]:
    first, *others = [ground_facts(ground) for ground in comparison.grounds] or [()]
    blocks = [_facts((*work_facts(comparison), *first))]
    for facts in others:
        blocks += ["Other ground, whose rounds are not ranked against those above:", _facts(facts)]
    rows, found = node_rows(comparison), topology_facts(comparison)
    blocks += ["### Topology"] if rows or found else []
    blocks += [markdown_rows(("nodes", "devices of each", "links of each"), rows)] if rows else []
    return [*blocks, *([_facts(found)] if found else [])]


def _facts(facts: Facts) -> str:
    return _list([f"{name}: {escape(value)}" for name, value in facts])


def _list(lines: Sequence[str]) -> str:
    return "\n".join(f"- {line}" for line in lines)
