"""Tables, picture and the commands around a contract."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from harness.cli import main
from harness.errors import StoreError, UsageError
from harness.layout import Mesh
from harness.layout.subset import described
from harness.mesh import make_contract, read_contract
from harness.mesh.show import contract_text, draw, figure, rank_rows
from tests.unit.mesh.machines import two_by_four

PNG = b"\x89PNG"


def run(*arguments: str) -> int:
    with pytest.raises(SystemExit) as ended:
        main(["mesh", *arguments])
    return int(ended.value.code or 0)


def test_which_ranks_form_each_axis_is_printed() -> None:
    text = contract_text(make_contract(two_by_four(), Mesh(dp_replicate=2, dp_shard=4)))
    assert "dp_replicate over network: {0,4} {1,5} {2,6} {3,7}" in text
    assert "dp_shard over other_socket: {0,1,2,3} {4,5,6,7}" in text
    three = contract_text(make_contract(two_by_four(), Mesh(dp_replicate=2, dp_shard=2, tp=2)))
    assert "tp over nvlink x4 or more: {0,1} {2,3} {4,5} {6,7}" in three


def test_a_row_a_rank_with_coordinates_place_and_links() -> None:
    rows = rank_rows(make_contract(two_by_four(), Mesh(dp_replicate=2, dp_shard=2, tp=2)))
    assert rows[6] == {
        "rank": 6,
        "dp_replicate": 1,
        "dp_shard": 1,
        "tp": 0,
        "host": "node1",
        "local_rank": 2,
        "device": 2,
        "dp_replicate_link": "network",
        "dp_shard_link": "other_socket",
        "tp_link": "nvlink",
    }


def test_another_order_moves_ranks_to_other_hosts() -> None:
    contract = make_contract(described(2, 2), Mesh(dp_replicate=2, dp_shard=2), ("dp_shard", "dp_replicate", "tp"))
    assert [(row["rank"], row["host"], row["device"]) for row in rank_rows(contract)] == [
        (0, "node0", 0),
        (1, "node1", 0),
        (2, "node0", 1),
        (3, "node1", 1),
    ]


def test_a_picture_is_drawn_or_refused_in_one_line(tmp_path: Path) -> None:
    contract = make_contract(two_by_four(), Mesh(dp_replicate=2, dp_shard=4), any_host=True)
    draw(contract, tmp_path / "mesh.png")
    assert (tmp_path / "mesh.png").read_bytes().startswith(PNG)
    with pytest.raises(UsageError, match="use a name that ends in"):
        draw(contract, tmp_path / "mesh.xyz")
    with pytest.raises(StoreError, match="cannot write"):
        draw(contract, tmp_path / "nowhere" / "mesh.png")
    with pytest.raises(UsageError, match="at most 512 ranks and the mesh has 1024"):
        draw(make_contract(described(128, 8), Mesh(dp_shard=1024)), tmp_path / "big.png")


def test_a_host_with_more_than_16_devices_takes_several_lines() -> None:
    (panel,) = figure(make_contract(described(2, 40), Mesh(dp_shard=80))).axes
    assert panel.get_xlim() == (0, 16)
    assert panel.get_ylim() == (6, 0)
    rows = [label.get_text() for label in panel.get_yticklabels()]
    assert rows == [f"{host}, {start}+" for host in ("node0", "node1") for start in (0, 16, 32)]
    # rank 57 is device 17 of the second host: its second line, second place
    (cell,) = [text for text in panel.texts if text.get_text().startswith("rank 57 ")]
    assert cell.get_position() == (1.5, 4.5)


def test_init_show_and_check(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "mesh.toml"
    described_cluster = ("--nodes", "2", "--gpus-per-node", "4")
    assert run("init", *described_cluster, "--mesh", "r2s2t2", "--out", str(out)) == 0
    assert read_contract(out) == make_contract(described(2, 4), Mesh(dp_replicate=2, dp_shard=2, tp=2))
    assert run("init", *described_cluster, "--out", str(out)) == 2
    assert "--force to replace it" in capsys.readouterr().err
    assert run("show", str(out), "--json") == 0
    shown = json.loads(capsys.readouterr().out)
    assert shown["groups"]["dp_shard"] == [[0, 2], [1, 3], [4, 6], [5, 7]]
    assert len(shown["ranks"]) == 8


def test_check_compares_saved_listings(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    header = "\tGPU0\tGPU1\tCPU Affinity\tNUMA Affinity\n"
    for host in ("node0", "node1"):
        (tmp_path / f"{host}.txt").write_text(f"{header}GPU0\tX\tNV4\t0-7\t0\nGPU1\tNV4\tX\t0-7\t0\n")
    files = [part for host in ("node0", "node1") for part in ("--from", str(tmp_path / f"{host}.txt"))]
    out = tmp_path / "mesh.toml"
    assert run("init", *files, "--out", str(out)) == 0
    assert run("check", str(out), *files) == 0
    capsys.readouterr()
    (tmp_path / "node1.txt").write_text(f"{header}GPU0\tX\tSYS\t0-7\t0\nGPU1\tSYS\tX\t8-15\t1\n")
    assert run("check", str(out), *files) == 1
    assert capsys.readouterr().out.splitlines() == [
        "node1: device 1 numa node: expected 0, found 1",
        "node1: dp_shard link between devices 0 and 1: expected nvlink, found other_socket",
    ]
    assert run("check", str(tmp_path / "none.toml")) == 2
