"""Output options never touch measured data; sweeps that are being started are known to be."""

from __future__ import annotations

import fcntl
import json
from pathlib import Path

import click
import pytest

from harness.cli import _run, cli
from harness.cli.cluster import COMMAND, DETACHED_LOG, starting
from harness.cli.output import Output
from harness.store import SweepStore
from tests.unit.factories import make_plan, make_records

OUTPUTS = {"--output", "--out", "--junit", "--markdown", "--picture", "--save"}


@pytest.fixture(autouse=True)
def sweep(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    plan = make_plan().model_copy(update={"name": "s"})
    store = SweepStore.create(tmp_path / "results", plan)
    for record in make_records(plan, {"ddp:r4": 0.1, "fsdp:s4": 0.2}):
        store.add(record)
    return store.folder


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_every_output_option_is_of_the_type_that_spares_sweeps() -> None:
    groups = [c.commands.values() if isinstance(c, click.Group) else [c] for c in cli.commands.values()]
    options = [(one.name, option) for group in groups for one in group for option in one.params]
    outputs = [(name, o) for name, o in options if OUTPUTS & set(o.opts) and not getattr(o, "is_flag", False)]
    assert len(outputs) >= 9
    assert [(name, o.opts) for name, o in outputs if not isinstance(o.type, Output)] == []


@pytest.mark.parametrize(
    "arguments",
    [
        ["compare", "s", "s", "--junit", "results/s/sweep.json"],
        ["compare", "s", "s", "--markdown", "link"],
        ["compare", "s", "s", "--junit", "folder/new.xml"],
        ["export", "--to", "pytest-benchmark", "--output", "results/s/records/x.json"],
        ["export", "--to", "tensorboard", "--output", "results/s/report/../records"],
        ["report", "--output", "results/s"],
        ["history", "--picture", "results/s/history.png"],
        ["recommend", "--export", "vllm=results/s/records/vllm.sh"],
    ],
)
def test_measured_data_is_not_overwritten(
    arguments: list[str], sweep: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("link").symlink_to(sweep / "sweep.json")
    Path("folder").symlink_to(sweep)
    before = contents(sweep)
    assert _run(arguments) == 2
    assert "lies in the sweep s, among measured data; choose another place" in capsys.readouterr().err
    assert contents(sweep) == before


def test_the_report_folder_takes_outputs_and_a_folder_is_no_file(
    sweep: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert _run(["export", "--to", "pytest-benchmark", "--output", "results/s/report/b.json"]) == 0
    assert len(json.loads((sweep / "report" / "b.json").read_text())["benchmarks"]) == 2
    assert _run(["compare", "s", "s", "--junit", "results"]) == 2
    assert "--junit results is a folder; name a file" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("exports", "message"),
    [
        (["vllm=a", "megatron=a"], "two exports go to a; write --export megatron=OTHER_FILE"),
        (["vllm=a", "megatron=./b/../a"], "two exports go to"),
        (["vllm=a", "vllm=b"], "--export vllm is given twice"),
        (["vllm=a", "megatron=results/s/sweep.json"], "among measured data"),
        (["vllm=a", "megatron=file/b"], "cannot write file/b: "),
    ],
)
def test_exports_are_all_written_or_none(exports: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    Path("file").write_text("in the way")
    assert _run(["recommend", *(word for one in exports for word in ("--export", one))]) == 2
    assert message in capsys.readouterr().err
    assert not Path("a").exists()
    assert not Path("b").exists()


@pytest.mark.parametrize("price", ["nan", "inf", "1e308"])
def test_a_price_is_a_number(price: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert _run(["recommend", "--objective", "cost", "--price-per-gpu-hour", price]) == 2
    assert "Invalid value for '--price-per-gpu-hour': " in capsys.readouterr().err


def test_watch_ends_for_a_sweep_that_died_before_its_plan(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "results" / "dead"
    folder.mkdir()
    (folder / DETACHED_LOG).write_text("meshsweep: unknown layout\n")
    assert _run(["status", "dead", "--watch"]) == 0
    said = capsys.readouterr().out
    assert "its output: meshsweep: unknown layout" in said
    assert "nothing drives it; give 'meshsweep run' again" in said
    (folder / COMMAND).write_text("{}")
    assert _run(["status", "dead"]) == 0
    assert "nothing drives it; 'meshsweep resume dead' starts it again" in capsys.readouterr().out


def test_a_start_is_known_by_its_lock(tmp_path: Path) -> None:
    path = tmp_path / DETACHED_LOG
    assert not starting(tmp_path)
    with path.open("ab") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        assert starting(tmp_path)
    assert not starting(tmp_path)
