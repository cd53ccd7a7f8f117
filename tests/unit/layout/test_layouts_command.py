"""``meshsweep layouts`` on machines that are described or read from files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from harness.cli import main

SEVEN_OF_EIGHT = "\n".join(
    ["\t" + "\t".join(f"GPU{i}" for i in (0, 1, 2, 4)) + "\tCPU Affinity\tNUMA Affinity"]
    + [
        "\t".join([f"GPU{i}", *("X" if i == j else "NV4" if i // 2 == j // 2 else "SYS" for j in (0, 1, 2, 4)), "0-7"])
        for i in (0, 1, 2, 4)
    ]
)


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as ended:
        main(["layouts", *arguments])
    out, err = capsys.readouterr()
    return int(ended.value.code or 0), out, err


def document(capsys: pytest.CaptureFixture[str], *arguments: str) -> Any:
    code, out, _ = run(capsys, *arguments, "--json")
    assert code == 0
    return json.loads(out)


def test_a_described_cluster_is_placed(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capsys, "--nodes", "2", "--gpus-per-node", "4", "--model", "tiny", "--batch", "8")
    assert code == 0
    first = next(line for line in out.splitlines() if line.startswith("hsdp:r2s4"))
    assert "dp_replicate crosses nodes (network); dp_shard stays inside a node" in first
    assert "excluded by tp_divides" in out


def test_json_holds_placement_order_and_rules(capsys: pytest.CaptureFixture[str]) -> None:
    cluster = ("--nodes", "2", "--gpus-per-node", "2", "--model", "tiny", "--batch", "8")
    plain = document(capsys, *cluster)
    assert {e["rule"] for e in plain["excluded"]} == {"cross_node_tp", "world_size"}
    swapped = document(capsys, *cluster, "--order", "tp,dp_shard,dp_replicate", "--allow-cross-node-tp")
    placed = {one["text"].partition("+")[0]: one["placement"] for one in swapped["layouts"]}
    assert placed["hsdp:r2s2"]["order"] == ["tp", "dp_shard", "dp_replicate"]
    crossing = {axis["axis"] for axis in placed["hsdp:r2s2"]["axes"] if axis["crosses_nodes"]}
    assert crossing == {"dp_shard"}
    assert "tp:t4" in placed


def test_a_saved_listing_with_a_missing_gpu(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    listing = tmp_path / "node7.txt"
    listing.write_text(SEVEN_OF_EIGHT)
    found = document(capsys, "--from", str(listing), "--model", "tiny", "--batch", "8")
    assert found["notes"] == ["node7 has devices 0-2,4 and lacks 3; --use-gpus 0-2,4 takes 4 of them"]
    pair = document(capsys, "--from", str(listing), "--model", "tiny", "--use-gpus", "0-1", "--layouts", "fsdp")
    assert pair["layouts"][0]["placement"]["remark"] == "dp_shard is on one node (nvlink)"
    assert not pair["notes"]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--nodes", "2"), "--nodes describes a cluster with --gpus-per-node"),
        (("--gpus-per-node", "2"), "--gpus-per-node needs --nodes"),
        (("--nodes", "2", "--gpus-per-node", "4", "--use-gpus", "4"), "node0 has no device 4; it has 0-3"),
        (("--nodes", "2", "--gpus-per-node", "4", "--ranks", "9"), "9 ranks, but the machine has 8 devices"),
        (("--order", "tp,dp"), "must name each of dp_replicate, dp_shard, tp once"),
        (("--from", "nowhere.txt"), "nowhere.txt"),
    ],
)
def test_mistakes_are_one_line_and_code_2(
    capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...], words: str
) -> None:
    code, out, err = run(capsys, *arguments)
    assert code == 2
    assert words in err
    assert err.count("\n") == 1
    assert not out
