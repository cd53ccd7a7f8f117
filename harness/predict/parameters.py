"""The reference model's parameters by name and shape, without building it."""

from __future__ import annotations

from functools import cache
from math import ceil, prod
from typing import NamedTuple

from harness.workload import ModelShape


class Parameter(NamedTuple):
    """One parameter of the reference decoder.

    Attributes:
        name: as in the bare model's ``named_parameters``.
        shape: of the whole tensor.
        tp_dim: the tensor dim that tensor parallelism splits, None where every tp rank holds all of it.
        block: index of its block, None for embedding, last norm and head.
    """

    name: str
    shape: tuple[int, ...]
    tp_dim: int | None
    block: int | None

    @property
    def numel(self) -> int:
        return prod(self.shape)

    def split_shape(self, tp: int) -> tuple[int, ...]:
        """Shape on the first tp rank, the largest where the dim does not divide (``torch.chunk``'s rule)."""
        if self.tp_dim is None or tp == 1:
            return self.shape
        return tuple(ceil(size / tp) if dim == self.tp_dim else size for dim, size in enumerate(self.shape))


@cache
def parameters(shape: ModelShape) -> tuple[Parameter, ...]:
    """All parameters in the model's order; a tied head is the embedding and is not named again."""
    found = [Parameter("embed.weight", (shape.vocab_size, shape.dim), 0, None)]
    for index in range(shape.n_layers):
        found += block_parameters(shape, index)
    found.append(Parameter("norm.weight", (shape.dim,), None, None))
    if not shape.tied_head:
        found.append(Parameter("head.weight", (shape.vocab_size, shape.dim), 0, None))
    return tuple(found)


def block_parameters(shape: ModelShape, index: int) -> list[Parameter]:
    """The parameters of one block, in the model's order."""
    heads, kv_heads = shape.n_heads * shape.head_dim, shape.n_kv_heads * shape.head_dim
    sizes: list[tuple[str, tuple[int, ...], int | None]] = [
        ("attention_norm", (shape.dim,), None),
        ("attention.q", (heads, shape.dim), 0),
        ("attention.k", (kv_heads, shape.dim), 0),
        ("attention.v", (kv_heads, shape.dim), 0),
        ("attention.out", (shape.dim, heads), 1),
        ("ffn_norm", (shape.dim,), None),
        ("ffn.gate", (shape.ffn_dim, shape.dim), 0),
        ("ffn.up", (shape.ffn_dim, shape.dim), 0),
        ("ffn.down", (shape.dim, shape.ffn_dim), 1),
    ]
    return [Parameter(f"layers.{index}.{name}.weight", size, dim, index) for name, size, dim in sizes]
