"""``status --watch``: what is drawn fits the window and tells what it leaves out; Ctrl-C ends the watching alone."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
from rich.console import Console

from harness.cli import _run, show, watch
from harness.execute.jobs import Running
from harness.launch.folder import write_launch
from harness.record import RunRecord
from harness.store import SweepStore
from harness.sweep.steps import next_launches
from tests.unit.factories import make_plan, make_records, make_store

OPTIONS = ("", "+activation_checkpointing=full", "+activation_checkpointing=selective", "+precision=bf16")
LAYOUTS = tuple(f"{strategy}{options}" for strategy in ("ddp:r4", "fsdp:s4", "hsdp:r2s2") for options in OPTIONS)


@pytest.fixture
def store(tmp_path: Path) -> SweepStore:
    """12 layouts, all of which are to be verified."""
    made = SweepStore.create(tmp_path / "results", make_plan(LAYOUTS))
    for launch in next_launches(made.plan(), (), 0):
        write_launch(made.launch_folder(launch.launch_id), launch)
    return made


def drawn(
    store: SweepStore, states: list[str], size: tuple[int, int], records: tuple[RunRecord, ...] = ()
) -> list[str]:
    """The lines of a picture with a job of each of ``states``."""
    names = [path.name for path in store.launches()]
    jobs = [Running(str(41 + at), state, (names[at],)) for at, state in enumerate(states)]
    console = Console(file=io.StringIO(), width=size[0], height=size[1])
    console.print(watch.picture(store, store.plan(), records, jobs, None, size))
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue().splitlines()


@pytest.mark.parametrize("size", [(80, 24), (120, 40), (60, 16)])
def test_a_picture_fits_its_window_and_accounts_for_every_cell_and_job(
    store: SweepStore, size: tuple[int, int]
) -> None:
    lines = drawn(store, ["RUNNING"] * 2 + ["PENDING"] * 6, size)
    assert len(lines) < size[1]
    assert max(map(len, lines)) <= size[0]
    hidden = [line for line in lines if line.startswith("and ")]
    shown = sum("to verify" in line and not line.startswith("and ") for line in lines)
    left = sum(int(line.split()[1]) for line in hidden if "to verify" in line)
    assert shown + left == len(LAYOUTS)
    jobs = sum(line.split()[:1] == [str(job)] for job in range(41, 49) for line in lines)
    assert jobs + sum(int(line.split()[1]) for line in hidden if "PENDING" in line) == 8
    assert lines[-1].startswith("0 records; 13 launches to go")
    assert bool(hidden) is (size[1] < 40)


def test_cells_with_something_left_to_do_are_kept_in_the_picture(store: SweepStore) -> None:
    plan = store.plan()
    records = tuple(make_records(plan, dict.fromkeys(LAYOUTS[:9], 0.1)))
    lines = drawn(store, [], (80, 12), records)
    open_cells = {one.label for one in plan.layouts} - {one.label for one in plan.layouts[:9]}
    assert {line.partition("  ")[0] for line in lines if "to verify" in line} == open_cells
    assert len(lines) < 12


def test_jobs_of_a_slurm_that_does_not_answer_are_not_shown_as_if_they_were_known(store: SweepStore) -> None:
    lines = drawn(store, ["unknown: Slurm does not answer"] * 2, (80, 40))
    assert "Slurm does not answer; jobs go on meanwhile" in lines
    assert [line.split()[1] for line in lines if line[:2] in ("41", "42")] == ["unknown"] * 2


def test_ctrl_c_ends_the_watching_with_the_table_and_says_nothing_of_the_sweep(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    make_store(tmp_path)

    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(watch, "watch", interrupted)
    assert _run(["status", "--watch"]) == 0
    out, err = capsys.readouterr()
    assert "ddp r4" in out and err == ""


def test_what_a_probe_waits_for_is_said_whenever_it_changes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    texts = ["PENDING", "PENDING", "RUNNING"]
    monkeypatch.setattr(show, "starting", lambda _: bool(texts))
    monkeypatch.setattr(show, "waiting_text", lambda _: texts.pop(0))
    monkeypatch.setattr("time.sleep", lambda _: None)
    assert not show._planned(tmp_path, as_json=False)
    assert capsys.readouterr().out == "PENDING\nRUNNING\n"


def test_looking_whether_a_sweep_is_driven_holds_nobody_up(tmp_path: Path) -> None:
    store = make_store(tmp_path)
    assert not store.driven
    with store.driving():
        assert store.driven
        assert SweepStore(store.folder).driven
    assert not store.driven
    (store.folder / "lock").unlink()
    assert not store.driven
