"""Bytes of activations that backward needs, per block and per token, for each activation-checkpointing mode.

Counted from what autograd saves in the reference decoder (``harness/train/decoder.py``): every tensor that an
operator keeps for its backward, once. Kernels differ: a CPU's RMSNorm is made of small operators and keeps an fp32
copy, CUDA's fused one does not; a CPU's attention returns another memory layout than the projection after it needs.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

from harness.layout import Layout
from harness.workload import ModelShape, Workload

Checkpointing = Literal["none", "selective", "full"]
CHECKPOINTING: tuple[Checkpointing, ...] = ("none", "selective", "full")
Kernels = Literal["cpu", "cuda"]
FP32 = 4


class BlockActivations(NamedTuple):
    """Bytes on one rank for its micro batch.

    Attributes:
        kept: what one block keeps from forward to its backward.
        everything: what its operators save in all; alive at its own backward, recomputed or not.
        attention: the part of ``everything`` that outlives the backward of its feed-forward half.
        ffn: one tensor of the feed-forward width.
        residual: one tensor of the residual stream.
    """

    kept: int
    everything: int
    attention: int
    ffn: int
    residual: int


class Sizes(NamedTuple):
    """Elements per token on one rank: residual stream between modules, gathered input, and tp-split widths."""

    tokens: int
    between: float  # width of the residual stream (split over tp under sequence parallelism)
    whole: int  # width of the gathered input of the matrices
    heads: float  # width of q and of attention's result
    kv: float
    ffn: float
    head_count: float
    element: int  # bytes of an activation in compute precision


def sizes(layout: Layout, workload: Workload) -> Sizes:
    """The widths of the reference decoder on one rank."""
    shape, tp = workload.model, layout.mesh.tp
    return Sizes(
        tokens=workload.tokens_per_step // layout.mesh.dp,
        between=shape.dim / tp if layout.options.sequence_parallel else shape.dim,
        whole=shape.dim,
        heads=shape.n_heads * shape.head_dim / tp,
        kv=shape.n_kv_heads * shape.head_dim / tp,
        ffn=shape.ffn_dim / tp,
        head_count=shape.n_heads / tp,
        element=2 if layout.options.precision == "bf16" else FP32,
    )


def block_activations(layout: Layout, workload: Workload, kernels: Kernels, mode: Checkpointing) -> BlockActivations:
    """What one block keeps for backward and needs while its backward runs."""
    at = sizes(layout, workload)
    residual = _residual_bytes(layout, at)
    everything = _saved(at, kernels, residual)
    kept = {
        "none": everything,
        # matrix and attention results, and the block's input; see KEPT_OPS in harness/train/blocks.py
        "selective": at.between * residual
        + (at.heads * 2 + 2 * at.kv + 2 * at.ffn + 2 * at.whole) * at.element
        + at.head_count * FP32,
        "full": at.between * residual,
    }[mode]
    ffn = at.ffn * at.element
    attention = everything - 4 * ffn - norm_bytes(at, kernels, residual) - at.whole * at.element
    parts = (kept, everything, attention, ffn, at.between * residual)
    return BlockActivations(*(round(width * at.tokens) for width in parts))


def _residual_bytes(layout: Layout, at: Sizes) -> int:
    """Bytes of an element of the residual stream: autocast leaves it in fp32, a precision policy does not."""
    return FP32 if layout.strategy in ("single", "ddp", "tp") else at.element


def _saved(at: Sizes, kernels: Kernels, residual: int) -> float:
    """Bytes per token that a block's operators save in all."""
    gathered = at.whole * at.element
    attention = (2 * at.heads + 2 * at.kv) * at.element + at.head_count * FP32  # q, k, v, result, log-sum-exp
    if kernels == "cpu":
        attention += at.heads * at.element  # the result again, contiguous
    return 2 * (norm_bytes(at, kernels, residual) + gathered) + attention + 4 * at.ffn * at.element


def norm_bytes(at: Sizes, kernels: Kernels, residual: int) -> float:
    """Bytes per token that a norm saves: its input, the reciprocal root mean square, and perhaps their product."""
    return at.between * residual + FP32 + (at.between * FP32 if kernels == "cpu" else 0)


class HeadActivations(NamedTuple):
    """Last norm, logits and loss on one rank, bytes.

    Attributes:
        kept: from forward to backward.
        backward: above it, when backward starts.
        logits: the part that lives as long as the step.
    """

    kept: int
    backward: int
    logits: int


def head_bytes(layout: Layout, workload: Workload, kernels: Kernels) -> HeadActivations:
    """The loss keeps log-probabilities in fp32; its backward makes two more tensors of that size."""
    at, shape = sizes(layout, workload), workload.model
    width = shape.vocab_size / (layout.mesh.tp if layout.options.loss_parallel else 1)
    logits = width * at.element * at.tokens
    kept = (
        logits
        + (width * FP32 + norm_bytes(at, kernels, _residual_bytes(layout, at)) + at.whole * at.element) * at.tokens
    )
    return HeadActivations(round(kept), round(2 * width * FP32 * at.tokens), round(logits))


def input_bytes(layout: Layout, workload: Workload) -> int:
    """Inputs and targets, int64."""
    return 2 * 8 * sizes(layout, workload).tokens


def rope_bytes(shape: ModelShape, seq_len: int) -> int:
    """Cosines and sines, fp32."""
    return seq_len * shape.head_dim * FP32
