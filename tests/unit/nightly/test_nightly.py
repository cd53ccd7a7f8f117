"""Suites, verdicts on hand-made sweeps, pruning."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from harness.cli import _run
from harness.compare import Comparison, compare
from harness.compare.change import Change, Rule, compare_sweeps
from harness.errors import UsageError
from harness.nightly.prune import DAY_S, prune_logs
from harness.nightly.suite import Suite, read_suite
from harness.nightly.summary import exit_code, summary
from tests.unit.factories import make_failed_record, make_ground, make_plan, make_records, replace_record

TIMES = {"ddp:r4": 0.1, "fsdp:s4": 0.2, "hsdp:r2s2": 0.15}


def sweep(**times: float) -> Comparison:
    plan = make_plan(rounds=5)
    return compare(plan, make_records(plan, {**TIMES, **{k.replace("_", ":", 1): v for k, v in times.items()}}))


def test_the_night_in_a_few_lines() -> None:
    tonight = sweep(fsdp_s4=0.24)
    change = compare_sweeps(sweep(), tonight, Rule(slower=0.05))
    lines = summary(tonight, [change], exit_code(tonight, [change])).splitlines()
    assert lines[0] == "meshsweep nightly sweep: REGRESSION"
    assert lines[2].startswith("against sweep: 2 of 3 cells unchanged, all together 0.0% [")
    assert lines[3].startswith("  fsdp s4: slower, speed -16.7% [")


def test_a_night_is_clean_slower_or_broken() -> None:
    plan = make_plan(rounds=5)
    dead = compare(plan, replace_record(make_records(plan, TIMES), make_failed_record(plan, "fsdp:s4")))
    nights = {0: sweep(), 1: sweep(fsdp_s4=0.24), 2: dead}
    assert {exit_code(night, [compare_sweeps(sweep(), night)]) for night in nights.values()} == set(nights)
    assert all(exit_code(night, [compare_sweeps(sweep(), night)]) == code for code, night in nights.items())


def test_a_sweep_before_an_upgrade_makes_no_night_broken() -> None:
    plan = make_plan(rounds=5)
    records = [r.model_copy(update={"ground": make_ground(torch="2.14.0")}) for r in make_records(plan, TIMES)]
    tonight = compare(plan, records)
    change = compare_sweeps(sweep(), tonight)
    assert {cell.change for cell in change.cells} == {Change.INCOMPARABLE}
    assert exit_code(tonight, [change]) == 0


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
