"""Whatever a record's schema allows, what reads records gives an answer or one line, never another exception."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pandas as pd
import pytest

from harness.compare import compare
from harness.compare.change import compare_sweeps
from harness.errors import UsageError
from harness.history.load import load
from harness.history.nights import history
from harness.history.tables import sweep_tables
from harness.recommend import Limits, Measured, make_objective, recommend, recommend_of
from harness.recommend.console import render as recommended
from harness.report import render, write_report
from harness.report.changes import change_markdown, change_text, junit
from harness.report.explain import explain
from harness.report.frame import cell_frame, sample_frame
from harness.report.history import history_markdown, history_text
from harness.report.markdown import to_markdown
from harness.report.page import side_by_side, to_html
from harness.store import SweepStore
from tests.unit.any_record import any_sweep

SEEDS = 8
FULL = 3
OBJECTIVES = (
    make_objective("speed", None, None),
    make_objective("cost", None, 2.5),
    make_objective("restore", None, None),
    make_objective("weighted", "speed=1,memory=0.5,checkpoint=0.1", None),
)


@pytest.mark.parametrize("seed", range(SEEDS))
def test_any_records_are_reported_judged_and_explained(seed: int) -> None:
    first, second = any_sweep(seed), any_sweep(-1 - seed)
    one, two = compare(*first), compare(*second)
    assert render(one) and to_markdown(one) and to_html([one], [{}])
    assert to_html([one, two], [{}, {}], side_by_side([one, two]))
    assert len(cell_frame(one)) == len(one.cells)
    sample_frame(one)
    json.loads(one.model_dump_json())
    for objective in OBJECTIVES:
        for limits in (Limits(), Limits(max_memory_bytes=2**30, max_restore_s=1.0, min_headroom=0.1)):
            assert recommended(recommend(*first, objective, limits))
    for cell in one.cells:
        assert explain(one, [cell, *one.ranked[:1]]).text
    change = compare_sweeps(one, two)
    assert change_text(change) and change_markdown(change) and junit([change])


@pytest.mark.parametrize("seed", range(SEEDS))
def test_any_sweeps_are_chosen_from_together_or_refused_in_a_line(seed: int) -> None:
    first, second = any_sweep(seed), any_sweep(-1 - seed)
    again = Measured("again", *first)
    for objective in OBJECTIVES:
        assert recommended(recommend_of([Measured("first", *first), again], objective, Limits(max_restore_s=1.0)))
        try:
            assert recommended(recommend_of([Measured("first", *first), Measured("second", *second)], objective))
        except UsageError as error:
            assert "\n" not in str(error) and " cannot be compared: " in str(error)


@pytest.mark.parametrize("seed", range(SEEDS))
def test_any_records_have_a_history(seed: int) -> None:
    import pyarrow as pa

    tables = []
    for night, (plan, records) in enumerate(any_sweep(100 * seed + night) for night in range(6)):
        moment = datetime(2026, 1, 1, tzinfo=UTC) + timedelta(days=night)
        plan = plan.model_copy(update={"created_at": moment.isoformat(), "name": f"night-{night}"})
        tables.append(sweep_tables(plan, records, plan.name))
    found = history(pa.concat_tables([table.cells for table in tables]))
    assert history_text(found, 0) and history_markdown(found, 0)


@pytest.mark.filterwarnings("ignore:Glyph", "ignore:.*constrained_layout.*", "ignore:.*Tight layout.*")
def test_any_records_are_written_and_read_in_every_format(
    tmp_path: Path,
) -> None:
    plan, records = any_sweep(FULL)
    store = SweepStore.create(tmp_path, plan)
    for record in {(r.run_id, r.attempt): r for r in records}.values():
        store.add(record)
    files = write_report(compare(store.plan(), store.records()), store.report_folder)
    assert all(isinstance(p, Path) is False or p.stat().st_size > 0 for p in files.model_dump().values())
    assert list(pd.read_csv(files.cells_csv)["cell"]) == list(pd.read_parquet(files.cells_parquet)["cell"])
    assert len(load(tmp_path).runs) == len(store.records())
