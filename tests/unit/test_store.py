"""Results folders: written whole or not at all, and read with an error that names the file."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from harness.errors import StoreError
from harness.spec import SweepPlan
from harness.store import SweepStore, read_model, sweeps, write_atomic
from tests.unit.factories import make_plan, make_time_record


@pytest.fixture
def store(tmp_path: Path) -> SweepStore:
    return SweepStore.create(tmp_path, make_plan())


def test_plan_and_records_come_back_as_they_were(store: SweepStore) -> None:
    plan = make_plan()
    record = make_time_record(plan, "ddp:r4")
    store.add(record)
    assert SweepStore.open(store.folder).plan() == plan
    assert store.records() == (record,)


def test_a_sweep_is_not_overwritten(store: SweepStore) -> None:
    with pytest.raises(StoreError, match=r"exists in .*; choose another --name or use 'meshsweep resume'"):
        SweepStore.create(store.folder.parent, make_plan())


def test_a_record_written_before_a_field_was_added_keeps_its_place(store: SweepStore) -> None:
    plan = make_plan()
    record = make_time_record(plan, "ddp:r4")
    path = store.add(record)
    old = json.loads(path.read_text())
    del old["spec"]["layout"]["options"]["order"]
    path.write_text(json.dumps({**old, "run_id": "0" * 16, "cell_id": "0" * 12}))
    assert store.records() == (record,)


def test_attempts_of_a_run_are_files_of_their_own(store: SweepStore) -> None:
    plan = make_plan()
    record = make_time_record(plan, "ddp:r4")
    for attempt in (0, 1):
        store.add(record.model_copy(update={"attempt": attempt}))
    assert [r.attempt for r in store.records()] == [0, 1]


def test_a_missing_folder_lists_the_sweeps_that_exist(store: SweepStore) -> None:
    with pytest.raises(StoreError, match=f"no sweep folder .*nothing; sweeps in .*: {store.folder.name}"):
        SweepStore.open(store.folder.parent / "nothing")


def test_a_folder_that_is_no_sweep_says_what_it_holds(store: SweepStore) -> None:
    with pytest.raises(StoreError, match=f"is not a sweep .*; it holds the sweeps {store.folder.name}"):
        SweepStore.open(store.folder.parent)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "is not JSON"),
        ("[1, 2]", "is not a SweepPlan"),
        ('{"schema_version": 99}', "has schema version 99, this meshsweep reads up to 1; upgrade"),
        ('{"schema_version": 1}', "is not a SweepPlan: name: Field required"),
    ],
)
def test_an_unreadable_file_is_named_with_its_fault(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "sweep.json"
    path.write_text(text)
    with pytest.raises(StoreError, match=message) as caught:
        read_model(path, SweepPlan)
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_an_unreadable_record_is_named(store: SweepStore) -> None:
    path = store.folder / "records" / "bad.a0.json"
    path.parent.mkdir()
    path.write_text(json.dumps({"schema_version": 2}))
    with pytest.raises(StoreError, match=r"bad\.a0\.json has schema version 2"):
        store.records()


@pytest.mark.parametrize("number", [2**63, 2**70, 10**30])
def test_a_number_that_no_table_holds_is_named(store: SweepStore, number: int) -> None:
    record = make_time_record(store.plan(), "ddp:r4")
    path = store.add(record.model_copy(update={"attempt": 0}))
    largest = path.read_text().replace('"attempt": 0', f'"attempt": {2**63 - 1}')
    path.write_text(largest)
    assert store.records()[0].attempt == 2**63 - 1
    path.write_text(largest.replace(str(2**63 - 1), str(number)))
    with pytest.raises(StoreError, match=rf"a0\.json has the number {number}, which no 64 bits hold; remove"):
        store.records()


@pytest.mark.parametrize("name", ["run_id", "cell_id"])
def test_an_id_that_is_no_word_is_named(store: SweepStore, name: str) -> None:
    path = store.add(make_time_record(store.plan(), "ddp:r4"))
    content = json.loads(path.read_text())
    for wrong in (5, None):
        path.write_text(json.dumps({**content, name: wrong}))
        with pytest.raises(StoreError, match=rf"a0\.json is not a RunRecord: {name}: Input should be a valid string"):
            store.records()
    del content[name]
    path.write_text(json.dumps(content))
    with pytest.raises(StoreError, match=rf"a0\.json is not a RunRecord: {name}: Field required"):
        store.records()


def test_a_write_that_fails_leaves_nothing_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    target = tmp_path / "record.json"
    target.write_text("old")

    def full(_file: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("harness.store.os.fsync", full)
    with pytest.raises(StoreError, match=r"cannot write .*record\.json: No space left on device"):
        write_atomic(target, "new")
    assert [p.name for p in tmp_path.iterdir()] == ["record.json"]
    assert target.read_text() == "old"


def test_sweeps_of_a_folder_that_does_not_exist_are_none(tmp_path: Path) -> None:
    assert sweeps(tmp_path / "absent") == []


def test_a_sweep_is_driven_by_one_process_at_a_time(store: SweepStore) -> None:
    other = SweepStore(store.folder)
    with store.driving(), pytest.raises(StoreError, match="another meshsweep drives"), other.driving():
        pass
    with other.driving():
        pass
