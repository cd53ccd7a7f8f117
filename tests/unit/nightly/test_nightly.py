"""Suites, verdicts on hand-made sweeps, pruning."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from harness.cli import _run
from harness.compare import Comparison, compare
from harness.errors import UsageError
from harness.nightly.prune import DAY_S, prune_logs
from harness.nightly.suite import Suite, read_suite
from harness.nightly.summary import summary
from harness.nightly.verdict import Change, against
from tests.unit.factories import make_failed_record, make_ground, make_plan, make_records, replace_record

TIMES = {"ddp:r4": 0.1, "fsdp:s4": 0.2, "hsdp:r2s2": 0.15}


def sweep(**times: float) -> Comparison:
    plan = make_plan()
    return compare(plan, make_records(plan, {**TIMES, **{k.replace("_", ":", 1): v for k, v in times.items()}}))


def changes(tonight: Comparison, before: Comparison) -> dict[str, Change]:
    return {cell.label: cell.change for cell in against(tonight, before, 0.05).cells}


def test_the_same_night_twice_is_unchanged() -> None:
    assert changes(sweep(), sweep()) == dict.fromkeys(("ddp r4", "fsdp s4", "hsdp r2s2"), Change.TIE)


def test_a_cell_that_takes_a_fifth_longer_is_slower_and_by_how_much() -> None:
    verdict = against(sweep(fsdp_s4=0.24), sweep(), 0.05)
    (slower,) = verdict.having(Change.SLOWER)
    assert slower.label == "fsdp s4"
    assert slower.speed is not None
    assert slower.speed.ratio == pytest.approx(0.2 / 0.24)
    text = summary(sweep(fsdp_s4=0.24), [verdict], 1)
    assert "REGRESSION" in text.splitlines()[0]
    assert "  fsdp s4: slower, speed -16.7% [" in text


def test_a_cell_that_is_a_fifth_faster_is_faster() -> None:
    assert changes(sweep(fsdp_s4=0.16), sweep())["fsdp s4"] is Change.FASTER


def test_a_loss_below_the_stated_share_is_no_regression() -> None:
    assert changes(sweep(fsdp_s4=0.206), sweep())["fsdp s4"] is Change.TIE


def test_a_cell_that_fails_tonight_is_broken_with_its_reason() -> None:
    plan = make_plan()
    records = replace_record(make_records(plan, TIMES), make_failed_record(plan, "fsdp:s4"))
    (broken,) = against(compare(plan, records), sweep(), 0.05).having(Change.BROKEN)
    assert broken.label == "fsdp s4"
    assert broken.reason is not None and "rank 2" in broken.reason


def test_another_driver_or_torch_is_not_compared_and_the_field_is_named() -> None:
    plan = make_plan()
    records = [r.model_copy(update={"ground": make_ground(torch="2.14.0")}) for r in make_records(plan, TIMES)]
    verdict = against(compare(plan, records), sweep(), 0.05)
    assert len(verdict.having(Change.INCOMPARABLE)) == 3
    assert verdict.cells[0].reason == "torch: 2.13.0 then, 2.14.0 now"


def test_another_commit_is_what_nights_are_compared_for() -> None:
    plan = make_plan()
    records = [r.model_copy(update={"ground": make_ground(commit="fedcba9")}) for r in make_records(plan, TIMES)]
    assert set(changes(compare(plan, records), sweep()).values()) == {Change.TIE}


def test_one_round_is_too_few() -> None:
    plan = make_plan(rounds=1)
    one = compare(plan, make_records(plan, TIMES))
    assert set(changes(one, one).values()) == {Change.TOO_FEW}


def test_the_committed_suite_is_read() -> None:
    path = Path(__file__).parents[3] / "slurm" / "suites" / "nightly.toml"
    suite = read_suite(str(path))
    assert suite.name == "nightly"
    arguments = suite.arguments("x", Path("results"))
    assert arguments[:5] == ["run", "--name", "x", "--results", "results"]
    assert arguments[arguments.index("--rounds") + 1] == "5"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("colour = 1", "unknown key in suite .* 'colour'; choose one of: name, description, model"),
        ("rounds = 1", "rounds: Input should be greater than or equal to 2"),
        ("layouts = ['zero3']", "layouts: .*unknown layout 'zero3'"),
        ("rounds = ", "is not TOML"),
        ("name = 'a b'", "name: .*use letters"),
    ],
)
def test_a_suite_with_a_mistake_names_it(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "s.toml").write_text(text)
    with pytest.raises(UsageError, match=message):
        read_suite(str(tmp_path / "s.toml"))


def test_an_absent_suite_is_exit_code_2(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert _run(["nightly", "absent"]) == 2
    assert "cannot read suite slurm/suites/absent.toml" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_only_logs_that_are_old_and_many_are_pruned(tmp_path: Path) -> None:
    for age in range(5):
        folder = tmp_path / f"s{age}"
        for name in ("records", "launches/001", "jobs", "report"):
            (folder / name).mkdir(parents=True)
        (folder / "launches" / "001" / "collected").touch()
        (folder / "sweep.json").touch()
        made = 1e9 - age * 10 * DAY_S
        os.utime(folder / "sweep.json", (made, made))
    (tmp_path / "s4" / "launches" / "001" / "collected").unlink()
    removed = prune_logs(list(tmp_path.iterdir()), keep_days=15, keep_count=1, now=1e9)
    assert {path.relative_to(tmp_path).as_posix() for path in removed} == {
        *("s2/launches", "s2/jobs", "s3/launches", "s3/jobs"),
    }
    assert (tmp_path / "s3" / "records").is_dir()
    assert Suite(name="x").keep_logs_days == 28
