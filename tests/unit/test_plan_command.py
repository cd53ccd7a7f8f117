"""``meshsweep plan``."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from harness.cli.plan import plan
from harness.errors import UsageError
from harness.predict.memory import predict_memory
from harness.workload import make_workload
from tests.unit.factories import layout

Form = dict[str, Any]
COMMAND = ["--model", "70b", "--nodes", "16", "--gpus-per-node", "8", "--gpu", "h100-sxm", "--seq-len", "8192"]


def run(*arguments: str) -> tuple[str, str]:
    done = CliRunner().invoke(plan, list(arguments), standalone_mode=False)
    if done.exception is not None:
        raise done.exception
    return done.stdout, done.stderr


@pytest.fixture(scope="module")
def found() -> Form:
    form: Form = json.loads(run(*COMMAND, "--json")[0])
    return form


def test_what_fits_comes_first_by_speed(found: Form) -> None:
    fits = [one["fits"] for one in found["layouts"]]
    assert fits == sorted(fits, reverse=True)
    speeds = [one["tokens_per_s"] for one in found["layouts"] if one["fits"]]
    assert speeds == sorted(speeds, reverse=True)
    # 16 bytes a parameter are 1,051 GiB
    ddp = next(one for one in found["layouts"] if one["label"] == "ddp r128")
    assert not ddp["fits"]
    assert "is more than 73.6 GiB" in str(ddp["why"])


def test_traffic_of_flat_fsdp_by_hand(found: Form) -> None:
    fsdp = next(one for one in found["layouts"] if one["label"] == "fsdp s128")
    shard = next(axis for axis in fsdp["traffic"] if axis["axis"] == "dp_shard")
    block, root = 855_654_400, 2 * 128256 * 8192 + 8192
    # bf16 all-gathers in forward and for blocks in backward, fp32 reduce-scatters; and the clipping norms
    assert shard["algorithm_bytes"] == pytest.approx(80 * block * (2 + 2 + 4) + root * (2 + 4), rel=1e-6)
    assert shard["ring_bytes"] == pytest.approx(shard["algorithm_bytes"] * 127 / 128, rel=1e-6)
    # of 8 ring neighbours on a node one is on another node
    assert fsdp["cross_node_share"] == pytest.approx(1 / 8)


def test_every_number_has_its_provenance(found: Form) -> None:
    assert {one["provenance"] for one in found["numbers"]} == {"nominal", "fitted"}
    assert all(one["source"] for one in found["numbers"])


def test_csv_and_table_show_every_layout() -> None:
    rows = list(csv.DictReader(io.StringIO(run(*COMMAND, "--csv")[0])))
    text = run(*COMMAND)[0]
    assert len(rows) == 26
    assert all(f"{row['layout'].split('+')[0].replace(':', ' ')} " in text for row in rows)
    assert {"cross_node_dp_shard_bytes", "checkpoint_files", "exposed_tp_s"} <= set(rows[0])


def test_modes_of_checkpointing_can_be_fixed() -> None:
    rows = list(csv.DictReader(io.StringIO(run(*COMMAND, "--activation-checkpointing", "none", "--csv")[0])))
    assert all(row["fits"] == "no" for row in rows)
    assert "activation_checkpointing" not in rows[0]["layout"]


def test_what_a_layout_names_itself_is_kept_also_where_it_is_a_default() -> None:
    own = "fsdp:s128+precision=fp32+activation_checkpointing=none"
    rows = list(csv.DictReader(io.StringIO(run(*COMMAND, "--layouts", f"{own},hsdp:r2s64", "--csv")[0])))
    assert {row["layout"] for row in rows} == {
        "fsdp:s128",
        "hsdp:r2s64+precision=bf16+activation_checkpointing=full",
    }


def test_a_measured_group_replaces_the_nominal_network(tmp_path: Path) -> None:
    fit: Form = {"latency_s": 5.0, "bandwidth_bytes_per_s": 1e9, "max_relative_error": 0.0}
    fit["samples"] = [{"size_bytes": 1024, "time_s": [5.0]}]
    fits = [{"operation": name, **fit} for name in ("all_gather", "reduce_scatter", "all_reduce")]
    group = {"ranks": list(range(128)), "hosts": 16, "fits": fits}
    uses = [["fsdp:s128", "dp_shard"]]
    path = tmp_path / "calibration.json"
    ground = {"created_at": "now", "device": "cuda", "backend": "nccl", "hosts": ["a", "b"]}
    path.write_text(json.dumps({**ground, "axes": [{"uses": uses, "groups": [group]}]}))
    form = json.loads(run(*COMMAND, "--layouts", "fsdp", "--calibration", str(path), "--json")[0])
    # 80 blocks: two gathers and a scatter, 5 s each, and their bytes at 1 GB/s
    block = 855_654_400 * 8 / 1e9
    assert form["layouts"][0]["time"]["communication_s"]["dp_shard"] == pytest.approx(80 * (15 + block), rel=1e-3)
    assert "measured" in {one["provenance"] for one in form["numbers"]}


def test_a_picture(tmp_path: Path) -> None:
    path = tmp_path / "plan.png"
    run(*COMMAND, "--plot", str(path))
    assert path.read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--nodes", "1", "--gpus-per-node", "8"], "which accelerator"),
        (["--nodes", "1", "--gpus-per-node", "8", "--gpu", "h1000"], "unknown GPU 'h1000'"),
        (["--nodes", "1", "--gpus-per-node", "8", "--gpu", "b200", "--device", "cpu"], "plan predicts accelerators"),
        (["--nodes", "2", "--gpu", "b200"], "--gpus-per-node"),
        (["--gpu", "b200", "--calibration", "nowhere.json"], "is no calibration"),
    ],
)
def test_wrong_use(arguments: list[str], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        run(*arguments)


def calibrated(tmp_path: Path) -> str:
    """fsdp of ``tiny`` on 2 nodes with 2 CPU ranks each: 10, 20 and 4 ms of compute; no groups were timed."""
    rows = {"forward_s": [[0.01]] * 4, "backward_s": [[0.02]] * 4, "optimizer_s": [[0.004]] * 4}
    place = {"strategy": "fsdp", "mesh": {"dp_shard": 4}}
    ground = {"created_at": "now", "device": "cpu", "backend": "gloo", "hosts": ["a", "b"], "axes": []}
    work = make_workload("tiny", 8, 64).model_dump()
    path = tmp_path / "calibration.json"
    path.write_text(json.dumps({**ground, "workload": work, "compute": [{"layout": place, **rows}]}))
    return str(path)


def test_a_calibration_of_cpu_ranks_is_enough(tmp_path: Path) -> None:
    """Nodes, ranks, workload and precision are the calibrated ones; what was not profiled takes the median's factor."""
    form = json.loads(run("--calibration", calibrated(tmp_path), "--layouts", "fsdp,ddp", "--json")[0])
    assert (form["nodes"], form["gpus_per_node"], form["workload"]["global_batch"]) == (2, 2, 8)
    fsdp, ddp = (next(one for one in form["layouts"] if one["label"] == label) for label in ("fsdp s4", "ddp r4"))
    assert (fsdp["compute_measured"], ddp["compute_measured"]) == (True, False)
    assert [fsdp["time"]["compute_s"], fsdp["time"]["optimizer_s"]] == pytest.approx([0.03, 0.004])
    assert ddp["time"]["compute_s"] == pytest.approx(0.03, rel=0.05)  # the same work by formula
    assert fsdp["time"]["exposed_s"]["dp_shard"] > 0  # by nominal links
    assert {n["provenance"] for n in form["numbers"] if n["name"] == "compute"} == {"measured", "fitted"}
    assert (
        fsdp["memory"]["peak_bytes"]
        == predict_memory(layout("fsdp:s4"), make_workload("tiny", 8, 64), kernels="cpu").peak_bytes
    )


def test_more_ranks_keep_the_calibrated_samples_a_rank(tmp_path: Path) -> None:
    form = json.loads(
        run(
            "--calibration", calibrated(tmp_path), "--nodes", "4", "--gpus-per-node", "2", "--layouts", "fsdp", "--json"
        )[0]
    )
    (fsdp,) = form["layouts"]
    assert (form["workload"]["global_batch"], fsdp["label"], fsdp["compute_measured"]) == (16, "fsdp s8", True)
    assert [fsdp["time"]["compute_s"], fsdp["time"]["optimizer_s"]] == pytest.approx([0.03, 0.002])
