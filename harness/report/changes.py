"""What changed between two sweeps: for a terminal, as GitHub-flavoured Markdown, and as JUnit XML for CI."""

from __future__ import annotations

from collections.abc import Sequence
from xml.etree import ElementTree

from harness.compare.change import CellChange, Change, Effect, SweepChange, loss_text
from harness.compare.wording import counted, signed
from harness.report.tables import MISSING, markdown_rows
from harness.report.units import plain, time_unit

WORDS = {0: "clean", 1: "REGRESSION", 2: "BROKEN"}
_FIRST = (Change.BROKEN, Change.SLOWER, Change.FASTER, Change.INCOMPARABLE, Change.TOO_FEW, Change.NEW, Change.GONE)
_FAILURES = {Change.SLOWER: "regression", Change.BROKEN: "broken"}
_SKIPPED = (Change.TOO_FEW, Change.INCOMPARABLE, Change.NEW, Change.GONE)


def ordered(change: SweepChange) -> tuple[CellChange, ...]:
    """The cells, what needs attention first, ties last; the greater change first."""
    place = {kind: number for number, kind in enumerate(_FIRST)}
    return tuple(sorted(change.cells, key=lambda c: (place.get(c.change, len(_FIRST)), _lost(c), c.label)))


def headline(change: SweepChange) -> str:
    """``REGRESSION: of 5 cells 1 slower, 4 tie; all cells together -1.2% [-3.0, +0.7]``.

    Sweeps of which no cell could be judged are not called clean, though nothing speaks against them.
    """
    counts = [(kind, len(change.having(kind))) for kind in (*_FIRST, Change.TIE)]
    found = ", ".join(f"{count} {kind}" for kind, count in counts if count)
    apart = not change.refused and not change.compared and not change.having(Change.BROKEN)
    word = "INCOMPARABLE" if change.refused or apart else WORDS[change.exit_code]
    if change.exit_code == 0 and not any(map(change.having, (Change.SLOWER, Change.FASTER, Change.TIE))):
        word = "UNDECIDED"
    text = f"{word}: of {counted(len(change.cells), 'cell')} {found}" if change.cells else "no cell is in both sweeps"
    if apart and change.cells:
        text += "; no cell was timed in both sweeps, so compare sweeps that share layouts"
    return text + (f"; all cells together {effect_text(change.common)}" if change.common else "")


def terms(change: SweepChange) -> str:
    """How the verdicts were reached, and what they can miss, in one line."""
    losses = [cell.findable for cell in change.cells if cell.findable is not None]
    seen = f"; a loss of {loss_text(max(losses))} in one cell is found in four of five comparisons" if losses else ""
    return (
        f"slower or faster: at least {100 * change.rule.slower:.3g}% by a moderated t test of rounds (their scatter is "
        f"estimated over all cells); {100 * change.rule.alpha:.3g}% of unchanged comparisons raise an alarm, over all "
        f"cells together, three quarters of them for slower, and more where the machine drifts during a sweep{seen}; "
        "steps are the medians of the sweeps' reports, changes of speed are judged by the middle half of each round's"
    )


def change_text(change: SweepChange) -> str:
    """For a terminal: headline, differences of ground, a table, the terms."""
    from tabulate import tabulate

    titles, rows = _table(change)
    lines = [f"{plain(change.after)} against {plain(change.before)}", headline(change), *_difference_lines(change)]
    if rows:
        lines += ["", tabulate(rows, headers=titles, disable_numparse=True), ""]
    return "\n".join([*lines, *_reason_lines(change), terms(change)])


def change_markdown(change: SweepChange) -> str:
    """For a pull request or a step summary of GitHub Actions."""
    titles, rows = _table(change)
    mark = {0: ":white_check_mark:", 1: ":warning:", 2: ":x:"}[change.exit_code]
    lines = [f"### {mark} `{plain(change.before)}` → `{plain(change.after)}`", "", headline(change), ""]
    if rows:
        lines += [markdown_rows(titles, rows, ["left", "left", *["right"] * (len(titles) - 2)]), ""]
    notes = [*_difference_lines(change), *_reason_lines(change), terms(change)]
    return "\n".join([*lines, *(f"- {' '.join(note.split())}" for note in notes), ""])


def junit(found: Sequence[SweepChange]) -> str:
    """JUnit XML: a suite a comparison, a case a cell; slower and broken cells fail, those not compared are skipped."""
    root = ElementTree.Element("testsuites", name="meshsweep")
    for change in found:
        failures = sum(cell.change in _FAILURES for cell in change.cells)
        skipped = sum(cell.change in _SKIPPED for cell in change.cells)
        name = f"{plain(change.after)} against {plain(change.before)}"
        suite = ElementTree.SubElement(root, "testsuite", name=name, tests=str(len(change.cells)))
        suite.attrib.update(failures=str(failures), errors="0", skipped=str(skipped))
        for cell in ordered(change):
            case = ElementTree.SubElement(suite, "testcase", classname=plain(change.after), name=plain(cell.label))
            text = cell_text(cell)
            if cell.change in _FAILURES:
                ElementTree.SubElement(case, "failure", type=_FAILURES[cell.change], message=text).text = text
            elif cell.change in _SKIPPED:
                ElementTree.SubElement(case, "skipped", message=text)
            else:
                ElementTree.SubElement(case, "system-out").text = text
    ElementTree.indent(root)
    return ElementTree.tostring(root, encoding="unicode", xml_declaration=True) + "\n"


def cell_text(cell: CellChange) -> str:
    """``slower, speed -16.7% [-17.0, -16.4], against the other cells -16.1% [-16.9, -15.3] (p 0.008)``."""
    text = str(cell.change)
    if cell.absolute is not None:
        text += f", speed {effect_text(cell.absolute)}{_p(cell.absolute, ' (p {})')}"
    if cell.relative is not None:
        text += f", against the other cells {effect_text(cell.relative)}{_p(cell.relative, ' (p {})')}"
    return f"{text} ({plain(' '.join(cell.reason.split()))})" if cell.reason else text


def effect_text(effect: Effect) -> str:
    """A change of speed in percent with its 95% interval: ``-16.7% [-17.0, -16.4]``."""
    ratio, low, high = (signed(100 * (value - 1)) for value in (effect.ratio, effect.low, effect.high))
    return f"{ratio}% [{low}, {high}]"


def _table(change: SweepChange) -> tuple[list[str], list[list[str]]]:
    cells = ordered(change)
    unit = time_unit(time for cell in cells if cell.step_time_s for time in cell.step_time_s)
    titles = ["layout", "verdict", f"step ({unit.name})", "speed [95%]", "against others [95%]", "p", "rounds"]
    rows = []
    for cell in cells:
        tested = cell.relative or cell.absolute
        rows.append(
            [
                plain(cell.label),
                str(cell.change),
                " to ".join(unit.text(time) for time in cell.step_time_s) if cell.step_time_s else MISSING,
                effect_text(cell.absolute) if cell.absolute else MISSING,
                effect_text(cell.relative) if cell.relative else MISSING,
                (_p(tested, "{}") if tested else "") or MISSING,
                " and ".join(map(str, cell.rounds)) if cell.rounds else MISSING,
            ]
        )
    used = [i for i, title in enumerate(titles) if i < 2 or any(row[i] != MISSING for row in rows)]
    return [titles[i] for i in used], [[row[i] for i in used] for row in rows]


def _p(effect: Effect, form: str) -> str:
    return "" if effect.p is None else form.format(f"{effect.p:.2g}")


def _reason_lines(change: SweepChange) -> list[str]:
    """Reasons of cells, each once with its cells; what the ground says of them is said elsewhere."""
    by_reason: dict[str, list[str]] = {}
    for cell in ordered(change):
        if cell.reason and not (change.refused and cell.change is Change.INCOMPARABLE):
            by_reason.setdefault(" ".join(cell.reason.split()), []).append(cell.label)
    return [plain(f"{', '.join(labels)}: {reason}") for reason, labels in by_reason.items()]


def _difference_lines(change: SweepChange) -> list[str]:
    lines = [f"differs, and is compared across: {d.text}" for d in change.differences if not d.refused]
    for d in change.refused:
        lines.append(f"cannot be compared: {d.text}; run both alike, or compare --across {d.field}")
    return [plain(line) for line in lines]


def _leading(cell: CellChange) -> Effect | None:
    return cell.relative or cell.absolute


def _lost(cell: CellChange) -> float:
    effect = _leading(cell)
    return effect.ratio if effect else 1.0
