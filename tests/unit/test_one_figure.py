"""One speed for one layout of one sweep, wherever it is stated: in a race, whose speeds are scaled, and without one."""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path

import pytest

import harness
from harness.compare import CellResult, Comparison, compare
from harness.compare.change import compare_sweeps
from harness.compare.collect import collect
from harness.compare.pairs import point_ratio, speed_ratio
from harness.history.cache import read_tables
from harness.history.nights import history
from harness.interchange.pytest_benchmark import to_benchmarks
from harness.interchange.trackers import tracked_runs
from harness.recommend import Measured, make_objective, recommend_of
from harness.record import RunRecord
from harness.report.frame import cell_frame
from harness.spec import SweepPlan, make_race
from harness.store import SweepStore
from tests.unit.factories import make_plan
from tests.unit.test_race_replays import LAYOUTS, RECORDED, replayed


def recorded(name: str, raced: bool) -> Measured:
    """A sweep on recorded step times, which scatter, so that estimators differ; ``raced``: with layouts that stop."""
    plan = make_plan(LAYOUTS).model_copy(update={"name": name})
    plan = plan.model_copy(update={"race": make_race(plan.settings) if raced else None})
    return Measured(name, plan, replayed(plan, random.Random(3).sample(RECORDED, 4)))


def stored(folder: Path, sweep: Measured) -> SweepStore:
    store = SweepStore.create(folder, sweep.plan)
    for record in sweep.records:
        store.add(record)
    return store


def timed(comparison: Comparison) -> Sequence[CellResult]:
    return [cell for cell in comparison.cells if cell.tokens_per_s is not None]


@pytest.mark.parametrize("raced", [False, True])
def test_every_place_states_the_reports_figures(raced: bool, tmp_path: Path) -> None:
    sweep = recorded("night", raced)
    store = stored(tmp_path, sweep)
    comparison = compare(store.plan(), store.records())
    assert bool(comparison.race and comparison.race.stopped) is raced
    speeds = {c.label: c.tokens_per_s.value for c in timed(comparison) if c.tokens_per_s}
    steps = {c.label: c.step_time.median for c in timed(comparison) if c.step_time}
    assert len(speeds) == len(LAYOUTS)
    # in a race some layout's speed is not that of its own steps
    own = {label: 1000 / step for label, step in steps.items()}
    assert (max(abs(own[label] / speed - 1) for label, speed in speeds.items()) > 1e-3) is raced

    loaded = harness.load(tmp_path).cells.set_index("cell")
    night = history(read_tables(tmp_path).cells)
    csv = cell_frame(comparison).set_index("cell")
    benchmarks = {b["extra_info"]["layout"]: b for b in to_benchmarks(comparison)["benchmarks"]}
    tracked = {run.name: run for run in tracked_runs(comparison)}
    chosen = recommend_of([sweep], make_objective("speed"))
    again = compare_sweeps(comparison, comparison)
    for cell in timed(comparison):
        label = cell.label
        for speed in (
            loaded.tokens_per_s[label],
            csv.tokens_per_s[label],
            next(c.tokens_per_s[0] for c in night.cells if c.label == label),
            benchmarks[cell.layout.text]["extra_info"]["tokens_per_s"],
            tracked[label].metrics["tokens_per_s"],
            next(c.tokens_per_s.value for c in chosen.choices if c.label == label and c.tokens_per_s),
        ):
            assert speed == pytest.approx(speeds[label], rel=1e-12)
        shown = next(c.step_time_s for c in again.cells if c.label == label)
        for step in (
            loaded.step_time_s[label],
            csv.step_time_s[label],
            benchmarks[cell.layout.text]["stats"]["median"],
            *(shown or ()),
        ):
            assert step == pytest.approx(steps[label], rel=1e-12)
        assert shown is not None


@pytest.mark.parametrize("raced", [False, True])
def test_a_ratio_without_its_interval_is_the_ratio(raced: bool) -> None:
    sweep = recorded("night", raced)
    cells = [cell for cell in collect(sweep.plan, sweep.records).cells if cell.rounds]
    apart = recorded("other", False)
    others = [cell for cell in collect(*_other_launches(apart)).cells if cell.rounds]
    for one in cells:
        for other in (*cells, *others):
            assert point_ratio(one, other) == pytest.approx(speed_ratio(one, other).ratio, rel=1e-12)


def _other_launches(sweep: Measured) -> tuple[SweepPlan, list[RunRecord]]:
    return sweep.plan, [r.model_copy(update={"launch_id": f"other-{r.launch_id}"}) for r in sweep.records]
