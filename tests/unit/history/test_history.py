"""Frames, the cache that is never the truth, and trends whose changes are known."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path
from statistics import fmean, median

import numpy as np
import pytest

import harness
from benchmarks.synthetic import FIRST, write_nights
from harness.cli import _run
from harness.compare import compare
from harness.errors import StoreError, UnknownNameError
from harness.history import CELL_COLUMNS, RUN_COLUMNS, STEP_COLUMNS
from harness.history.build import build
from harness.history.cache import FOLDER, read_tables, signature
from harness.history.nights import ALL_CELLS, History, history
from harness.history.tables import Tables, sweep_tables
from harness.history.trend import change_points
from harness.report.history import event_lines, history_text
from harness.report.history_plot import history_bytes
from harness.store import SweepStore, sweeps
from tests.unit.factories import make_ground, make_plan, make_records

NIGHTS, ROUNDS, CELLS, RANKS, STEPS = 4, 2, 6, 4, 20


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("nights")
    assert write_nights(root, NIGHTS, ROUNDS) == NIGHTS * CELLS * (1 + ROUNDS)
    return root


@pytest.fixture
def root(made: Path, tmp_path: Path) -> Path:
    for folder in sweeps(made):
        for path in (folder / "records").iterdir():
            target = tmp_path / folder.name / "records" / path.name
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(path.read_bytes())
        (tmp_path / folder.name / "sweep.json").write_bytes((folder / "sweep.json").read_bytes())
    return tmp_path


def test_frames_in_two_lines(root: Path) -> None:
    found = harness.load(root)
    assert list(found.runs.columns) == list(RUN_COLUMNS)
    assert list(found.cells.columns) == list(CELL_COLUMNS)
    assert list(found.steps.columns) == list(STEP_COLUMNS)
    assert len(found.runs) == NIGHTS * CELLS * (1 + ROUNDS)
    assert len(found.steps) == NIGHTS * CELLS * ROUNDS * RANKS * STEPS
    assert set(found.cells.outcome) == {"measured"}


def test_steps_are_the_recorded_samples_in_their_place(root: Path) -> None:
    folder = sweeps(root)[1]
    steps = harness.load(root).steps
    for record in SweepStore.open(folder).records():
        if record.timing is None:
            continue
        of_run = steps[(steps.sweep == folder.name) & (steps.cell == record.spec.layout.label)]
        of_run = of_run[of_run["round"] == record.spec.repeat].sort_values(["rank", "step"])
        assert of_run.step_time_s.tolist() == [time for row in record.timing.step_time_s for time in row]
        assert of_run.cycle.tolist() == list(record.timing.cycles) * RANKS


def test_one_sweep_is_loaded_alike(root: Path) -> None:
    folder = sweeps(root)[0]
    alone, all_of_them = harness.load(folder), harness.load(root)
    assert alone.runs.step_time_s.dropna().tolist() == (
        all_of_them.runs[all_of_them.runs.sweep == folder.name].step_time_s.dropna().tolist()
    )
    assert "runs, cells, steps" in repr(alone)


def test_the_step_time_of_a_cell_is_the_median_of_all_its_steps() -> None:
    plan = make_plan(rounds=3)
    records = make_records(plan, {"ddp:r4": 0.1, "fsdp:s4": 0.2})
    tables = sweep_tables(plan, records, "x")
    rows = {row["cell"]: row for row in tables.cells.to_pylist()}
    rounds = [r for r in tables.runs.to_pylist() if r["cell"] == "ddp r4" and r["purpose"] == "time"]
    slowest = [r.timing.step_time_s[3] for r in records if r.timing and r.spec.layout.label == "ddp r4"]
    assert sorted(r["step_time_s"] for r in rounds) == pytest.approx(sorted(map(median, slowest)))
    assert rows["ddp r4"]["step_time_s"] == pytest.approx(median(time for times in slowest for time in times))
    middles = [sorted(map(math.log, times))[5:15] for times in slowest]  # of 20 steps
    assert rows["ddp r4"]["level_step_time_s"] == pytest.approx(math.exp(fmean(map(fmean, middles))))
    assert rows["ddp r4"]["tokens_per_s"] == pytest.approx(1000 / rows["ddp r4"]["step_time_s"])
    assert rows["hsdp r2s2"]["outcome"] == "not_run"
    assert rows["hsdp r2s2"]["step_time_s"] is None
    assert {c.label: c.outcome for c in compare(plan, []).cells}.keys() == rows.keys()


def test_nothing_there_is_said(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match=r"no sweep in .*; give a sweep's folder"):
        harness.load(tmp_path)


def cached(root: Path) -> list[Path]:
    return sorted((root / FOLDER).iterdir())


def test_the_cache_gives_what_the_records_give(root: Path) -> None:
    first = read_tables(root)
    assert [path.name for path in cached(root)] == ["cells.parquet", "runs.parquet"]
    times = [path.stat().st_mtime_ns for path in cached(root)]
    again = read_tables(root)
    assert [path.stat().st_mtime_ns for path in cached(root)] == times
    assert again.runs.equals(first.runs) and again.cells.equals(first.cells)


@pytest.mark.parametrize("damage", ["gone", "cut", "flipped", "other", "empty", "half"])
def test_a_broken_cache_changes_nothing(root: Path, damage: str) -> None:
    first = read_tables(root)
    for path in cached(root)[: 1 if damage == "half" else 2]:
        content = bytearray(path.read_bytes())
        content[len(content) // 3] ^= 0xFF
        broken = {"cut": content[: len(content) // 2], "flipped": content, "other": b"PAR1 not", "empty": b""}
        if damage in ("gone", "half"):
            path.unlink()
        else:
            path.write_bytes(bytes(broken[damage]))
    again = read_tables(root)
    assert again.runs.equals(first.runs) and again.cells.equals(first.cells)


def test_what_is_written_changed_or_removed_is_seen(root: Path) -> None:
    read_tables(root)
    folder = sweeps(root)[0]
    path = next(p for p in (folder / "records").iterdir() if json.loads(p.read_text())["timing"])
    record = json.loads(path.read_text())
    stat = path.stat()
    path.write_text(path.read_text().replace(f'"wall_s": {record["wall_s"]}', '"wall_s": 99.0'))
    os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns))  # as old as before, and as long
    assert path.stat().st_size == stat.st_size
    assert 99.0 in read_tables(root).runs["wall_s"].to_pylist()
    path.unlink()
    assert len(read_tables(root).runs) == NIGHTS * CELLS * (1 + ROUNDS) - 1
    write_nights(root / "more", 1, 1)
    next((root / "more").iterdir()).rename(root / "zz")
    assert read_tables(root).runs["sweep"].to_pylist()[-1] == "zz"


def test_only_what_is_stale_is_read_again(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read_tables(root)
    folder = sweeps(root)[2]
    next((folder / "records").iterdir()).unlink()
    read: list[Path] = []

    def noted(folders: Sequence[Path]) -> list[Tables]:
        read.extend(folders)
        return build(folders)

    monkeypatch.setattr("harness.history.cache.build", noted)
    read_tables(root)
    assert read == [folder]


def test_a_folder_that_cannot_be_written_is_read_all_the_same(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(path: Path, content: bytes) -> None:
        raise StoreError(f"cannot write {path}: Read-only file system")

    monkeypatch.setattr("harness.history.cache.write_atomic", full)
    assert len(read_tables(root).runs) == NIGHTS * CELLS * (1 + ROUNDS)
    assert not (root / FOLDER).exists()


def test_a_record_that_cannot_be_read_is_named(root: Path) -> None:
    read_tables(root)
    path = next((sweeps(root)[0] / "records").iterdir())
    path.write_text("{")
    with pytest.raises(StoreError, match=f"{path.name} is not JSON"):
        read_tables(root)


def test_several_processes_read_what_one_does(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    alone = read_tables(root)
    monkeypatch.setattr("harness.history.build.FEWEST_RECORDS", 1)
    monkeypatch.setattr("harness.history.build.os.sched_getaffinity", lambda _: {0, 1})
    for path in cached(root):
        path.unlink()
    assert read_tables(root).runs.equals(alone.runs)
    path = next((sweeps(root)[0] / "records").iterdir())
    path.write_text("{")
    with pytest.raises(StoreError, match=f"{path.name} is not JSON"):
        read_tables(root)


def test_a_signature_is_of_the_files_that_count(root: Path) -> None:
    folder = sweeps(root)[0]
    before = signature(folder)
    (folder / "report").mkdir()
    (folder / "records" / ".new.json.x").touch()
    assert signature(folder) == before
    (folder / "sweep.json").touch()
    assert signature(folder) != before


def test_a_change_point_is_where_the_level_changes() -> None:
    rng = np.random.default_rng(1)
    noise = rng.standard_normal(40)
    assert change_points(noise.tolist()) == ()
    step = noise + 5 * (np.arange(40) >= 30)
    assert change_points(step.tolist()) == (30,)
    two = noise + 5 * (np.arange(40) >= 15) - 8 * (np.arange(40) >= 30)
    assert change_points(two.tolist()) == (15, 30)
    assert change_points([1.0] * 30) == ()
    assert change_points([0.0, 0.0, 0.0, 9.0, 9.0]) == ()  # too few nights to tell


def test_one_odd_night_is_no_change() -> None:
    values = np.random.default_rng(2).standard_normal(40)
    values[20] += 10
    assert change_points(values.tolist()) == ()


def test_equal_nights_raise_alarms_no_more_often_than_stated() -> None:
    rng = np.random.default_rng(3)
    alarms = sum(bool(change_points(rng.standard_normal(20).tolist(), 0.05)) for _ in range(200))
    assert alarms <= 17  # of 200 at 5%: more than 17 comes by chance once in 100 times


def nights(count: int, change: int, *, all_cells: bool = False, ground_from: int | None = None) -> History:
    """Nights of three layouts; from night ``change`` on fsdp takes 30% longer, or all do."""
    import pyarrow as pa

    rng = np.random.default_rng(4)
    tables = []
    for night in range(count):
        plan = make_plan(rounds=1).model_copy(update={"created_at": (FIRST + timedelta(days=night)).isoformat()})
        slow = 1.3 if night >= change else 1.0
        times = {"ddp:r4": 0.1, "fsdp:s4": 0.13, "hsdp:r2s2": 0.15}
        noisy = {text: time * float(np.exp(0.02 * rng.standard_normal())) for text, time in times.items()}
        slowed = {text: time * (slow if all_cells or text == "fsdp:s4" else 1.0) for text, time in noisy.items()}
        records = make_records(plan, slowed)
        if ground_from is not None and night >= ground_from:
            records = [r.model_copy(update={"ground": make_ground(torch="2.14.0")}) for r in records]
        tables.append(sweep_tables(plan, records, f"n{night:02d}").cells)
    return history(pa.concat_tables(tables))


def test_a_slower_layout_is_dated_and_named_with_whom_it_no_longer_beats() -> None:
    found = nights(24, 16)
    (change,) = found.changes
    assert (change.label, found.nights[change.night].sweep) == ("fsdp s4", "n16")
    assert change.speed.low < 1 / 1.3 < change.speed.high
    (overtaking,) = found.overtakings
    assert (overtaking.leader, overtaking.other) == ("fsdp s4", "hsdp r2s2")
    assert overtaking.before.low < 0.15 / 0.13 < overtaking.before.high
    lines = event_lines(found)
    assert lines[0].startswith("2026-01-17: fsdp s4 -2") and "against the other cells (n16, commit" in lines[0]
    assert lines[1].startswith("fsdp s4 used to beat hsdp r2s2, +1")
    assert event_lines(found, since=17) == ["no change of level in any cell"]


def test_what_slows_all_cells_is_a_change_of_all() -> None:
    found = nights(24, 16, all_cells=True)
    assert [(c.label, c.night) for c in found.changes] == [(ALL_CELLS, 16)]
    assert found.overtakings == ()


def test_another_ground_begins_anew() -> None:
    found = nights(24, 12, ground_from=12)
    assert found.changes == ()
    assert event_lines(found) == ["2026-01-13: another ground (torch 2.14.0)"]


def test_unchanged_nights_are_so() -> None:
    found = nights(24, 99)
    assert (found.changes, found.overtakings) == ((), ())


def test_the_command_shows_table_and_picture(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    picture = root / "out" / "h.svg"
    assert _run(["history", "--results", str(root), "--picture", str(picture), "--json"]) == 0
    out, err = capsys.readouterr()
    document = json.loads(out)
    assert [night["sweep"] for night in document["nights"]] == [folder.name for folder in sweeps(root)]
    assert "4 nights, 2026-01-01 to 2026-01-04: tiny, 8 x 64 tokens, 4 cpu" in err
    assert picture.read_text().startswith("<?xml")
    assert _run(["history", "--results", str(root), "--cell", "fsdp s4", "--markdown"]) == 0
    text = capsys.readouterr().out
    assert "| fsdp s4" in text and "| ddp r4" not in text
    assert (root / "history.png").read_bytes().startswith(b"\x89PNG")


def test_wrong_use_of_the_command(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for arguments, message in (
        (["--cell", "fsdp s9"], "unknown cell 'fsdp s9'; choose one of: ddp r4, fsdp s4"),
        (["--picture", "h.gif"], "choose one of: .png, .svg"),
        (["weekly-"], "no sweep whose name begins with 'weekly-'"),
    ):
        assert _run(["history", *arguments, "--results", str(root)]) == 2
        assert message in capsys.readouterr().err


def test_a_cell_that_is_not_there_is_refused(root: Path) -> None:
    with pytest.raises(UnknownNameError, match="unknown cell 'x'"):
        history(read_tables(root).cells, labels=["x"])


def test_nights_without_a_timed_cell_are_drawn_as_nothing() -> None:
    found = nights(8, 99)
    untimed = found.cells[0].model_copy(update={"tokens_per_s": (None,) * 8, "relative_speed": (None,) * 8})
    for cells in ((), (untimed,)):
        picture = history_bytes(found.model_copy(update={"cells": cells, "changes": ()}), ".png")
        assert picture.startswith(b"\x89PNG")


def test_forty_layouts_and_two_are_drawn() -> None:
    found = nights(8, 99)
    many = found.model_copy(
        update={"cells": tuple(found.cells[0].model_copy(update={"label": f"cell {n}"}) for n in range(40))}
    )
    assert len(history_bytes(many, ".png")) > len(history_bytes(found, ".png"))
    assert "ddp r4" in history_text(found)
