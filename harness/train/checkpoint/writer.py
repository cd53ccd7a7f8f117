"""DCP's storage side of a save: one safetensors file a writing rank, then the manifest, then the folder's name."""

from __future__ import annotations

import hashlib
import os
import shutil
import time
import zlib
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, Any, cast

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.checkpoint import Metadata, StorageWriter
from torch.distributed.checkpoint.metadata import StorageMeta
from torch.distributed.checkpoint.planner import SavePlan, SavePlanner, WriteItem, WriteItemType
from torch.distributed.checkpoint.storage import WriteResult
from torch.futures import Future

import harness
from harness.checkpoint.manifest import Manifest, Piece, StoredFile, StoredTensor, kind_of, manifest_text, piece_key
from harness.checkpoint.names import MANIFEST, CheckpointError, partial_folder, shard_name
from harness.checkpoint.safetensors import header_bytes
from harness.checkpoint.throttle import Throttle
from harness.checkpoint.ways import SaveWay
from harness.mesh.contract import MeshContract
from harness.spec import RunSpec

CHUNK_BYTES = 8 << 20
DTYPES = {
    torch.float32: "F32",
    torch.float64: "F64",
    torch.float16: "F16",
    torch.bfloat16: "BF16",
    torch.int64: "I64",
    torch.int32: "I32",
    torch.int16: "I16",
    torch.int8: "I8",
    torch.uint8: "U8",
    torch.bool: "BOOL",
}


class ManifestWriter(StorageWriter):
    """Writes one checkpoint.

    Attributes:
        seconds: this rank's time by part: copy (to host memory), write, digest (waited for), flush, commit.
        written_bytes: of this rank.
        manifest: on the coordinator, once it is written.
    """

    def __init__(
        self,
        folder: Path,
        spec: RunSpec,
        step: int,
        way: SaveWay,
        digest: bool = True,
        contract: MeshContract | None = None,
        throttle: Throttle | None = None,
    ) -> None:
        self.folder, self._partial = folder, partial_folder(folder)
        self._spec, self._step, self._way, self._contract = spec, step, way, contract
        self._digest, self._throttle = digest, throttle
        self._rank = dist.get_rank()
        self.seconds: dict[str, float] = dict.fromkeys(("copy", "write", "digest", "flush", "commit"), 0.0)
        self.written_bytes = 0
        self.manifest: Manifest | None = None

    def reset(self, checkpoint_id: str | os.PathLike[str] | None = None) -> None:
        """Nothing: a writer writes one checkpoint."""

    def set_up_storage_writer(self, is_coordinator: bool, *args: Any, **kwargs: Any) -> None:
        """Make the temporary folder; what an earlier attempt left there goes.

        Raises:
            CheckpointError: a checkpoint of this name exists.
        """
        if not is_coordinator:
            return
        if self.folder.exists():
            raise CheckpointError(f"checkpoint {self.folder} exists; remove it, or save elsewhere")
        shutil.rmtree(self._partial, ignore_errors=True)
        self._partial.mkdir(parents=True)

    def prepare_local_plan(self, plan: SavePlan) -> SavePlan:
        return plan

    def prepare_global_plan(self, plans: list[SavePlan]) -> list[SavePlan]:
        return plans

    def write_data(self, plan: SavePlan, planner: SavePlanner) -> Future[list[WriteResult]]:
        """Write this rank's pieces, large items first: neighbours of one size tend to be needed by the same ranks."""
        tensors: list[tuple[WriteItem, Tensor]] = []
        results: list[WriteResult] = []
        for item in plan.items:
            data = cast(Any, planner).resolve_data(item)
            if item.type == WriteItemType.BYTE_IO:
                results.append(WriteResult(item.index, 0, ("value", data)))
            else:
                tensors.append((item, data))
        # by the size of an element first, so that each element lies at a multiple of its size
        tensors.sort(key=lambda one: (-one[1].element_size(), -one[1].nbytes, one[0].index.fqn))
        if tensors:
            results += self._write_file(tensors)
        future: Future[list[WriteResult]] = Future()
        future.set_result(results)
        return future

    def _write_file(self, tensors: list[tuple[WriteItem, Tensor]]) -> list[WriteResult]:
        name = shard_name(self._rank)
        boxes = [_box(item) for item, _ in tensors]
        header = header_bytes(
            {
                piece_key(item.index.fqn, whole, offsets, shape): (DTYPES[tensor.dtype], shape, tensor.nbytes)
                for (item, tensor), (whole, offsets, shape) in zip(tensors, boxes, strict=True)
            },
            {"format": "pt"},
        )
        results, at, sha = [], len(header), hashlib.sha256(header)
        with (self._partial / name).open("wb", buffering=0) as file, ThreadPoolExecutor(1) as pool:
            write_all(file, memoryview(header))
            for (item, tensor), (whole, offsets, shape) in zip(tensors, boxes, strict=True):
                with self._timing("copy"):
                    data = raw(tensor)
                crc = self._write_piece(file, data, pool, sha)
                piece = Piece(file=name, offsets=offsets, shape=shape, begin=at, end=at + len(data), crc32=crc)
                at = piece.end
                stored = StoredTensor.model_construct(
                    kind=kind_of(item.index.fqn), dtype=DTYPES[tensor.dtype], shape=whole, pieces=(piece,), copies=()
                )
                results.append(WriteResult(item.index, len(data), ("piece", stored)))
            with self._timing("flush"):
                os.fsync(file.fileno())
        self.written_bytes = at
        stored_file = StoredFile(
            name=name, size_bytes=at, sha256=sha.hexdigest() if self._digest else None, rank=self._rank
        )
        results.append(WriteResult(tensors[0][0].index, 0, ("file", stored_file)))
        return results

    def _write_piece(self, file: IO[bytes], data: memoryview, pool: ThreadPoolExecutor, sha: Any) -> int:
        """Write ``data``; its digests are computed beside. Returns its CRC-32."""
        crc = 0
        for start in range(0, len(data), CHUNK_BYTES):
            chunk = data[start : start + CHUNK_BYTES]
            pending = pool.submit(_sums, chunk, crc, sha if self._digest else None)
            with self._timing("write"):
                if self._throttle is not None:
                    self._throttle.take(len(chunk))
                write_all(file, chunk)
            with self._timing("digest"):
                crc = pending.result()
        return crc

    def finish(self, metadata: Metadata, results: list[list[WriteResult]]) -> None:
        """On the coordinator: the manifest, then the name. Only then is there a checkpoint."""
        with self._timing("commit"):
            self.manifest = self._make_manifest([result for of_rank in results for result in of_rank])
            path = self._partial / MANIFEST
            with path.open("w", encoding="utf-8") as file:
                file.write(manifest_text(self.manifest))
                file.flush()
                os.fsync(file.fileno())
            sync_folder(self._partial)
            self._partial.rename(self.folder)
            sync_folder(self.folder.parent)
        self.written_bytes += (self.folder / MANIFEST).stat().st_size

    def _make_manifest(self, results: list[WriteResult]) -> Manifest:
        files, values = [], {}
        tensors: dict[str, StoredTensor] = {}
        for result in results:
            what, data = cast(tuple[str, Any], result.storage_data)
            key = result.index.fqn
            if what == "file":
                files.append(data)
            elif what == "value":
                values[key] = data
            else:
                tensors[key] = _joined(tensors.get(key), data)
        spec = self._spec
        return Manifest(
            step=self._step,
            mesh=spec.layout.mesh.signature,
            layout=spec.layout.text,
            model=spec.workload.model,
            model_path=spec.workload.model_path,
            way=self._way,
            created_at=datetime.now(UTC).isoformat(timespec="seconds"),
            versions={"meshsweep": harness.__version__, "torch": torch.__version__},
            contract=self._contract,
            files=tuple(files),
            tensors={key: StoredTensor.model_validate(t.model_dump()) for key, t in tensors.items()},
            values=values,
        )

    @contextmanager
    def _timing(self, part: str) -> Any:
        start = time.perf_counter()
        try:
            yield
        finally:
            self.seconds[part] += time.perf_counter() - start

    @classmethod
    def validate_checkpoint_id(cls, checkpoint_id: str | os.PathLike[str]) -> bool:
        return True

    def storage_meta(self) -> StorageMeta | None:
        return None


def raw(tensor: Tensor) -> memoryview:
    """A tensor's bytes in host memory, without a copy if they lie there in one run."""
    return tensor.detach().cpu().contiguous().flatten().view(torch.uint8).numpy().data


def write_all(file: IO[bytes], data: memoryview) -> None:
    """Write all of it; one call may write less."""
    while data:
        data = data[file.write(data) :]


def sync_folder(folder: Path) -> None:
    """Have names in ``folder`` on disk."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _sums(data: memoryview, crc: int, sha: Any) -> int:
    if sha is not None:
        sha.update(data)
    return zlib.crc32(data, crc)


def _box(item: WriteItem) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]:
    """(whole shape, offsets, shape) of what an item writes."""
    data = item.tensor_data
    assert data is not None
    return tuple(data.size), tuple(data.chunk.offsets), tuple(data.chunk.sizes)


def _joined(known: StoredTensor | None, one: StoredTensor) -> StoredTensor:
    """A piece more of a tensor: a new part, or a copy of a part that is known."""
    if known is None:
        return one
    (piece,) = one.pieces
    if any(p.offsets == piece.offsets and p.shape == piece.shape for p in known.pieces):
        return known.model_copy(update={"copies": (*known.copies, piece)})
    return known.model_copy(update={"pieces": (*known.pieces, piece)})
