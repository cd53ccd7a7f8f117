"""``meshsweep checkpoint`` on folders made by hand."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file

from harness.checkpoint.manifest import Manifest, read_manifest
from harness.cli import _run
from harness.cli.tensor_dims import tp_dims
from harness.errors import UsageError
from harness.layout import parse_mesh
from harness.workload import PRESETS
from tests.unit.checkpoint.folders import NORM, NORM_KEY, write

NAME = "step7-r1s2t1"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write(tmp_path / NAME)
    return tmp_path / NAME


def run(*words: str | Path) -> int:
    return _run(["checkpoint", *map(str, words)])


def test_verify_says_whole_damaged_or_none(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("verify", folder) == 0
    assert "every byte of 2 files as written" in capsys.readouterr().out
    shard = folder / "shard-00000.safetensors"
    content = bytearray(shard.read_bytes())
    content[read_manifest(folder).tensors[NORM_KEY].pieces[0].begin] ^= 1
    shard.write_bytes(content)
    assert run("verify", folder) == 1
    assert capsys.readouterr().out == f"shard-00000.safetensors: {NORM_KEY}: altered since it was written\n"
    assert run("verify", folder, "--quick") == 0
    capsys.readouterr()
    assert run("verify", folder, "--json") == 1
    document = json.loads(capsys.readouterr().out)
    assert document["damage"][0]["keys"] == [NORM_KEY]
    assert run("verify", tmp_path / "step8-r1s1t1") == 2
    assert "does not exist" in capsys.readouterr().err


def test_inspect_shows_bytes_by_kind(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("inspect", folder) == 0
    shown = capsys.readouterr().out
    assert "parameters" in shown and "120" in shown and "written by rank 0" in shown
    assert run("inspect", folder, "--json") == 0
    document = json.loads(capsys.readouterr().out)
    assert document["sizes"]["bytes_by_kind"] == {"parameters": 120, "exp_avg": 24}
    assert document["total_bytes"] == sum(path.stat().st_size for path in folder.iterdir())


def test_convert_there_and_back(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    plain, other = tmp_path / "model.safetensors", tmp_path / "other"
    assert run("convert", folder, "--to", "safetensors", "--out", plain) == 0
    np.testing.assert_array_equal(load_file(plain)["norm.weight"], NORM)
    assert run("convert", plain, "--to", "folder", "--out", other, "--step", "3") == 0
    assert run("verify", other / "step3-r1s1t1") == 0
    assert run("convert", folder, "--to", "s3", "--out", other) == 0
    assert run("verify", other / "step7-r1s3t1") == 0
    capsys.readouterr()
    assert run("convert", folder, "--to", "t2", "--out", other) == 2
    assert "names no model; convert to a mesh without t" in capsys.readouterr().err
    assert run("convert", folder, "--to", "nonsense", "--out", other) == 2
    assert "'nonsense' is not a signature" in capsys.readouterr().err


def test_measure_wants_meshes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("measure", "--results", tmp_path) == 2
    assert "no sweeps in" in capsys.readouterr().err


def test_the_dims_that_tensor_parallelism_splits() -> None:
    empty = Manifest(step=0, mesh="r1s1t1", way="full", created_at="", files=(), tensors={})
    tiny = empty.model_copy(update={"model": PRESETS["tiny"]})
    dims = tp_dims(tiny, parse_mesh("t2"))
    assert (dims["layers.0.attention.q.weight"], dims["layers.0.ffn.down.weight"], dims["norm.weight"]) == (0, 1, None)
    assert tp_dims(tiny, parse_mesh("s2")) == {}
    with pytest.raises(UsageError, match="names no model"):
        tp_dims(empty, parse_mesh("t2"))
