"""One training job in the words that a time prediction needs, whatever framework runs it."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from harness.base import Frozen
from harness.layout import Layout
from harness.workload import ModelShape, Workload

Sharding = Literal["none", "zero1", "zero2", "zero3"]
Recompute = Literal["none", "selective", "operators", "attention", "alternate", "full"]
Arithmetic = Literal["fp32", "bf16", "fp8"]


class Architecture(Frozen):
    """A decoder's sizes. ``gated``: three ffn matrices and not two."""

    layers: int = Field(ge=1)
    hidden: int = Field(ge=1)
    ffn: int = Field(ge=1)
    heads: int = Field(ge=1)
    kv_heads: int = Field(ge=1)
    vocab: int = Field(ge=2)
    gated: bool = True
    tied: bool = False

    @property
    def head_dim(self) -> int:
        return self.hidden // self.heads

    @property
    def kv(self) -> int:
        """Width of keys, and of values."""
        return self.kv_heads * self.head_dim

    @property
    def block_params(self) -> int:
        """Matrices of one block; norms and biases are left out."""
        return 2 * self.hidden * (self.hidden + self.kv) + (3 if self.gated else 2) * self.hidden * self.ffn

    @property
    def params(self) -> int:
        return self.layers * self.block_params + (1 if self.tied else 2) * self.vocab * self.hidden


class Job(Frozen):
    """A model, its batch and its layout.

    Attributes:
        micro_batch: sequences a forward pass of one data-parallel rank.
        micro_batches: forward passes a step and data-parallel rank.
        sharding: what is split over ``dp_shard`` (zero3) or over all data-parallel ranks (zero1).
        recompute: ``selective`` makes all but matrix products and attention again, ``operators`` every second product
            as well, ``attention`` the scores alone, ``alternate`` every second block, ``full`` every block.
        arithmetic: of matrix products.
        gather_bytes, reduce_bytes: of an element of gathered parameters and of reduced gradients.
        fused: whether a compiler fuses what is not a matrix product.
        async_tp: tp's communication is cut into pieces that overlap with the matrix products.
        sequence_parallel: activations between tp matrices are split over the sequence.
    """

    model: Architecture
    seq_len: int = Field(ge=1)
    micro_batch: int = Field(ge=1)
    micro_batches: int = Field(default=1, ge=1)
    dp_replicate: int = Field(default=1, ge=1)
    dp_shard: int = Field(default=1, ge=1)
    tp: int = Field(default=1, ge=1)
    cp: int = Field(default=1, ge=1)
    pp: int = Field(default=1, ge=1)
    virtual_stages: int = Field(default=1, ge=1)
    gpus_per_node: int = Field(default=8, ge=1)
    sharding: Sharding = "zero3"
    reshard: bool = True
    recompute: Recompute = "none"
    arithmetic: Arithmetic = "bf16"
    gather_bytes: int = 2
    reduce_bytes: int = 4
    fused: bool = False
    sequence_parallel: bool = True
    async_tp: bool = False

    @property
    def world_size(self) -> int:
        return self.dp_replicate * self.dp_shard * self.tp * self.cp * self.pp

    @property
    def dp(self) -> int:
        return self.dp_replicate * self.dp_shard

    @property
    def tokens(self) -> float:
        """Tokens of a micro batch on one rank."""
        return self.micro_batch * self.seq_len / self.cp

    @property
    def tokens_per_step_and_rank(self) -> float:
        """Tokens of a step over all ranks."""
        return self.micro_batch * self.micro_batches * self.seq_len * self.dp / self.world_size


def job_of(layout: Layout, workload: Workload, gpus_per_node: int) -> Job:
    """The suite's own layout as a job."""
    options, mesh, bf16 = layout.options, layout.mesh, layout.options.precision == "bf16"
    whole = layout.strategy in ("single", "ddp", "tp", "ddp_tp")
    return Job(
        model=architecture_of(workload.model),
        seq_len=workload.seq_len,
        micro_batch=workload.global_batch // mesh.dp,
        dp_replicate=mesh.dp_replicate,
        dp_shard=mesh.dp_shard,
        tp=mesh.tp,
        gpus_per_node=gpus_per_node,
        sharding="none" if whole else "zero3",
        reshard=options.reshard_after_forward is not False,
        recompute=options.activation_checkpointing,
        arithmetic="bf16" if bf16 else "fp32",
        gather_bytes=2 if bf16 else 4,
        reduce_bytes=4,
        fused=options.compile,
        sequence_parallel=options.sequence_parallel,
    )


def architecture_of(shape: ModelShape) -> Architecture:
    """The reference decoder's sizes."""
    return Architecture(
        layers=shape.n_layers,
        hidden=shape.dim,
        ffn=shape.ffn_dim,
        heads=shape.n_heads,
        kv_heads=shape.n_kv_heads,
        vocab=shape.vocab_size,
        tied=shape.tied_head,
    )
