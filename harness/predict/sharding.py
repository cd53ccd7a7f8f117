"""Bytes of parameters, gradients and optimizer state that one rank holds; exact, also where shards are uneven."""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil, prod
from typing import NamedTuple

from harness.layout import Layout
from harness.predict.parameters import Parameter, block_parameters, parameters
from harness.predict.terms import ELEMENT_BYTES, compute_dtype
from harness.workload import ModelShape

PER_PARAMETER = frozenset({"fsdp", "hsdp", "fsdp_tp", "hsdp_tp", "manual_hsdp"})
FLAT = frozenset({"fsdp1", "fsdp1_hybrid"})
_FLAT_ALIGNMENT_BYTES = 16  # of the compute dtype: FlatParameter aligns each parameter where use_orig_params is set


class Part(NamedTuple):
    """What one rank holds of a unit's parameters, in elements.

    Attributes:
        held: elements of the parameters that belong to this rank; the optimizer has state for these.
        stored: elements of the storage that holds them, with padding; parameters and gradients have this size.
        whole: elements of the unit when it is gathered, after tensor parallelism has split it, with padding.
        tensors: number of its parameters.
    """

    held: int
    stored: int
    whole: int
    tensors: int

    def __add__(self, other: object) -> Part:
        if not isinstance(other, Part):
            return NotImplemented
        return Part(*(a + b for a, b in zip(self, other, strict=True)))

    def times(self, count: int) -> Part:
        """``count`` equal units as one."""
        return Part(*(value * count for value in self))


class Units(NamedTuple):
    """A model as its sharding units: ``blocks`` equal blocks and the root (embedding, last norm, head)."""

    block: Part
    root: Part
    blocks: int

    @property
    def total(self) -> Part:
        return self.block.times(self.blocks) + self.root


def units(layout: Layout, shape: ModelShape, shard: int = 0) -> Units:
    """The parts that the rank with coordinate ``shard`` on dp_shard holds; on tp the first rank, which holds most."""
    root = [one for one in parameters(shape) if one.block is None]
    return Units(_part(layout, block_parameters(shape, 0), shard), _part(layout, root, shard), shape.n_layers)


def chunk(size: int, parts: int, index: int) -> int:
    """Length of chunk ``index`` when ``size`` is cut as ``torch.chunk`` does: ceil(size / parts) until it runs out."""
    length = ceil(size / parts)
    return max(0, min(length, size - index * length))


def _part(layout: Layout, group: Sequence[Parameter], shard: int) -> Part:
    shapes = [one.split_shape(layout.mesh.tp) for one in group]
    count = layout.mesh.dp_shard
    if layout.strategy in FLAT:
        return _flat(shapes, count, shard, _FLAT_ALIGNMENT_BYTES // ELEMENT_BYTES[compute_dtype(layout)])
    rows = [prod(shape[1:]) for shape in shapes]
    held = sum(chunk(shape[0], count, shard) * row for shape, row in zip(shapes, rows, strict=True))
    # fully_shard pads dim 0 of each parameter to a multiple of the group's size
    stored = sum(ceil(shape[0] / count) * row for shape, row in zip(shapes, rows, strict=True))
    return Part(held, stored, stored * count, len(shapes))


def _flat(shapes: Sequence[tuple[int, ...]], count: int, shard: int, aligned: int) -> Part:
    """FullyShardedDataParallel: one flat tensor a unit, padded to a multiple of the group's size.

    Each parameter begins at a multiple of ``aligned`` elements.
    """
    sizes = [prod(shape) for shape in shapes]
    starts, end = [], 0
    for size in sizes:
        starts.append(end)
        end += ceil(size / aligned) * aligned
    end = starts[-1] + sizes[-1]
    stored = ceil(end / count)
    low, high = shard * stored, (shard + 1) * stored
    held = sum(max(0, min(start + size, high) - max(start, low)) for start, size in zip(starts, sizes, strict=True))
    return Part(held, stored, stored * count, len(shapes))
