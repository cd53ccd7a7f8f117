"""Checkpoint folders made by hand, without torch."""

from __future__ import annotations

import hashlib
import zlib
from pathlib import Path

import numpy as np

from harness.checkpoint.manifest import Manifest, Piece, StoredFile, StoredTensor, kind_of, manifest_text, piece_key
from harness.checkpoint.names import MANIFEST, shard_name
from harness.checkpoint.safetensors import header_bytes

WEIGHT = np.arange(24, dtype=np.float32).reshape(4, 6)
NORM = np.arange(6, dtype=np.float32) + 100
WEIGHT_KEY, NORM_KEY = "model.layers.0.attention.out.weight", "model.norm.weight"
Content = dict[str, tuple[np.ndarray, tuple[int, ...], tuple[int, ...]]]  # key -> part, offsets, whole shape
STATE_KEY = "optimizer.state.norm.weight.exp_avg"


def write(folder: Path) -> Manifest:
    """Two files: the upper and the lower rows of a weight, and in the first also a norm and a moment of it."""
    folder.mkdir(parents=True)
    upper: Content = {WEIGHT_KEY: (WEIGHT[:2], (0, 0), WEIGHT.shape)}
    more: Content = {NORM_KEY: (NORM, (0,), NORM.shape), STATE_KEY: (NORM * 2, (0,), NORM.shape)}
    lower: Content = {WEIGHT_KEY: (WEIGHT[2:], (2, 0), WEIGHT.shape)}
    tensors: dict[str, StoredTensor] = {}
    files = []
    for rank, content in enumerate((upper | more, lower)):
        header = header_bytes(
            {
                piece_key(key, whole, offsets, part.shape): ("F32", part.shape, part.nbytes)
                for key, (part, offsets, whole) in content.items()
            }
        )
        data, at = header, len(header)
        for key, (part, offsets, whole) in content.items():
            raw = part.tobytes()
            piece = Piece(
                file=shard_name(rank),
                offsets=offsets,
                shape=part.shape,
                begin=at,
                end=at + len(raw),
                crc32=zlib.crc32(raw),
            )
            known = tensors[key].pieces if key in tensors else ()
            tensors[key] = StoredTensor.model_construct(
                kind=kind_of(key), dtype="F32", shape=whole, pieces=(*known, piece), copies=()
            )
            data, at = data + raw, at + len(raw)
        (folder / shard_name(rank)).write_bytes(data)
        files.append(
            StoredFile(name=shard_name(rank), size_bytes=len(data), sha256=hashlib.sha256(data).hexdigest(), rank=rank)
        )
    manifest = Manifest(
        step=7,
        mesh="r1s2t1",
        way="one_group",
        created_at="2026-01-01T00:00:00+00:00",
        files=tuple(files),
        tensors={key: StoredTensor.model_validate(tensor.model_dump()) for key, tensor in tensors.items()},
    )
    (folder / MANIFEST).write_text(manifest_text(manifest))
    return manifest
