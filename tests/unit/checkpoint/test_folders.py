"""Names, manifest, verification and conversion of checkpoint folders, all without torch."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from harness.checkpoint.convert import cut, from_safetensors, to_mesh, to_safetensors
from harness.checkpoint.fit import why_not
from harness.checkpoint.inspect import inspect_text
from harness.checkpoint.manifest import Manifest, decode, encode, read_manifest
from harness.checkpoint.measured import sizes_of
from harness.checkpoint.names import MANIFEST, CheckpointError, latest, parse_folder_name, partial_folder
from harness.checkpoint.safetensors import ALIGNMENT, read_header
from harness.checkpoint.verify import verify
from harness.layout import Layout, Mesh, parse_mesh
from harness.workload import make_workload
from tests.unit.checkpoint.folders import NORM, NORM_KEY, STATE_KEY, WEIGHT, WEIGHT_KEY, write

NAME = "step7-r1s2t1"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write(tmp_path / NAME)
    return tmp_path / NAME


def texts(folder: Path, quick: bool = False) -> list[str]:
    return [damage.text for damage in verify(folder, read_manifest(folder), quick)]


def flip(path: Path, at: int) -> None:
    content = bytearray(path.read_bytes())
    content[at] ^= 0x10
    path.write_bytes(content)


def test_names() -> None:
    assert parse_folder_name("step1000-r2s4t1") == (1000, Mesh(dp_replicate=2, dp_shard=4))
    assert parse_folder_name(".step1000-r2s4t1.partial") is None
    assert parse_folder_name("step1000-r2s0t1x") is None


def test_only_what_has_its_name_and_its_manifest_is_whole(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="no whole checkpoint"):
        latest(tmp_path)
    write(tmp_path / "step9-r1s2t1")
    write(tmp_path / "step10-r1s2t1")
    write(partial_folder(tmp_path / "step11-r1s2t1"))
    (tmp_path / "step12-r1s2t1").mkdir()
    assert latest(tmp_path).name == "step10-r1s2t1", "steps are numbers, and half checkpoints do not count"


def test_a_whole_checkpoint_has_no_damage(folder: Path) -> None:
    assert texts(folder) == texts(folder, quick=True) == []


def test_a_flipped_byte_is_named_by_file_and_key(folder: Path) -> None:
    piece = read_manifest(folder).tensors[NORM_KEY].pieces[0]
    flip(folder / piece.file, piece.begin + 5)
    assert texts(folder) == [f"shard-00000.safetensors: {NORM_KEY}: altered since it was written"]
    assert texts(folder, quick=True) == [], "quick reads no tensor"


def test_a_cut_file_is_named_with_what_is_cut_off(folder: Path) -> None:
    shard = folder / "shard-00000.safetensors"
    size = shard.stat().st_size
    shard.write_bytes(shard.read_bytes()[:-4])
    what = f"cut off: the file has {size - 4:,} bytes instead of {size:,}"
    assert texts(folder) == [f"shard-00000.safetensors: {STATE_KEY}: {what}"]


def test_other_damage_is_named_too(folder: Path) -> None:
    flip(folder / "shard-00001.safetensors", 12)
    (folder / "extra.bin").touch()
    found = texts(folder)
    assert any("shard-00001.safetensors" in text and "header" in text for text in found)
    assert "extra.bin: does not belong to the checkpoint" in found
    (folder / "shard-00001.safetensors").unlink()
    assert "shard-00001.safetensors: is missing" in texts(folder)


def test_a_manifest_that_contradicts_itself_is_refused(folder: Path) -> None:
    data = json.loads((folder / MANIFEST).read_text())

    def refused(message: str, **change: object) -> None:
        (folder / MANIFEST).write_text(json.dumps({**data, **change}))
        with pytest.raises(CheckpointError, match=message):
            read_manifest(folder)

    one = data["tensors"][NORM_KEY]
    refused("pieces do not add up", tensors={NORM_KEY: {**one, "pieces": []}})
    refused("not listed", files=data["files"][1:])
    far = {**one["pieces"][0], "begin": 10**9, "end": 10**9 + 24}
    refused("ends at byte", tensors={NORM_KEY: {**one, "pieces": [far]}})
    outside = [{**data["files"][0], "name": "../../etc/passwd"}]
    refused("files.0.name", files=outside)
    refused("schema_version", schema_version=2)
    (folder / MANIFEST).unlink()
    with pytest.raises(CheckpointError, match=r"has no manifest.json, so it was not written to its end"):
        read_manifest(folder)


def test_values_keep_their_types() -> None:
    value = {"betas": (0.9, 0.95), "names": ["a", "b"], "fused": None, "lr": 1e-3, "on": True}
    assert decode(json.loads(json.dumps(encode(value)))) == value
    with pytest.raises(CheckpointError, match="cannot be stored without pickle"):
        encode(object())


def test_sizes_add_up_to_the_files(folder: Path) -> None:
    manifest = read_manifest(folder)
    sizes = sizes_of(manifest, (folder / MANIFEST).stat().st_size)
    assert sizes.bytes_by_kind == {"parameters": 24 * 4 + 6 * 4, "exp_avg": 6 * 4}
    assert sizes.total_bytes == sum(path.stat().st_size for path in folder.iterdir())
    assert (sizes.files, sizes.duplicate_bytes) == (3, 0)
    text = inspect_text(manifest, sizes)
    assert "mesh r1s2t1" in text and "written by rank 1" in text


def test_shards_are_safetensors_files_whose_tensors_begin_on_a_page(folder: Path) -> None:
    loaded = load_file(folder / "shard-00001.safetensors")
    np.testing.assert_array_equal(loaded[f"{WEIGHT_KEY}@2,0"], WEIGHT[2:])
    entries, _ = read_header(folder / "shard-00001.safetensors")
    assert min(entry.begin for entry in entries.values()) == ALIGNMENT


@pytest.mark.parametrize("content", [b"", b"\x80\x04pickle", b"\xff" * 64, (2).to_bytes(8, "little") + b"[]"])
def test_what_is_no_safetensors_file_is_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "x.safetensors"
    path.write_bytes(content)
    with pytest.raises(CheckpointError, match="not a safetensors file"):
        read_header(path)


def test_to_one_plain_file_and_back(folder: Path, tmp_path: Path) -> None:
    plain = tmp_path / "model.safetensors"
    to_safetensors(folder, read_manifest(folder), plain)
    loaded = load_file(plain)
    assert set(loaded) == {"layers.0.attention.out.weight", "norm.weight"}
    np.testing.assert_array_equal(loaded["layers.0.attention.out.weight"], WEIGHT)
    np.testing.assert_array_equal(loaded["norm.weight"], NORM)
    with pytest.raises(CheckpointError, match="exists"):
        to_safetensors(folder, read_manifest(folder), plain)
    back = tmp_path / "step0-r1s1t1"
    from_safetensors(plain, back, 0)
    assert texts(back) == []
    assert set(read_manifest(back).tensors) == {WEIGHT_KEY, NORM_KEY}


def test_a_file_of_another_library_becomes_a_checkpoint(tmp_path: Path) -> None:
    save_file({"b": np.ones((2, 2), np.float16), "a": np.zeros(3, np.int64)}, tmp_path / "other.safetensors")
    made = from_safetensors(tmp_path / "other.safetensors", tmp_path / "step3-r1s1t1", 3)
    assert texts(tmp_path / "step3-r1s1t1") == []
    assert {k: (t.dtype, t.shape) for k, t in made.tensors.items()} == {
        "model.a": ("I64", (3,)),
        "model.b": ("F16", (2, 2)),
    }


def test_cut_anew_for_another_mesh_it_is_the_same_checkpoint(folder: Path, tmp_path: Path) -> None:
    mesh = parse_mesh("s2t2")
    dims = {"layers.0.attention.out.weight": 1, "norm.weight": None}
    target = tmp_path / "step7-r1s2t2"
    made = to_mesh(folder, read_manifest(folder), target, mesh, dims)
    assert texts(target) == []
    boxes = {(p.file, p.offsets, p.shape) for p in made.tensors[WEIGHT_KEY].pieces}
    assert boxes == {
        ("shard-00000.safetensors", (0, 0), (2, 3)),
        ("shard-00001.safetensors", (0, 3), (2, 3)),
        ("shard-00002.safetensors", (2, 0), (2, 3)),
        ("shard-00003.safetensors", (2, 3), (2, 3)),
    }
    to_safetensors(target, made, tmp_path / "whole.safetensors", optimizer=True)
    loaded = load_file(tmp_path / "whole.safetensors")
    np.testing.assert_array_equal(loaded["layers.0.attention.out.weight"], WEIGHT)
    np.testing.assert_array_equal(loaded[STATE_KEY], NORM * 2)


def test_cutting_covers_each_element_once_also_unevenly() -> None:
    seen = np.zeros((5, 7), dtype=int)
    for _, (offsets, shape) in cut((5, 7), parse_mesh("s4t2"), 0):
        seen[tuple(slice(o, o + n) for o, n in zip(offsets, shape, strict=True))] += 1
    assert (seen == 1).all()


def test_a_damaged_checkpoint_is_not_converted(folder: Path, tmp_path: Path) -> None:
    flip(folder / "shard-00001.safetensors", ALIGNMENT + 3)
    with pytest.raises(CheckpointError, match=f"shard-00001.safetensors: {WEIGHT_KEY}: altered"):
        to_safetensors(folder, read_manifest(folder), tmp_path / "model.safetensors")
    assert not (tmp_path / "model.safetensors").exists()


def test_why_a_checkpoint_does_not_fit() -> None:
    workload = make_workload("tiny", 8, 32)
    other = make_workload("small", 8, 32)
    manifest = Manifest(step=1, mesh="r1s4t1", way="full", created_at="", model=workload.model, files=(), tensors={})
    four = Layout(strategy="fsdp", mesh=parse_mesh("s4"))
    three_axes = Layout(strategy="hsdp_tp", mesh=parse_mesh("r2s2t2"))
    assert why_not(manifest, four, workload, 4) is None
    assert "dim 64 instead of 256" in (why_not(manifest, four, other, 4) or "")
    assert "8" in (why_not(manifest, three_axes, workload, 4) or "")
