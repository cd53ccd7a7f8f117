"""What other tools are given is read back by those tools, or by a stand-in with the calls they document."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pytest_benchmark.stats import Stats

from harness.cli import _run
from harness.compare import Comparison, compare
from harness.errors import UsageError
from harness.interchange.pytest_benchmark import read_benchmarks, statistics, to_benchmarks
from harness.interchange.trackers import to_mlflow, to_tensorboard, to_wandb, tracked_runs
from harness.report.benchmarks import benchmarks_text
from harness.store import SweepStore
from tests.unit.factories import make_plan, make_records

TIMES = {"ddp:r4": 0.1, "fsdp:s4": 0.2}


@pytest.fixture
def comparison() -> Comparison:
    plan = make_plan(rounds=3)
    return compare(plan, make_records(plan, TIMES))


@pytest.fixture
def results(tmp_path: Path) -> Path:
    plan = make_plan(rounds=3)
    store = SweepStore.create(tmp_path / "results", plan)
    for record in make_records(plan, TIMES):
        store.add(record)
    return tmp_path / "results"


@pytest.mark.parametrize("count", [1, 2, 3, 4, 5, 20, 21])
def test_statistics_are_those_of_pytest_benchmark(count: int) -> None:
    times = np.random.default_rng(count).lognormal(size=count).tolist()
    theirs = Stats()
    for time in times:
        theirs.update(time)
    ours = statistics(times)
    for name in ("min", "max", "mean", "stddev", "median", "q1", "q3", "iqr", "ld15iqr", "hd15iqr", "ops", "total"):
        assert ours[name] == pytest.approx(getattr(theirs, name)), name
    assert ours["outliers"] == theirs.outliers
    assert ours["rounds"] == theirs.rounds


def test_a_sweep_is_compared_by_pytest_benchmark_itself(results: Path, tmp_path: Path) -> None:
    path = tmp_path / "steps.json"
    assert _run(["export", "--to", "pytest-benchmark", "--output", str(path), "--results", str(results)]) == 0
    command = [sys.executable, "-m", "pytest_benchmark", "compare", str(path), "--columns=median,rounds"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "step[ddp:r4]" in done.stdout and "step[fsdp:s4]" in done.stdout


def test_its_file_is_reported_fastest_first(comparison: Comparison, tmp_path: Path) -> None:
    path = tmp_path / "steps.json"
    path.write_text(json.dumps(to_benchmarks(comparison)))
    read = read_benchmarks(path)
    assert {one.name: one.rounds for one in read} == {"step[ddp:r4]": 60, "step[fsdp:s4]": 60}
    assert read[0].median_s == pytest.approx(0.1)
    lines = benchmarks_text([("steps.json", read)]).splitlines()
    assert lines[2].split()[0] == "step[ddp:r4]" and lines[3].split()[0] == "step[fsdp:s4]"
    assert "10,000" in lines[2]  # 1,000 tokens in 0.1 s


def test_a_ground_without_hosts_is_an_unknown_node(comparison: Comparison) -> None:
    ground = comparison.grounds[0].model_copy(update={"hosts": ()})
    document = to_benchmarks(comparison.model_copy(update={"grounds": (ground,)}))
    assert document["machine_info"]["node"] == "unknown"


def test_the_command_reports_files(comparison: Comparison, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "steps.json"
    path.write_text(json.dumps(to_benchmarks(comparison)))
    assert _run(["benchmarks", str(path), str(path), "--json"]) == 0
    out, err = capsys.readouterr()
    assert [one["name"] for one in json.loads(out)] == ["step[ddp:r4]", "step[fsdp:s4]"] * 2
    assert "file" in err
    assert _run(["benchmarks", str(path), "--markdown"]) == 0
    assert capsys.readouterr().out.startswith("| benchmark")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("{", "is not JSON"),
        ("[]", "has no list 'benchmarks'"),
        ('{"benchmarks": [{"name": "x"}]}', "is not of pytest-benchmark's form"),
        ('{"benchmarks": [3]}', "is not of pytest-benchmark's form"),
    ],
)
def test_a_file_of_another_form_is_refused(tmp_path: Path, content: str, message: str) -> None:
    path = tmp_path / "x.json"
    path.write_text(content)
    with pytest.raises(UsageError, match=message):
        read_benchmarks(path)


def test_tensorboard_reads_what_was_written(comparison: Comparison, tmp_path: Path) -> None:
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    to_tensorboard(tracked_runs(comparison), tmp_path)
    read = EventAccumulator(str(tmp_path / "sweep" / "ddp-r4"))
    read.Reload()
    steps = read.Scalars("step_time_s")
    assert [one.step for one in steps] == list(range(60))
    expected = [time for one in comparison.samples if one.cell == "ddp r4" for time in one.step_time_s[3]]
    assert [one.value for one in steps] == pytest.approx(expected, rel=1e-6)
    (memory,) = read.Scalars("peak_memory_bytes")
    assert memory.value == 100 * 2**20
    assert "layout: ddp:r4" in read.Tensors("params")[0].tensor_proto.string_val[0].decode()


class Wandb:
    """Stands in for the module wandb: the calls of its documented API that are used."""

    def __init__(self) -> None:
        self.runs: list[Wandb.Run] = []

    class Run:
        def __init__(self, **settings: Any) -> None:
            self.settings = settings
            self.logged: list[tuple[int, dict[str, float]]] = []
            self.summary: dict[str, float] = {}
            self.finished = False

        def log(self, data: dict[str, float], step: int) -> None:
            self.logged.append((step, data))

        def finish(self) -> None:
            self.finished = True

    def init(self, *, project: str, group: str, name: str, config: dict[str, Any], dir: str, reinit: bool) -> Run:
        self.runs.append(self.Run(project=project, group=group, name=name, config=config))
        return self.runs[-1]


def test_wandb_gets_a_run_a_cell(comparison: Comparison, tmp_path: Path) -> None:
    client = Wandb()
    to_wandb(tracked_runs(comparison), tmp_path, client)
    named = {run.settings["name"]: run for run in client.runs}
    assert set(named) == {"ddp r4", "fsdp s4", "single r1"}
    run = named["ddp r4"]
    assert run.settings["group"] == "sweep" and run.settings["config"]["dp_replicate"] == 4
    assert [step for step, _ in run.logged] == list(range(60))
    assert run.summary["tokens_per_s"] == pytest.approx(10_000)
    assert all(run.finished for run in client.runs)


class Mlflow:
    """Stands in for the module mlflow: the calls of its documented fluent API that are used."""

    def __init__(self) -> None:
        self.uri: str | None = None
        self.calls: list[tuple[Any, ...]] = []

    def is_tracking_uri_set(self) -> bool:
        return self.uri is not None

    def set_tracking_uri(self, uri: str) -> None:
        self.uri = uri

    def set_experiment(self, name: str) -> None:
        self.calls.append(("experiment", name))

    @contextmanager
    def start_run(self, *, run_name: str) -> Iterator[None]:
        self.calls.append(("start", run_name))
        yield
        self.calls.append(("end", run_name))

    def log_params(self, params: dict[str, Any]) -> None:
        self.calls.append(("params", params))

    def log_metrics(self, metrics: dict[str, float]) -> None:
        self.calls.append(("metrics", metrics))

    def log_metric(self, key: str, value: float, step: int) -> None:
        self.calls.append(("metric", key, value, step))


def test_mlflow_gets_a_run_a_cell(comparison: Comparison, tmp_path: Path) -> None:
    client = Mlflow()
    to_mlflow(tracked_runs(comparison), tmp_path, client)
    assert client.uri == f"sqlite:///{tmp_path / 'mlflow.db'}"
    assert [name for kind, name, *_ in client.calls if kind == "start"] == ["ddp r4", "fsdp s4", "single r1"]
    assert sum(call[0] == "metric" for call in client.calls) == 120
    assert ("experiment", "meshsweep/sweep") in client.calls


@pytest.mark.parametrize("form", ["wandb", "mlflow"])
def test_a_tool_that_is_not_installed_is_named(
    results: Path, form: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, form, None)
    assert _run(["export", "--to", form, "--results", str(results)]) == 2
    assert f"pip install '.[{form}]' in meshsweep's folder" in capsys.readouterr().err


def test_wandb_itself_offline(comparison: Comparison, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("wandb")
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("WANDB_SILENT", "true")
    to_wandb(tracked_runs(comparison)[:1], tmp_path)
    assert len(list(tmp_path.glob("wandb/offline-run-*/run-*.wandb"))) == 1


def test_mlflow_itself_in_a_file(comparison: Comparison, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mlflow = pytest.importorskip("mlflow")
    pytest.importorskip("alembic")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{tmp_path}/x.db")
    to_mlflow(tracked_runs(comparison)[:1], tmp_path)
    (run,) = mlflow.MlflowClient().search_runs([mlflow.get_experiment_by_name("meshsweep/sweep").experiment_id])
    assert run.data.params["layout"] == "ddp:r4"
    assert run.data.metrics["tokens_per_s"] == pytest.approx(10_000)
