"""Who reads what: each byte once, whatever the number of replicas."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise

import pytest

from harness.checkpoint.blocks import PieceRef, plan_blocks
from harness.checkpoint.manifest import Manifest, Piece, StoredFile, StoredTensor
from harness.checkpoint.ways import RestoreWay

PIECES, PIECE_BYTES = 6, 400


def manifest() -> Manifest:
    """Six tensors of 100 floats, three a file."""
    tensors = {
        f"model.t{i}": StoredTensor(
            kind="parameters",
            dtype="F32",
            shape=(100,),
            pieces=(
                Piece(
                    file=f"f{i // 3}",
                    offsets=(0,),
                    shape=(100,),
                    begin=PIECE_BYTES * (i % 3),
                    end=PIECE_BYTES * (i % 3 + 1),
                    crc32=0,
                ),
            ),
        )
        for i in range(PIECES)
    }
    files = tuple(StoredFile(name=f"f{n}", size_bytes=3 * PIECE_BYTES, rank=n) for n in range(2))
    return Manifest(step=0, mesh="r1s1t1", way="full", created_at="", files=files, tensors=tensors)


def refs(*numbers: int) -> list[PieceRef]:
    return [(f"model.t{n}", 0) for n in numbers]


HSDP = [refs(0, 1, 2), refs(3, 4, 5), refs(0, 1, 2), refs(3, 4, 5)]


@pytest.mark.parametrize(("way", "reads"), [("one_group", 1), ("spread", 1), ("each", 2)])
def test_each_byte_is_read_once_or_by_each_replica(way: RestoreWay, reads: int) -> None:
    blocks = plan_blocks(manifest(), HSDP, way)
    assert sum(block.nbytes for block in blocks) == reads * PIECES * PIECE_BYTES
    got = Counter((rank, ref) for block in blocks for rank in block.needers for ref in block.pieces)
    assert got == Counter((rank, ref) for rank, wanted in enumerate(HSDP) for ref in wanted)
    assert all(block.reader in block.needers for block in blocks)


def test_the_first_replica_group_reads_or_all_take_part() -> None:
    assert {b.reader for b in plan_blocks(manifest(), HSDP, "one_group")} == {0, 1}
    spread = plan_blocks(manifest(), HSDP, "spread", block_bytes=PIECE_BYTES)
    assert {b.reader for b in spread} == {0, 1, 2, 3}
    load = Counter[int]()
    for block in spread:
        load[block.reader] += block.nbytes
    assert max(load.values()) - min(load.values()) <= PIECE_BYTES


def test_neighbours_are_read_at_once_up_to_a_size() -> None:
    ddp = [refs(*range(PIECES))] * 2
    assert [b.nbytes for b in plan_blocks(manifest(), ddp, "one_group")] == [3 * PIECE_BYTES] * 2
    assert [b.nbytes for b in plan_blocks(manifest(), ddp, "one_group", 900)] == [800, 400, 800, 400]
    split = [refs(0, 2), refs(1)]
    assert len(plan_blocks(manifest(), split, "one_group")) == 3, "a piece that another rank needs parts a run"


def test_readers_take_turns() -> None:
    blocks = plan_blocks(manifest(), HSDP, "one_group", block_bytes=PIECE_BYTES)
    assert all(one.reader != next_one.reader for one, next_one in pairwise(blocks))
