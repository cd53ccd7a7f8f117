"""What ``meshsweep plan`` refuses, and that it loses nothing to what it cannot do."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from harness.cli import _run
from harness.workload import make_workload
from tests.unit.factories import make_store

Form = dict[str, Any]
CLUSTER = ("--model", "1b", "--nodes", "1", "--gpus-per-node", "2", "--gpu", "h100-sxm")


@pytest.fixture(autouse=True)
def in_an_empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def refused(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert _run(["plan", *arguments]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.count("\n") == 1
    return captured.err


def form(capsys: pytest.CaptureFixture[str], *arguments: str) -> Form:
    assert _run(["plan", *arguments, "--json"]) == 0
    found: Form = json.loads(capsys.readouterr().out)
    return found


def test_a_sweep_grows_to_a_number_of_nodes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    make_store(tmp_path)
    found = form(capsys, "--measured", "sweep", "--nodes", "4")
    assert found["nodes"] == [1, 2, 4]
    first = {one["layout"]: one["step_time_s"] for one in found["layouts"] if one["nodes"] == 1}
    assert list(first.values()) == pytest.approx([0.1, 0.15, 0.2])


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["--nodes", "4", "--gpus-per-node", "8"], "--gpus-per-node"),
        (["--nodes", "4", "--layouts", "ddp", "--csv", "--trace"], "--layouts, --trace, --csv"),
        (["--nodes", "4", "--model", "8b", "--plot", "x.png"], "--model, --plot"),
        (["--nic-gbit-per-s", "10"], "--nic-gbit-per-s; --gpu and --nic-gbit-per-s need --nodes as well"),
    ],
)
def test_what_a_sweep_says_itself_is_not_given(
    arguments: list[str], named: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    make_store(tmp_path)
    assert f"does not go with {named}\n" in refused(capsys, "--measured", "sweep", *arguments)


def test_a_sweep_of_cpus_takes_no_gpu(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    make_store(tmp_path)
    message = refused(capsys, "--measured", "sweep", "--nodes", "4", "--gpu", "h100-sxm")
    assert "the sweep ran on CPUs; leave out --gpu" in message


@pytest.mark.parametrize("option", ["--nic-gbit-per-s", "--storage-gb-per-s"])
@pytest.mark.parametrize("value", ["-5", "0", "nan", "inf", "1e308", "1e-300"])
def test_rates_are_finite_and_above_zero(option: str, value: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert f"Invalid value for '{option}'" in refused(capsys, *CLUSTER, option, value)


def test_a_picture_is_a_png(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert "x.pdf: only PNG is drawn; end the name in .png" in refused(capsys, *CLUSTER, "--plot", "x.pdf")
    assert list(tmp_path.iterdir()) == []


def test_a_model_is_looked_for_in_the_current_folder(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "my_planned_model.py").write_text("def build():\n    return 3\n")
    message = refused(capsys, *CLUSTER[2:], "--model", "my_planned_model:build")
    assert "my_planned_model:build() returned int; it must return a harness.workload.ModelDefinition" in message


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (None, "curve.csv: No such file or directory; give columns collective, nodes"),
        ("collective,nodes\nallreduce,1\n", "curve.csv: 'mean_or_median_GBps'; give columns collective"),
        (
            "collective,nodes,mean_or_median_GBps\nallreduce,1,-3\n",
            "allreduce on 1 nodes at -3 GB/s; give numbers above 0",
        ),
        (
            "collective,nodes,mean_or_median_GBps\nallgather,0,3\n",
            "allgather on 0 nodes at 3 GB/s; give numbers above 0",
        ),
        (
            "collective,nodes,mean_or_median_GBps\nallgather,1,nan\n",
            "allgather on 1 nodes at nan GB/s; give numbers above",
        ),
    ],
)
def test_a_curve_that_is_none(
    text: str | None, message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    import re

    if text is not None:
        (tmp_path / "curve.csv").write_text(text)
    assert re.search(message, refused(capsys, *CLUSTER, "--bandwidth", "curve.csv"))


def test_what_cannot_be_traced_costs_nothing_else(capsys: pytest.CaptureFixture[str]) -> None:
    found = form(capsys, *CLUSTER, "--layouts", "fsdp1,ddp+compile=true", "--trace")
    assert len(found["layouts"]) == 2
    assert found["traced"] == []
    reasons = sorted(one["reason"].split(";")[0] for one in found["untraced"])
    ends = [reason.split(" cannot be traced")[1] for reason in reasons]
    assert ends == [" compiled", ": its wrapper cuts real tensors"]


def test_where_nothing_fits_there_is_nothing_to_trace(capsys: pytest.CaptureFixture[str]) -> None:
    assert _run(["plan", *CLUSTER[2:], "--model", "70b", "--trace"]) == 0
    assert "not traced: no layout fits; name those to trace with --layouts" in capsys.readouterr().out


def calibration(**changes: object) -> Form:
    """fsdp of ``tiny`` on 4 CPU ranks of 2 hosts: 10, 20 and 4 ms of compute, and one all-gather."""
    samples = [{"size_bytes": 1024, "time_s": [1e-3]}, {"size_bytes": 4096, "time_s": [2e-3]}]
    fit = {"operation": "all_gather", "latency_s": 1e-3, "max_relative_error": 0.0, "samples": samples}
    group = {"ranks": [0, 1, 2, 3], "hosts": 2, "fits": [fit]}
    rows = {"forward_s": [[0.01]] * 4, "backward_s": [[0.02]] * 4, "optimizer_s": [[0.004]] * 4}
    made: Form = {
        "created_at": "now",
        "device": "cpu",
        "backend": "gloo",
        "hosts": ["a", "b"],
        "axes": [{"uses": [["fsdp:s4", "dp_shard"]], "groups": [group]}],
        "workload": make_workload("tiny", 8, 64).model_dump(),
        "compute": [{"layout": {"strategy": "fsdp", "mesh": {"dp_shard": 4}}, **rows}],
    }
    return {**made, **changes}


def with_compute(**rows: object) -> Form:
    made = calibration()
    made["compute"][0].update(rows)
    return made


def with_samples(*samples: tuple[int, list[float]]) -> Form:
    made = calibration()
    made["axes"][0]["groups"][0]["fits"][0]["samples"] = [{"size_bytes": s, "time_s": t} for s, t in samples]
    return made


def test_a_whole_calibration_is_taken(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "c.json").write_text(json.dumps(calibration()))
    assert form(capsys, "--calibration", "c.json", "--layouts", "fsdp")["layouts"][0]["compute_measured"]


@pytest.mark.parametrize(
    ("made", "message"),
    [
        (calibration(schema_version=99), "schema_version: 99, and this version reads 1"),
        (calibration(hosts=[]), "hosts: none"),
        (calibration(device=3), "device: Input should be a valid string"),
        (with_compute(backward_s=[[0.02], [0.02, 0.01], [0.02], [0.02]]), "compute.0: fsdp:s4: .* a row a rank"),
        (with_compute(backward_s=[[0.02]] * 3), "compute.0: fsdp:s4: .* a row a rank"),
        (with_compute(forward_s=[], backward_s=[], optimizer_s=[]), "compute.0: fsdp:s4: .* a row a rank"),
        (with_compute(forward_s=[[]] * 4, backward_s=[[]] * 4, optimizer_s=[[]] * 4), "compute.0: .* a row a rank"),
        (with_compute(forward_s=[[0]] * 4, backward_s=[[0]] * 4), "compute.0: fsdp:s4: .* times must be above 0"),
        (with_compute(forward_s=[[-0.01]] * 4), "compute.0: fsdp:s4: .* times must be above 0"),
        (with_samples(), "axes.0: all_gather: samples: give one entry a size"),
        (with_samples((4096, [1.0]), (1024, [1.0])), "axes.0: all_gather: samples: give one entry a size, by growing"),
        (with_samples((1024, [1e-3, -1e-3])), "axes.0: all_gather: samples: times must be above 0"),
        (with_samples((1024, [])), "axes.0.groups.0.fits.0.samples.0.time_s: Tuple should have at least 1 item"),
    ],
)
def test_a_calibration_that_cannot_have_been_measured(
    made: Form, message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    import re

    (tmp_path / "c.json").write_text(json.dumps(made))
    assert re.search(f"c.json is no calibration \\({message}", refused(capsys, "--calibration", "c.json"))


def test_ranks_that_were_spread_unevenly_name_no_cluster(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "c.json").write_text(json.dumps(calibration(hosts=["a", "b", "c"])))
    message = refused(capsys, "--calibration", "c.json")
    assert "4 ranks were calibrated on 3 hosts; give --nodes and --gpus-per-node" in message
    found = form(capsys, "--calibration", "c.json", "--nodes", "2", "--gpus-per-node", "2", "--layouts", "fsdp")
    assert (found["nodes"], found["gpus_per_node"]) == (2, 2)


@pytest.mark.parametrize("option", [("--gpu", "h100-sxm"), ("--device", "cuda")])
def test_a_calibration_of_cpus_takes_no_gpu(
    option: tuple[str, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "c.json").write_text(json.dumps(calibration()))
    message = refused(capsys, "--calibration", "c.json", *option)
    assert "c.json is of CPU ranks; leave out --gpu and --device cuda, or calibrate GPUs" in message
