"""What ``meshsweep plan`` says of its own doubts: error bands, close fits, parts that add up, defaults."""

from __future__ import annotations

import csv
import io
import json
from typing import Any

import pytest
from click.testing import CliRunner

from harness.accelerators import ACCELERATORS
from harness.cli.plan import plan
from harness.predict.device import device_of
from harness.predict.error import CALIBRATED, SEEN, UNSEEN, ErrorBand, time_band

COMMAND = ["--model", "70b", "--nodes", "16", "--gpus-per-node", "8", "--gpu", "h100-sxm", "--seq-len", "8192"]
PARTS = ("parameters", "gradients", "optimizer", "unsharded", "activations", "buffers", "other")


def run(*arguments: str) -> tuple[str, str]:
    done = CliRunner().invoke(plan, list(arguments), catch_exceptions=False, standalone_mode=False)
    return done.stdout, done.stderr


@pytest.fixture(scope="module")
def rows() -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(run(*COMMAND, "--csv")[0])))


@pytest.fixture(scope="module")
def text() -> str:
    return run(*COMMAND)[0]


def test_memory_at_the_peak_adds_up_to_it(rows: list[dict[str, str]]) -> None:
    for row in rows:
        parts = [int(row[f"at_peak_{part}_bytes"]) for part in PARTS]
        assert sum(parts) == int(row["peak_memory_bytes"])
        assert row["peak_moment"]
        assert row["peak_moment"] in row["why"]


def test_the_table_shows_the_same_parts(text: str) -> None:
    titles, row = (next(line for line in text.splitlines() if word in line) for word in ("unsharded", "hsdp r4s32  "))
    row = [line for line in text.splitlines() if line.startswith("hsdp r4s32")][1]
    figures = [float(word) for word in row.split("yes")[1].split()[:8]]
    assert sum(figures[:7]) == pytest.approx(figures[7], abs=0.35)  # seven roundings to 0.1
    assert "reduction of the root's gradients" in row
    assert [word for word in titles.split() if word in PARTS] == list(PARTS)


def test_the_step_is_the_sum_of_its_columns(rows: list[dict[str, str]]) -> None:
    for row in rows:
        parts = ["compute_s", "optimizer_s", *(f"exposed_{axis}_s" for axis in ("tp", "dp_shard", "dp_replicate"))]
        assert sum(float(row[part] or 0) for part in parts) == pytest.approx(float(row["step_time_s"]))


def test_close_is_within_a_tenth_of_the_limit(rows: list[dict[str, str]], text: str) -> None:
    room = 0.92 * 80 * 2**30
    for row in rows:
        off = abs(int(row["peak_memory_bytes"]) / room - 1)
        assert row["close"] == ("yes" if off <= 0.10 else "no")
    assert [row["layout"].split("+")[0] for row in rows if row["close"] == "yes"] == ["hsdp_tp:r4s16t2"]
    assert "no, close" in text
    assert "close: within 10% of the limit" in text


def test_a_best_layout_that_hardly_fits_is_said_to(capsys: pytest.CaptureFixture[str]) -> None:
    # 8b on 8 H100 with 8,192 tokens without checkpointing: some peak lies just under 73.6 GiB, by this factor of batch
    found = json.loads(run("--model", "8b", "--nodes", "1", "--gpus-per-node", "8", "--gpu", "h100-sxm", "--json")[0])
    best = next(one for one in found["layouts"] if one["fits"])
    assert best["close"] is (abs(best["memory"]["peak_bytes"] / (0.92 * 80 * 2**30) - 1) <= 0.10)


def test_a_band_by_hand() -> None:
    """Predicted 100 and off by at most 25%: what is measured lies between 100 / 1.25 and 100 / 0.75."""
    band = ErrorBand(share=0.25, basis="a test")
    assert band.of_speed(100.0) == pytest.approx((80.0, 133.333), rel=1e-5)
    assert band.of_time(4.0) == pytest.approx((3.0, 5.0))


def test_what_was_never_compared_has_no_band_and_what_no_row_was_seen_of_a_wide_one() -> None:
    devices = {entry.key: device_of(entry) for entry in ACCELERATORS}
    assert time_band(devices["h100-sxm"], "bf16", calibrated=False, profiled=False) == SEEN
    assert time_band(devices["h100-sxm"], "fp32", calibrated=False, profiled=False) == UNSEEN
    assert time_band(devices["v100-32gb"], "bf16", calibrated=False, profiled=False) == UNSEEN
    assert time_band(devices["h100-sxm"], "bf16", calibrated=True, profiled=False) is None
    assert time_band(devices["v100-32gb"], "fp32", calibrated=True, profiled=True) == CALIBRATED
    assert SEEN.share < UNSEEN.share


def test_the_band_stands_in_table_csv_and_json(rows: list[dict[str, str]], text: str) -> None:
    found: dict[str, Any] = json.loads(run(*COMMAND, "--json")[0])
    first, row = found["layouts"][0], rows[0]
    speed = first["tokens_per_s"]
    low, high = speed / (1 + SEEN.share), speed / (1 - SEEN.share)
    assert first["tokens_per_s_range"] == pytest.approx([low, high])
    assert [float(row["tokens_per_s_low"]), float(row["tokens_per_s_high"])] == pytest.approx([low, high])
    assert f"range: at most {SEEN.share:.0%} off, as were {SEEN.basis}" in text
    assert f"[{float(f'{low:.3g}'):,.0f}, {float(f'{high:.3g}'):,.0f}]" in text
    assert "not told apart from it, so measure both: hsdp:r2s64" in text


def test_defaults_are_named_as_such(text: str) -> None:
    line = text.splitlines()[1]
    given, default = line.split("; default: ")
    assert given == "given: model 70b, sequence 8,192 tokens"
    assert "batch 128 samples a step (--batch)" in default
    assert "storage unknown, so no save and restore times (--storage-gb-per-s)" in default
    out, err = run(*COMMAND, "--csv", "--batch", "256", "--storage-gb-per-s", "20", "--layouts", "fsdp+precision=fp32")
    line = err.splitlines()[0]
    assert line.split("; default: ")[0] == (
        "given: model 70b, batch 256 samples a step, sequence 8,192 tokens, storage 20 GB/s"
    )
    assert "precision fp32" in line
    assert out.startswith("layout,")
    settings = json.loads(run(*COMMAND, "--json")[0])["settings"]
    assert {one["name"]: one["given"] for one in settings if one["name"] in ("batch", "sequence")} == {
        "batch": False,
        "sequence": True,
    }
