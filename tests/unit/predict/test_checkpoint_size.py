"""Closed formulas of checkpoint bytes against counts by hand."""

from __future__ import annotations

import pytest

from harness.checkpoint.ways import SaveWay
from harness.errors import UnknownNameError
from harness.layout.mesh import parse_mesh
from harness.predict.checkpoint import checkpoint_size, chunk_length
from harness.workload import PRESETS, ModelShape

# one block, dim 4: embed and head 6x4, q and out 4x4, k and v 2x4, gate and up 8x4, down 4x8, three norms of 4
SHAPE = ModelShape(name="hand", dim=4, n_layers=1, n_heads=2, n_kv_heads=1, ffn_dim=8, vocab_size=6)
ELEMENTS = 2 * 24 + 2 * 16 + 2 * 8 + 3 * 32 + 3 * 4
TENSORS = 12
WAYS: tuple[SaveWay, ...] = ("one_group", "spread", "full")


def test_every_tensor_counts_once_whatever_the_mesh() -> None:
    for text in ("r1", "r4", "s4", "r2s2", "t2", "s2t2", "r2s2t2"):
        for way in WAYS:
            size = checkpoint_size(SHAPE, parse_mesh(text), way)
            assert size.stored_bytes == 12 * ELEMENTS + 4 * TENSORS
            assert size.duplicate_bytes == 0
            assert size.read_once_bytes == size.stored_bytes


def test_kinds_add_up() -> None:
    size = checkpoint_size(SHAPE, parse_mesh("s4"))
    assert size.bytes_by_kind == {
        "parameters": 4 * ELEMENTS,
        "exp_avg": 4 * ELEMENTS,
        "exp_avg_sq": 4 * ELEMENTS,
        "step": 4 * TENSORS,
    }


def test_replicas_saved_again_and_again_are_duplicates() -> None:
    one = 12 * ELEMENTS + 4 * TENSORS
    assert checkpoint_size(SHAPE, parse_mesh("r4"), "per_rank").duplicate_bytes == 3 * one
    # shards differ, but each of 4 ranks holds all steps
    assert checkpoint_size(SHAPE, parse_mesh("s4"), "per_rank").duplicate_bytes == 3 * 4 * TENSORS
    # norms are whole on both tp ranks
    norms = 12 * 3 * 4
    assert checkpoint_size(SHAPE, parse_mesh("t2"), "per_rank").duplicate_bytes == norms + 4 * TENSORS


@pytest.mark.parametrize(
    ("mesh", "one_group", "spread", "per_rank"),
    [("r4", 1, 4, 4), ("s4", 4, 4, 4), ("r2s2", 2, 4, 4), ("s2t2", 4, 4, 4)],
)
def test_who_writes(mesh: str, one_group: int, spread: int, per_rank: int) -> None:
    files = {"one_group": one_group, "spread": spread, "per_rank": per_rank, "full": 1}
    for way, count in files.items():
        assert checkpoint_size(SHAPE, parse_mesh(mesh), way).files == count  # type: ignore[arg-type]


def test_reading_by_each_replica_grows_with_their_number_and_reading_once_does_not() -> None:
    two, eight = (checkpoint_size(SHAPE, parse_mesh(text)) for text in ("r2s2", "r8s2"))
    assert two.read_by_each_bytes * 4 == eight.read_by_each_bytes
    assert two.read_once_bytes == eight.read_once_bytes == two.unique_bytes


def test_one_replica_group_of_128_ranks_writes_16_files_and_not_a_byte_less() -> None:
    """The background article's claim: files 128 -> 16 and volume -31%. The files fall so, the volume cannot."""
    shape = PRESETS["70b"]
    flat, meshed = checkpoint_size(shape, parse_mesh("s128")), checkpoint_size(shape, parse_mesh("r8s16"))
    assert (flat.files, meshed.files) == (128, 16)
    assert flat.stored_bytes == meshed.stored_bytes == 12 * shape.param_count + 4 * (3 + 9 * 80)


def test_chunks_are_full_first() -> None:
    assert [chunk_length(6, 4, i) for i in range(4)] == [2, 2, 2, 0]
    assert [chunk_length(5, 2, i) for i in range(2)] == [3, 2]


def test_a_way_without_a_formula_is_refused() -> None:
    with pytest.raises(UnknownNameError, match="choose one of: one_group, spread, per_rank, full"):
        checkpoint_size(SHAPE, parse_mesh("r4"), "stock")
