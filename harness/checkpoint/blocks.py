"""Who reads which bytes at a restore, and to whom they go: planned once, before anything is read."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from itertools import zip_longest
from typing import NamedTuple

from harness.checkpoint.manifest import Manifest, Piece
from harness.checkpoint.ways import RestoreWay

BLOCK_BYTES = 8 << 20  # small enough to be sent while the next is read, and for its memory to be used again

PieceRef = tuple[str, int]  # a tensor's key, the index of one of its pieces


class Block(NamedTuple):
    """Neighbouring pieces of one file that the same ranks need: read at once by ``reader``, sent to ``needers``."""

    file: str
    begin: int
    end: int
    reader: int
    needers: tuple[int, ...]
    pieces: tuple[PieceRef, ...]

    @property
    def nbytes(self) -> int:
        return self.end - self.begin


def plan_blocks(
    manifest: Manifest, needs: Sequence[Iterable[PieceRef]], way: RestoreWay, block_bytes: int = BLOCK_BYTES
) -> list[Block]:
    """Blocks in the one order in which all ranks work through them; rank r needs ``needs[r]``.

    ``each``: a rank reads all that it needs. ``one_group``: the lowest rank that needs a block reads it. ``spread``:
    the one of them that has the fewest bytes to read so far. The order takes turns among readers, so that all of them
    read while blocks are sent.
    """
    needers: dict[PieceRef, list[int]] = defaultdict(list)
    for rank, refs in enumerate(needs):
        for ref in dict.fromkeys(refs):
            needers[ref].append(rank)
    groups = [(rank,) for rank in range(len(needs))] if way == "each" else [None]
    found: list[Block] = []
    load = [0] * len(needs)
    for group in groups:
        wanted = {ref: tuple(ranks) for ref, ranks in needers.items() if group is None or group[0] in ranks}
        for block in _runs(manifest, {ref: group or ranks for ref, ranks in wanted.items()}, block_bytes):
            chosen = min(block.needers, key=lambda rank: load[rank]) if way == "spread" else block.needers[0]
            load[chosen] += block.nbytes
            found.append(block._replace(reader=chosen))
    return list(_in_turns(found, len(needs)))


def _runs(manifest: Manifest, needers: dict[PieceRef, tuple[int, ...]], block_bytes: int) -> Iterator[Block]:
    """Neighbouring pieces with the same needers, joined up to ``block_bytes``."""
    located: list[tuple[Piece, PieceRef]] = [
        (manifest.tensors[key].pieces[index], (key, index)) for key, index in needers
    ]
    located.sort(key=lambda one: (one[0].file, one[0].begin, one[0].end))
    current: Block | None = None
    for piece, ref in located:
        if (
            current is not None
            and (piece.file, piece.begin, needers[ref]) == (current.file, current.end, current.needers)
            and piece.end - current.begin <= block_bytes
        ):
            current = current._replace(end=piece.end, pieces=(*current.pieces, ref))
            continue
        if current is not None:
            yield current
        current = Block(piece.file, piece.begin, piece.end, needers[ref][0], needers[ref], (ref,))
    if current is not None:
        yield current


def _in_turns(blocks: Iterable[Block], ranks: int) -> Iterator[Block]:
    by_reader: list[list[Block]] = [[] for _ in range(ranks)]
    for block in blocks:
        by_reader[block.reader].append(block)
    for row in zip_longest(*by_reader):
        yield from (block for block in row if block is not None)
