"""The example under ``results/``: its report follows from its records, and no place of a machine is named in it."""

from __future__ import annotations

import re
from pathlib import Path

from harness.compare import compare, sentence
from harness.store import SweepStore

EXAMPLE = Path(__file__).parents[2] / "results" / "virtual-2x4"


def test_its_decision_follows_from_its_records() -> None:
    store = SweepStore.open(EXAMPLE)
    decision = sentence(compare(store.plan(), store.records()))
    assert f"**{decision}**" in (EXAMPLE / "report" / "report.md").read_text(encoding="utf-8")


def test_it_names_no_folder_of_a_machine() -> None:
    texts = [
        path for path in EXAMPLE.rglob("*") if path.suffix in (".json", ".md", ".html") and "launches" not in path.parts
    ]
    assert len(texts) > 30
    for path in texts:
        assert not re.search(r"[\"' (=]/(home|tmp|root|opt|work|usr|mnt|data)/", path.read_text(encoding="utf-8")), path
