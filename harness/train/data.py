"""Synthetic tokens, a function of (seed, step, global sample index) alone, so any sharding sees the same batch."""

from __future__ import annotations

import hashlib

import torch
from torch import Tensor

from harness.layout import Mesh
from harness.workload import Workload


def sample(seed: int, step: int, index: int, seq_len: int, vocab_size: int) -> Tensor:
    """One sample: (seq_len + 1,) int64 tokens."""
    key = hashlib.sha256(f"{seed}/{step}/{index}".encode()).digest()
    generator = torch.Generator().manual_seed(int.from_bytes(key[:7], "big"))
    return torch.randint(vocab_size, (seq_len + 1,), generator=generator)


def local_batch(
    workload: Workload, mesh: Mesh, rank: int, seed: int, step: int, device: torch.device
) -> tuple[Tensor, Tensor]:
    """This rank's inputs and targets, each (global_batch / dp, seq_len) int64.

    A data-parallel rank takes a contiguous slice of the global batch; ranks that differ in tp alone take the same.
    """
    replicate, shard, _ = mesh.coordinate(rank)
    count = workload.global_batch // mesh.dp
    first = (replicate * mesh.dp_shard + shard) * count
    tokens = torch.stack(
        [
            sample(seed, step, index, workload.seq_len, workload.model.vocab_size)
            for index in range(first, first + count)
        ]
    ).to(device)
    return tokens[:, :-1].contiguous(), tokens[:, 1:].contiguous()
