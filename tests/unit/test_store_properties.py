"""Properties of the store: what the schema allows comes back equal, and what breaks one file loses no other."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from harness.errors import StoreError
from harness.record import RunRecord
from harness.store import SweepStore, read_model, read_record
from tests.unit.factories import make_plan, make_records
from tests.unit.schema import any_of

FEW = settings(max_examples=25, suppress_health_check=list(HealthCheck))


@contextmanager
def new_store() -> Iterator[SweepStore]:
    with tempfile.TemporaryDirectory() as folder:
        yield SweepStore.create(Path(folder), make_plan())


def with_its_ids(record: RunRecord) -> RunRecord:
    return record.model_copy(update={"run_id": record.spec.run_id, "cell_id": record.spec.cell_id})


@FEW
@given(any_of(RunRecord).map(with_its_ids))
def test_any_record_comes_back_equal(record: RunRecord) -> None:
    record = record.model_copy(update={"schema_version": 1})
    with new_store() as store, pytest.MonkeyPatch.context() as patch:
        path = store.add(record)
        assert with_its_ids(read_model(path, RunRecord)) == record
        patch.delattr("harness.store.read_model")  # the shared way takes all that is valid by itself
        assert store.records() == (record,)


@FEW
@given(any_of(RunRecord).map(with_its_ids), st.data())
def test_a_damaged_record_reads_as_validation_alone_says(record: RunRecord, data: st.DataObject) -> None:
    """Records share specs that were validated once; nothing may come through that the plain way refuses."""
    text = record.model_copy(update={"schema_version": 1}).model_dump_json().encode()
    place = data.draw(st.integers(0, len(text) - 1))
    damaged = data.draw(st.sampled_from([text[:place], text[:place] + b"9" + text[place + 1 :], text[place:]]))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "x.a0.json"
        path.write_bytes(damaged)
        try:
            expected = with_its_ids(read_model(path, RunRecord))
        except StoreError as error:
            with pytest.raises(StoreError) as caught:
                read_record(path)
            assert str(caught.value) == str(error)
        else:
            assert read_record(path) == expected


@FEW
@given(st.integers(0, 6), st.floats(0, 1, exclude_max=True), st.booleans())
def test_a_torn_file_is_named_and_loses_no_other(which: int, share: float, whole: bool) -> None:
    with new_store() as store:
        paths = [store.add(record) for record in make_records(make_plan(), {"ddp:r4": 0.1, "fsdp:s4": 0.2})]
        before = store.records()
        torn = paths[which]
        content = torn.read_bytes()
        if whole:  # a writer that died: its temporary file lies beside the records, which are as they were
            (torn.parent / f".{torn.name}.abc").write_bytes(content[: int(share * len(content))])
            assert store.records() == before
        else:  # a disk that lost the end of a file
            torn.write_bytes(content[: int(share * len(content))])
            with pytest.raises(StoreError, match=torn.name):
                store.records()
            torn.unlink()
            assert store.records() == tuple(r for r in before if store.record_path(r.run_id, r.attempt) != torn)
