"""A history of nights in words: a table of cells, what changed and when, which layout stopped beating which."""

from __future__ import annotations

from harness.compare.wording import counted
from harness.history.nights import ALL_CELLS, History, LevelChange, Overtaking
from harness.report.changes import effect_text
from harness.report.tables import MISSING, markdown_rows
from harness.report.units import plain, rate_unit

NOTHING = "no change of level in any cell"
TERMS = "Speeds are those of each night's report; changes are judged by the middle half of each round's steps."


def history_text(found: History, since: int = 0) -> str:
    """For a terminal; events from night number ``since`` on."""
    from tabulate import tabulate

    titles, rows = _table(found)
    parts = [heading(found), "", tabulate(rows, headers=titles, disable_numparse=True), ""]
    return "\n".join([*parts, *event_lines(found, since), "", TERMS])


def history_markdown(found: History, since: int = 0) -> str:
    """The same as GitHub-flavoured Markdown."""
    titles, rows = _table(found)
    table = markdown_rows(titles, rows, ["left", *["right"] * (len(titles) - 2), "left"])
    events = [f"- {line}" for line in event_lines(found, since)]
    return "\n".join([f"### {heading(found)}", "", table, "", *events, "", TERMS, ""])


def heading(found: History) -> str:
    """``12 nights, 2026-01-01 to 2026-01-12: tiny, 8 x 64 tokens, 4 cpu``."""
    first, last = found.nights[0].created_at, found.nights[-1].created_at
    left = f" ({counted(found.left_out, 'sweep')} of other work left out)" if found.left_out else ""
    return f"{counted(len(found.nights), 'night')}, {first:%Y-%m-%d} to {last:%Y-%m-%d}: {plain(found.work)}{left}"


def event_lines(found: History, since: int = 0) -> list[str]:
    """Changes and overtakings from night number ``since`` on, oldest first; one line that says so if there is none."""
    grounds = [n for n in range(1, len(found.nights)) if found.nights[n].ground != found.nights[n - 1].ground]
    events = [(night, f"{_day(found, night)}: another ground (torch {found.nights[night].torch})") for night in grounds]
    events += [(change.night, change_line(found, change)) for change in found.changes]
    events += [(one.night, overtaking_line(found, one)) for one in found.overtakings]
    lines = [plain(line) for night, line in sorted(events) if night >= since]
    return lines or [NOTHING]


def change_line(found: History, change: LevelChange) -> str:
    """``2026-01-09: fsdp s4 -9.8% [-11.0, -8.6] against the other cells (nightly-20260109-030000)``."""
    against = "" if change.label == ALL_CELLS or not _relative(found) else " against the other cells"
    night = found.nights[change.night]
    commit = f", commit {night.commit}" if night.commit else ""
    return f"{_day(found, change.night)}: {change.label} {effect_text(change.speed)}{against} ({night.sweep}{commit})"


def overtaking_line(found: History, one: Overtaking) -> str:
    """``hsdp r2s4 used to beat fsdp s8 by 4.0% [..]; since 2026-01-09 it does not: -3.0% [..]``."""
    return (
        f"{one.leader} used to beat {one.other}, {effect_text(one.before)}; since {_day(found, one.night)} "
        f"it does not, {effect_text(one.after)}"
    )


def _day(found: History, night: int) -> str:
    return f"{found.nights[night].created_at:%Y-%m-%d}"


def _relative(found: History) -> bool:
    return any(speed is not None for cell in found.cells for speed in cell.relative_speed)


def _table(found: History) -> tuple[list[str], list[list[str]]]:
    unit = rate_unit(speed for cell in found.cells for speed in cell.tokens_per_s if speed is not None)
    titles = ["layout", "nights", f"first ({unit.name})", f"last ({unit.name})", "last change", "on"]
    rows = []
    for cell in found.cells:
        speeds = [speed for speed in cell.tokens_per_s if speed is not None]
        last = next((c for c in reversed(found.changes) if c.label == cell.label), None)
        rows.append(
            [
                plain(cell.label),
                str(len(speeds)),
                unit.text(speeds[0]),
                unit.text(speeds[-1]),
                effect_text(last.speed) if last else MISSING,
                _day(found, last.night) if last else MISSING,
            ]
        )
    return titles, rows
