"""docs/metrics.md has every column of every table, with the definition that the code has, and no other."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

import pytest

from harness import history
from harness.report.frame import CELL_COLUMNS, SAMPLE_COLUMNS

TEXT = (Path(__file__).parents[2] / "docs" / "metrics.md").read_text(encoding="utf-8")


TABLES: Mapping[str, Mapping[str, tuple[str, str]]] = {
    "## `cells.csv`": CELL_COLUMNS,
    "## `samples.csv`": SAMPLE_COLUMNS,
    "`.runs`": history.RUN_COLUMNS,
    "`.cells`": history.CELL_COLUMNS,
    "`.steps`": history.STEP_COLUMNS,
}


@pytest.mark.parametrize("heading", TABLES)
def test_every_column_is_documented(heading: str) -> None:
    columns = TABLES[heading]
    section = re.split(r"\n(?:## |`\.)", TEXT[TEXT.index(f"\n{heading}") + 1 :])[0]
    rows = re.findall(r"^\| `(\w+)` \| ([^|]+) \| (.+) \|$", section, re.MULTILINE)
    missing = [f"| `{n}` | UNIT | {text} |" for n, (_, text) in columns.items() if n not in {row[0] for row in rows}]
    assert not missing, "add to docs/metrics.md, after the column before:\n" + "\n".join(missing)
    assert {name: text for name, _, text in rows} == {name: text for name, (_, text) in columns.items()}
    assert [row[0] for row in rows] == list(columns)


def test_units_follow_names() -> None:
    for name, unit, _ in re.findall(r"^\| `(\w+)` \| ([^|]+) \| (.+) \|$", TEXT, re.MULTILINE):
        if name.endswith("_bytes"):
            assert unit == "bytes", name
        elif "per_s" in name:
            assert unit == "tokens/s", name
        elif name.endswith("_s"):
            assert unit == "s", name
