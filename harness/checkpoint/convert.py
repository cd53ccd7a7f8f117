"""Checkpoints turned into other forms without training: one plain file, cut for another mesh, made from a plain file.

Works on bytes with memory-mapped files: no torch, and never more than one box of a tensor in memory.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from math import ceil, prod
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from harness.checkpoint.manifest import (
    Manifest,
    Piece,
    StoredFile,
    StoredTensor,
    encode,
    kind_of,
    manifest_text,
    piece_key,
)
from harness.checkpoint.names import MANIFEST, CheckpointError, partial_folder, shard_name
from harness.checkpoint.safetensors import ITEM_BYTES, header_bytes, read_header
from harness.checkpoint.verify import STRANGE, damaged, verify
from harness.layout.mesh import Mesh

if TYPE_CHECKING:
    from numpy.typing import NDArray

Box = tuple[tuple[int, ...], tuple[int, ...]]  # offsets, shape
ReadBox = Callable[[str, Box], "NDArray[Any]"]
MODEL = "model."


def to_safetensors(folder: Path, manifest: Manifest, target: Path, optimizer: bool = False) -> int:
    """Write whole tensors into one file under the model's own names; its bytes.

    With ``optimizer`` its state is there too, as ``optimizer.state.<name>.<state>``.

    Raises:
        CheckpointError: the checkpoint is damaged, or the target exists.
    """
    _require_unaltered(folder, manifest)
    if target.exists():
        raise CheckpointError(f"{target} exists; give another name")
    chosen = {k: t for k, t in manifest.tensors.items() if optimizer or k.startswith(MODEL)}
    names = {key: key.removeprefix(MODEL) for key in chosen}
    ordered = sorted(chosen, key=lambda key: (-ITEM_BYTES[chosen[key].dtype], key))
    header = header_bytes(
        {names[key]: (chosen[key].dtype, chosen[key].shape, chosen[key].nbytes) for key in ordered},
        {"format": "pt", "step": str(manifest.step)},
    )
    temporary = target.with_name(f".{target.name}.partial")
    with _removed_unless_done(temporary), temporary.open("wb") as file:
        file.write(header)
        for key in ordered:
            file.write(read_box(folder, chosen[key], _all(chosen[key].shape)).data)
        _to_disk(file)
        temporary.rename(target)
    return target.stat().st_size


def to_mesh(folder: Path, manifest: Manifest, target: Path, mesh: Mesh, tp_dims: Mapping[str, int | None]) -> Manifest:
    """Cut a checkpoint anew: one file for each (dp_shard, tp) place of ``mesh``, with what that place will need.

    A restore on any mesh works from any cut; from this one every rank of ``mesh`` reads one run of bytes.
    ``tp_dims``: the dim that tensor parallelism splits, by parameter name.

    Raises:
        CheckpointError: the checkpoint is damaged, or the target exists.
    """
    _require_unaltered(folder, manifest)
    places: list[dict[str, list[Box]]] = [{} for _ in range(mesh.dp_shard * mesh.tp)]
    for key, tensor in manifest.tensors.items():
        for place, box in cut(tensor.shape, mesh, tp_dims.get(_parameter(key))):
            places[place].setdefault(key, []).append(box)
    return _write_folder(
        target,
        places,
        {key: (t.kind, t.dtype, t.shape) for key, t in manifest.tensors.items()},
        lambda key, box: read_box(folder, manifest.tensors[key], box),
        manifest.model_copy(update={"mesh": mesh.signature, "layout": None, "contract": None, "way": "one_group"}),
    )


def from_safetensors(source: Path, target: Path, step: int) -> Manifest:
    """Make a checkpoint folder with one file out of a plain one; names without ``optimizer.`` are the model's.

    Raises:
        CheckpointError: it is not a safetensors file, or the target exists.
    """
    import numpy as np

    entries, metadata = read_header(source)
    keys = {name if name.startswith(("optimizer.", MODEL)) else MODEL + name: name for name in entries}
    data = np.memmap(source, dtype=np.uint8, mode="r") if source.stat().st_size else np.zeros(0, np.uint8)

    def whole(key: str, _: Box) -> NDArray[np.uint8]:
        entry = entries[keys[key]]
        return data[entry.begin : entry.end]

    return _write_folder(
        target,
        [{key: [_all(entries[name].shape)] for key, name in keys.items()}],
        {key: (kind_of(key), entries[name].dtype, entries[name].shape) for key, name in keys.items()},
        whole,
        Manifest(
            step=step,
            mesh="r1s1t1",
            way="full",
            files=(),
            tensors={},
            values={f"source.{k}": encode(v) for k, v in metadata.items()},
            created_at=datetime.now(UTC).isoformat(timespec="seconds"),
        ),
    )


def cut(shape: tuple[int, ...], mesh: Mesh, tp_dim: int | None) -> Iterator[tuple[int, Box]]:
    """(place, box) of each part of a tensor; place = dp_shard coordinate * tp + tp coordinate.

    tp first, then dp_shard along dim 0, both by ``torch.chunk``'s rule. What several places hold the first one gets.
    """
    if not shape:
        yield 0, ((), ())
        return
    for tp in range(mesh.tp if tp_dim is not None else 1):
        offsets, sizes = [0] * len(shape), list(shape)
        if tp_dim is not None:
            offsets[tp_dim], sizes[tp_dim] = chunk(shape[tp_dim], mesh.tp, tp)
        base, rows = offsets[0], sizes[0]
        for shard in range(mesh.dp_shard):
            start, length = chunk(rows, mesh.dp_shard, shard)
            box = ((base + start, *offsets[1:]), (length, *sizes[1:]))
            if prod(box[1]):
                yield shard * mesh.tp + tp, box


def chunk(size: int, parts: int, index: int) -> tuple[int, int]:
    """(start, length) of chunk ``index`` of ``torch.chunk(parts)``."""
    length = ceil(size / parts)
    start = min(size, index * length)
    return start, min(length, size - start)


def read_box(folder: Path, tensor: StoredTensor, box: Box) -> NDArray[Any]:
    """The bytes of a box of a tensor, shape (*shape, bytes of an element); only files that hold some of it are read."""
    import numpy as np

    item = ITEM_BYTES[tensor.dtype]
    found = np.empty((*box[1], item), dtype=np.uint8)
    for piece in tensor.pieces:
        low = tuple(map(max, box[0], piece.offsets))
        ends = zip(box[0], box[1], piece.offsets, piece.shape, strict=True)
        shape = tuple(min(o + n, po + pn) - start for start, (o, n, po, pn) in zip(low, ends, strict=True))
        if piece.nbytes == 0 or any(n <= 0 for n in shape):
            continue
        data = np.memmap(folder / piece.file, np.uint8, "r", piece.begin, (*piece.shape, item))
        inside = data[_slices(_minus(low, piece.offsets), shape)]
        found[_slices(_minus(low, box[0]), shape)] = inside
    return found


def _minus(a: tuple[int, ...], b: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(x - y for x, y in zip(a, b, strict=True))


def _all(shape: tuple[int, ...]) -> Box:
    return (0,) * len(shape), shape


def _slices(offsets: tuple[int, ...], shape: tuple[int, ...]) -> tuple[slice, ...]:
    return tuple(slice(o, o + n) for o, n in zip(offsets, shape, strict=True))


def _parameter(key: str) -> str:
    """The parameter's name in ``model.<name>`` or ``optimizer.state.<name>.<state>``."""
    if key.startswith(MODEL):
        return key.removeprefix(MODEL)
    return key.removeprefix("optimizer.state.").rpartition(".")[0]


def _write_folder(
    target: Path,
    places: list[dict[str, list[Box]]],
    tensors: Mapping[str, tuple[Any, str, tuple[int, ...]]],
    read: ReadBox,
    about: Manifest,
) -> Manifest:
    if target.exists():
        raise CheckpointError(f"{target} exists; give another --out")
    partial = partial_folder(target)
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir(parents=True)
    with _removed_unless_done(partial):
        files: list[StoredFile] = []
        pieces: dict[str, list[Piece]] = {key: [] for key in tensors}
        for rank, boxes in enumerate(places):
            if boxes:
                files.append(_write_shard(partial / shard_name(rank), rank, boxes, tensors, read, pieces))
        stored = {
            key: StoredTensor(kind=kind, dtype=dtype, shape=shape, pieces=tuple(pieces[key]))
            for key, (kind, dtype, shape) in tensors.items()
        }
        manifest = Manifest.model_validate({**dict(about), "files": tuple(files), "tensors": stored})
        with (partial / MANIFEST).open("w", encoding="utf-8") as file:
            file.write(manifest_text(manifest))
            _to_disk(file)
        partial.rename(target)
    return manifest


def _write_shard(
    path: Path,
    rank: int,
    boxes: dict[str, list[Box]],
    tensors: Mapping[str, tuple[Any, str, tuple[int, ...]]],
    read: ReadBox,
    pieces: dict[str, list[Piece]],
) -> StoredFile:
    listed = [(key, box) for key, of_key in boxes.items() for box in of_key]
    sizes = {(key, box): prod(box[1]) * ITEM_BYTES[tensors[key][1]] for key, box in listed}
    listed.sort(key=lambda one: (-ITEM_BYTES[tensors[one[0]][1]], -sizes[one], one[0]))
    header = header_bytes(
        {piece_key(key, tensors[key][2], *box): (tensors[key][1], box[1], sizes[key, box]) for key, box in listed},
        {"format": "pt"},
    )
    at, sha = len(header), hashlib.sha256(header)
    with path.open("wb") as file:
        file.write(header)
        for key, box in listed:
            data = read(key, box).tobytes()
            sha.update(data)
            file.write(data)
            pieces[key].append(
                Piece(
                    file=path.name,
                    offsets=box[0],
                    shape=box[1],
                    begin=at,
                    end=at + len(data),
                    crc32=zlib.crc32(data),
                )
            )
            at += len(data)
        _to_disk(file)
    return StoredFile(name=path.name, size_bytes=at, sha256=sha.hexdigest(), rank=rank)


def _require_unaltered(folder: Path, manifest: Manifest) -> None:
    damage = [one for one in verify(folder, manifest) if one.what != STRANGE]
    if damage:
        raise damaged(folder, damage)


def _to_disk(file: IO[Any]) -> None:
    file.flush()
    os.fsync(file.fileno())


@contextmanager
def _removed_unless_done(path: Path) -> Iterator[None]:
    """Leave nothing half-written; a full disk is one line.

    Raises:
        CheckpointError: it could not be written.
    """
    try:
        yield
    except BaseException as error:
        if path.is_dir():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink(missing_ok=True)
        if isinstance(error, OSError):
            raise CheckpointError(f"cannot write {path.parent}: {error.strerror or error}; free space") from error
        raise
