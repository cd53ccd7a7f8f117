"""Scoring of tables of published runs."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from harness.cli.score import score as command
from harness.errors import UsageError
from harness.score.score import score
from harness.score.table import read_table

BASE = {
    "id": "made-1",
    "source_id": "made",
    "gpu": "A100-80GB",
    "gpu_mem_gb": "80",
    "n_gpus": "64",
    "gpus_per_node": "8",
    "layers": "32",
    "hidden": "4096",
    "ffn": "14336",
    "heads": "32",
    "kv_heads": "8",
    "vocab": "128256",
    "params_b": "8.03",
    "seq_len": "8192",
    "micro_batch": "1",
    "grad_accum": "1",
    "global_batch_seqs": "64",
    "precision": "bf16",
    "ac_mode": "full",
    "framework": "torchtitan FSDP2",
    "sharding": "FSDP",
    "dp_replicate": "1",
    "dp_shard": "64",
    "tp": "1",
    "cp": "1",
    "pp": "1",
    "tok_s_gpu": "2500",
    "peak_mem_gib": "",
    "status": "ok",
    "suspect": "",
    "compare_group": "",
    "tflops_gpu": "",
    "mfu_def": "",
    "zero_stage": "",
    "interconnect_raw": "",
}


def table(tmp_path: Path, *changes: dict[str, str]) -> Path:
    path = tmp_path / "table.csv"
    with path.open("w", newline="") as out:
        writer = csv.DictWriter(out, list(BASE))
        writer.writeheader()
        writer.writerows({**BASE, "id": f"made-{at}", **change} for at, change in enumerate(changes))
    return path


def test_rows_become_jobs(tmp_path: Path) -> None:
    rows, left = read_table(table(tmp_path, {}, {"params_b": "7.5"}))
    assert not left
    job = rows[0].job
    assert (job.world_size, job.sharding, job.recompute, job.model.gated, job.model.tied) == (
        64,
        "zero3",
        "full",
        True,
        False,
    )
    # 0.53 billion fewer are a head that is tied to the embedding
    assert rows[1].job.model.tied


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"suspect": "yes"}, "marked as suspect"),
        ({"gpu": "TPU v5p"}, "accelerator is not in the catalogue"),
        ({"layers": ""}, "model's layers not stated"),
        ({"dp_shard": "32"}, "axes do not multiply to the number of GPUs"),
        ({"tok_s_gpu": ""}, "states neither speed nor memory"),
        ({"tok_s_gpu": "fast"}, "tok_s_gpu is not a number"),
        ({"micro_batch": "", "global_batch_seqs": ""}, "batch is not stated"),
        ({"sharding": "ZeRO++ (qwZ)"}, "quantised communication"),
    ],
)
def test_rows_left_out_say_why(tmp_path: Path, change: dict[str, str], reason: str) -> None:
    rows, left = read_table(table(tmp_path, change))
    assert not rows
    assert [one.reason for one in left] == [reason]


def test_a_stated_flop_rate_becomes_a_speed(tmp_path: Path) -> None:
    rows, left = read_table(table(tmp_path, {"tok_s_gpu": "", "tflops_gpu": "150"}))
    assert (rows, left[0].reason) == ([], "states neither speed nor memory")  # of an unknown definition
    rows, _ = read_table(table(tmp_path, {"tok_s_gpu": "", "tflops_gpu": "150", "mfu_def": "6N + 12Lds"}))
    model = rows[0].job.model
    assert rows[0].tokens_per_s == pytest.approx(150e12 / (6 * model.params + 12 * 32 * 4096 * 8192))


def test_errors_orders_and_fits(tmp_path: Path) -> None:
    slow = {"ac_mode": "full", "tok_s_gpu": "2000", "compare_group": "a"}
    fast = {"ac_mode": "none", "tok_s_gpu": "3000", "compare_group": "a"}
    too_big = {
        "dp_replicate": "64",
        "dp_shard": "1",
        "sharding": "DDP",
        "zero_stage": "0",
        "tok_s_gpu": "",
        "status": "oom",
    }
    rows, left = read_table(table(tmp_path, slow, fast, too_big))
    found = score("made", rows, left)
    assert len(found.sources) == 1
    of = found.sources[0]
    assert (of.pairs, of.pairs_right) == (1, 1)
    assert (of.rows, of.speed_rows) == (3, 2)
    # 16 bytes a parameter are 120 GiB
    assert (of.false_fits, of.false_does_not_fit) == (0, 0)
    errors = [row.speed_error for row in found.rows if row.speed_error is not None]
    assert of.speed_bias == pytest.approx(sum(errors) / 2)


def test_command(tmp_path: Path) -> None:
    path = table(tmp_path, {}, {"suspect": "yes"})
    done = CliRunner().invoke(command, [str(path), "--json"], standalone_mode=False)
    form = json.loads(done.stdout)
    assert form["left_out"] == {"made": {"marked as suspect": 1}}
    assert form["rows"][0]["split"] in ("calibration", "evaluation")
    assert "left out of made: 1 marked as suspect" in done.stderr


def test_a_file_of_another_kind(tmp_path: Path) -> None:
    path = tmp_path / "other.csv"
    path.write_text("a,b\n1,2\n")
    with pytest.raises(UsageError, match="lacks the columns"):
        read_table(path)
