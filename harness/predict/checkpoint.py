"""Closed formulas of a checkpoint's bytes, files and reads, from shapes and mesh alone.

A checkpoint holds parameters, AdamW's two moments of the same shapes (4 bytes an element: the master weights are fp32
in every precision), and a 4-byte step a parameter. Each is stored once, whatever the mesh:

    tensor bytes = 12 P + 4 n        P elements in n parameters

What a rank holds is cut first over tp, then over dp_shard (``torch.chunk``'s rule, dim 0); replicas hold the same.
Names, shapes and digests (headers and manifest) come on top and are no part of the formula; ``predict_checkpoint`` adds
what they were measured to be.
"""

from __future__ import annotations

from collections.abc import Iterable
from math import ceil

from harness.base import Frozen
from harness.checkpoint.ways import SaveWay
from harness.errors import UnknownNameError
from harness.layout import Layout
from harness.layout.mesh import Mesh
from harness.predict.parameters import Parameter, parameters
from harness.workload import ModelShape, Workload

BYTES = 4  # of an element of parameters, moments and steps
TENSORS = {"parameters": BYTES, "exp_avg": BYTES, "exp_avg_sq": BYTES}
# What headers and manifest take: the slope of measured metadata over the number of stored pieces, and what the options
# of a parameter take above it
BYTES_PER_PIECE, BYTES_PER_PARAMETER = 245, 1_290
PREDICTED: tuple[SaveWay, ...] = ("one_group", "spread", "per_rank", "full")


class CheckpointSize(Frozen):
    """What a checkpoint of a way is made of, in bytes of tensors.

    Attributes:
        unique_bytes: every tensor once.
        duplicate_bytes: what is stored again.
        files: tensor files, one a writing rank; the manifest comes on top.
        read_by_each_bytes: storage reads at restore if each rank reads all that it needs.
        read_once_bytes: the same if one rank reads and sends to the others.
    """

    way: SaveWay
    mesh: str
    bytes_by_kind: dict[str, int]
    unique_bytes: int
    duplicate_bytes: int
    files: int
    read_by_each_bytes: int
    read_once_bytes: int

    @property
    def stored_bytes(self) -> int:
        return self.unique_bytes + self.duplicate_bytes

    @property
    def mean_file_bytes(self) -> float:
        return self.stored_bytes / self.files


class CheckpointPrediction(Frozen):
    """One checkpoint of all ranks, saved by the default way.

    Attributes:
        tensor_bytes: parameters and both moments of every parameter, once each; exact.
        total_bytes: with steps, headers and manifest.
        files: one of each writing rank, and the manifest; one replica group writes.
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

    A restore reads as many bytes as a save writes: one replica group reads and sends to the others.
    """
    size = checkpoint_size(workload.model, layout.mesh)
    found = parameters(workload.model)
    pieces = sum(
        len(TENSORS) * layout.mesh.dp_shard * (layout.mesh.tp if one.tp_dim is not None else 1) + 1 for one in found
    )
    total = size.unique_bytes + BYTES_PER_PIECE * pieces + BYTES_PER_PARAMETER * len(found)
    seconds = None if storage_bytes_per_s is None else total / storage_bytes_per_s
    return CheckpointPrediction(
        tensor_bytes=size.unique_bytes - size.bytes_by_kind["step"],
        total_bytes=total,
        files=size.files + 1,
        save_time_s=seconds,
        restore_time_s=seconds,
    )


def checkpoint_size(shape: ModelShape, mesh: Mesh, way: SaveWay = "one_group") -> CheckpointSize:
    """Bytes, files and reads of the reference model's checkpoint with AdamW state.

    Raises:
        UnknownNameError: a way that has no formula.
    """
    if way not in PREDICTED:
        raise UnknownNameError("way to save with a formula", way, PREDICTED)
    found = parameters(shape)
    elements = sum(p.numel for p in found)
    by_kind = {kind: size * elements for kind, size in TENSORS.items()} | {"step": BYTES * len(found)}
    unique = sum(by_kind.values())
    whole = sum(p.numel * (1 if p.tp_dim is not None else mesh.tp) for p in found)
    steps = BYTES * len(found) * mesh.dp_shard * mesh.tp
    everywhere = mesh.dp_replicate * (sum(TENSORS.values()) * whole + steps)
    # a rank that holds no element of any parameter still holds the steps, which the lowest rank writes
    groups = max(1, sum(_holding_shards(found, mesh, tp) for tp in range(mesh.tp)))
    files = {
        "per_rank": mesh.world_size,
        "full": 1,
        "one_group": groups,
        "spread": groups * min(mesh.dp_replicate, 4 * len(found)),
    }[way]
    return CheckpointSize(
        way=way,
        mesh=mesh.signature,
        bytes_by_kind=by_kind,
        unique_bytes=unique,
        duplicate_bytes=everywhere - unique if way == "per_rank" else 0,
        files=files,
        read_by_each_bytes=everywhere,
        read_once_bytes=unique,
    )


def _holding_shards(found: Iterable[Parameter], mesh: Mesh, tp: int) -> int:
    """How many dp_shard coordinates hold any element at this tp coordinate; the first ones do."""
    most = 0
    for shape, tp_dim in {(parameter.shape, parameter.tp_dim) for parameter in found}:
        sizes = [chunk_length(size, mesh.tp, tp) if dim == tp_dim else size for dim, size in enumerate(shape)]
        if all(sizes):
            most = max(most, ceil(sizes[0] / ceil(sizes[0] / mesh.dp_shard)))
    return most


def chunk_length(size: int, parts: int, index: int) -> int:
    """Length of chunk ``index`` when ``size`` is cut into ``parts`` by ``torch.chunk``: full chunks first."""
    length = ceil(size / parts)
    return max(0, min(length, size - index * length))
