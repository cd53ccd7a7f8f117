"""A sweep that was written with schema version 1 (commit 6dcb1ca) and frozen then: it must load for ever."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from harness.compare import compare
from harness.store import SweepStore

FOLDER = Path(__file__).parent / "schema1"


def test_the_frozen_sweep_loads_and_is_judged() -> None:
    store = SweepStore.open(FOLDER)
    plan, records = store.plan(), store.records()
    assert len(records) == 6
    comparison = compare(plan, records)
    assert [cell.label for cell in comparison.ranked] == ["ddp r4", "fsdp s4"]
    assert comparison.gate_reference == "single r1"
    assert {cell.label: cell.outcome for cell in comparison.cells}["hsdp r2s2"] == "not_run"


def test_its_samples_are_those_in_the_file() -> None:
    by_id = {record.run_id: record for record in SweepStore.open(FOLDER).records()}
    (path,) = (FOLDER / "records").glob("4588c2ab9d6f8795.*")
    raw = json.loads(path.read_text())
    (record,) = (
        r for r in by_id.values() if r.spec.layout.strategy == "ddp" and r.spec.purpose == "time" and r.spec.repeat == 0
    )
    assert record.timing is not None and record.ground is not None
    assert [list(row) for row in record.timing.step_time_s] == raw["timing"]["step_time_s"]
    assert record.ground.commit == "6dcb1ca279d6"


def test_ids_are_those_of_the_spec_that_is_read() -> None:
    store = SweepStore.open(FOLDER)
    plan, records = store.plan(), store.records()
    specs = {plan.run(layout, "time", 0).run_id for layout in plan.layouts}
    assert {r.run_id for r in records if r.spec.purpose == "time" and r.spec.repeat == 0} <= specs


@pytest.mark.parametrize("path", sorted((FOLDER / "records").glob("*.json")), ids=lambda path: str(path.name)[:6])
def test_the_fixture_is_the_old_version(path: Path) -> None:
    assert json.loads(path.read_text())["schema_version"] == 1
