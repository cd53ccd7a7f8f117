"""The example under ``results/``: its report follows from its records, and no place of a machine is named in it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from harness.compare import compare, sentence
from harness.compare.predicted import calibration_in, ordered, predicted_steps
from harness.predict.error import CALIBRATED
from harness.predict.memory import predict_memory
from harness.store import SweepStore

EXAMPLE = Path(__file__).parents[2] / "results" / "virtual-2x4"


def test_its_decision_follows_from_its_records() -> None:
    store = SweepStore.open(EXAMPLE)
    decision = sentence(compare(store.plan(), store.records()))
    assert f"**{decision}**" in (EXAMPLE / "report" / "report.md").read_text(encoding="utf-8")


def test_its_steps_and_peaks_follow_from_its_calibration() -> None:
    """The band that ``plan --calibration`` prints is known from here; peaks are held to 5% as on the ranks of tests."""
    store = SweepStore.open(EXAMPLE)
    plan, records = store.plan(), store.records()
    cells = {cell.label: cell for cell in compare(plan, records).cells}
    predicted = {one.label: one.time.step_time_s for one in predicted_steps(plan, calibration_in(records))}
    assert set(predicted) == {layout.label for layout in plan.layouts}
    measured = {label: found for label in predicted if (found := cells[label].step_time) is not None}
    for layout in plan.layouts:
        assert abs(measured[layout.label].median / predicted[layout.label] - 1) <= CALIBRATED.share
        memory = cells[layout.label].memory
        assert memory is not None
        assert predict_memory(layout, plan.workload, kernels="cpu").peak_bytes == pytest.approx(
            memory.peak_bytes, rel=0.05
        )
    assert ordered(measured, predicted) == (8, ())


def test_it_names_no_folder_of_a_machine() -> None:
    texts = [
        path for path in EXAMPLE.rglob("*") if path.suffix in (".json", ".md", ".html") and "launches" not in path.parts
    ]
    assert len(texts) > 30
    for path in texts:
        assert not re.search(r"[\"' (=]/(home|tmp|root|opt|work|usr|mnt|data)/", path.read_text(encoding="utf-8")), path
