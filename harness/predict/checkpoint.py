"""Size of a sharded checkpoint with AdamW state, and how long it takes, from shapes and the storage's bandwidth."""

from __future__ import annotations

from harness.base import Frozen
from harness.layout import Layout
from harness.predict.memory import ADAMW_STATES
from harness.predict.parameters import parameters
from harness.workload import Workload

FP32 = 4
# torch.distributed.checkpoint wraps each tensor's shard as a file of torch.save's and lists it in .metadata.
# Measured with torch 2.13: the slope of total bytes over the number of shards, and what one rank's has above it
BYTES_PER_SHARD = 1_760
BYTES_PER_TENSOR = 330


class CheckpointPrediction(Frozen):
    """One checkpoint of all ranks.

    Attributes:
        tensor_bytes: parameters and both moments of every parameter, once each; exact.
        total_bytes: with the format's own bytes.
        files: one a rank and one of metadata; replicas are spread over ranks, so every rank writes.
        save_time_s, restore_time_s: None where the storage's bandwidth is unknown.
    """

    tensor_bytes: int
    total_bytes: int
    files: int
    save_time_s: float | None = None
    restore_time_s: float | None = None


def predict_checkpoint(
    layout: Layout, workload: Workload, storage_bytes_per_s: float | None = None
) -> CheckpointPrediction:
    """Bytes, files and times of one checkpoint; ``storage_bytes_per_s`` is of all ranks together.

    A restore reads as many bytes as a save writes: ranks of a replica that read the same bytes find them cached.
    """
    mesh = layout.mesh
    all_parameters = parameters(workload.model)
    tensors = (1 + ADAMW_STATES) * FP32 * sum(one.numel for one in all_parameters)
    steps = FP32 * len(all_parameters)
    shards = sum(
        mesh.dp_shard * (mesh.tp if one.tp_dim is not None else 1) * (1 + ADAMW_STATES) + 1 for one in all_parameters
    )
    count = len(all_parameters) * (2 + ADAMW_STATES)
    total = tensors + steps + BYTES_PER_TENSOR * count + BYTES_PER_SHARD * shards
    seconds = None if storage_bytes_per_s is None else total / storage_bytes_per_s
    return CheckpointPrediction(
        tensor_bytes=tensors,
        total_bytes=total,
        files=mesh.world_size + 1,
        save_time_s=seconds,
        restore_time_s=seconds,
    )
