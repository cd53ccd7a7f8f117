"""A study of checkpoints: its parts announced, what it keeps of an earlier one, and its interruption."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from harness.checkpoint.study import CheckpointStudy, LayoutStudy, Pair
from harness.cli import _run
from harness.execute import checkpoints
from harness.execute.checkpoints import left_text
from harness.execute.ranks import RankError
from harness.launch.folder import RankEnd
from harness.layout import Layout
from harness.store import SweepStore
from harness.workload import make_workload
from tests.unit.factories import layout, make_store

FAILED = "rank 0 ended with exit code 1"


def pair(source: str, target: str, time_s: float | None) -> Pair:
    return Pair(source=source, source_ranks=2, target=target, target_ranks=2, time_s=time_s)


@pytest.fixture
def no_ranks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every part fails at once, as if its ranks had died."""

    def fail(*_: object) -> None:
        raise RankError([RankEnd(rank=0, exit_code=1)])

    monkeypatch.setattr(checkpoints, "_Groups", lambda *_: fail)


def study(tmp_path: Path, layouts: Sequence[Layout], **more: Any) -> tuple[CheckpointStudy, list[CheckpointStudy]]:
    kept: list[CheckpointStudy] = []
    workload = make_workload("tiny", 8, 32)
    found = checkpoints.study(layouts, workload, "cpu", tmp_path, "command", keep=kept.append, **more)
    return found, kept


def test_what_is_not_measured_anew_stays(tmp_path: Path, no_ranks: None) -> None:
    first, _ = study(tmp_path, [layout("ddp:r2")])
    done = first.model_copy(
        update={
            "layouts": (LayoutStudy(layout="ddp:r2"), LayoutStudy(layout="fsdp:s2")),
            "pairs": (pair("ddp:r2", "ddp:r2", 1.0), pair("fsdp:s2", "ddp:r2", 2.0)),
        }
    )
    found, kept = study(tmp_path, [layout("fsdp:s2")], earlier=done)
    assert [(one.layout, one.error) for one in found.layouts] == [("ddp:r2", None), ("fsdp:s2", FAILED)]
    assert kept[0].pairs == done.pairs  # also in the first of what is kept, which an interruption leaves
    assert [(one.source, one.target, one.reason) for one in found.pairs] == [
        ("ddp:r2", "ddp:r2", None),
        ("fsdp:s2", "ddp:r2", None),
        ("fsdp:s2", "fsdp:s2", f"not saved: {FAILED}"),
    ]


def test_figures_of_another_host_are_not_put_beside_this_one(tmp_path: Path, no_ranks: None) -> None:
    first, _ = study(tmp_path, [layout("ddp:r2")])
    elsewhere = first.model_copy(update={"host": "elsewhere"})
    found, _ = study(tmp_path, [layout("fsdp:s2")], earlier=elsewhere)
    assert [one.layout for one in found.layouts] == ["fsdp:s2"]


def test_every_part_is_announced_with_its_number(tmp_path: Path, no_ranks: None) -> None:
    said: list[str] = []
    study(tmp_path, [layout("ddp:r2"), layout("fsdp:s2")], say=said.append)
    assert [line.split("]")[0] for line in said] == [f"[{number}/6" for number in range(1, 7)]
    assert "left" not in said[0]
    assert said[5].endswith(", about 0 s left")


def test_the_time_that_is_left_is_in_words() -> None:
    assert [left_text(seconds) for seconds in (4.4, 89.0, 120.0)] == ["4 s", "89 s", "2 min"]


def test_an_interruption_does_not_send_to_resume(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    store = make_store(tmp_path)

    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(checkpoints, "_Groups", lambda *_: interrupted)
    assert _run(["checkpoint", "measure"]) == 130
    err = capsys.readouterr().err
    assert "parts that were measured are kept in sweep sweep" in err
    assert "resume" not in err
    assert [path.name for path in store.folder.glob(".checkpoint-study-*")] == []
    assert SweepStore(store.folder).checkpoint_study() is None
