"""DCP's storage side of a restore: blocks are read ahead by threads, checked, and sent to all ranks that need them."""

from __future__ import annotations

import mmap
import os
import time
from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Future as Pending
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
import torch.distributed as dist
from numpy.typing import NDArray
from torch import Tensor
from torch.distributed.checkpoint import Metadata, StorageReader
from torch.distributed.checkpoint.metadata import (
    BytesStorageMetadata,
    ChunkStorageMetadata,
    TensorProperties,
    TensorStorageMetadata,
)
from torch.distributed.checkpoint.planner import LoadItemType, LoadPlan, LoadPlanner, ReadItem
from torch.futures import Future

from harness.checkpoint.blocks import BLOCK_BYTES, Block, PieceRef, plan_blocks
from harness.checkpoint.manifest import Manifest
from harness.checkpoint.safetensors import ALIGNMENT
from harness.checkpoint.throttle import Throttle
from harness.checkpoint.verify import Damage, damaged, sum_of
from harness.checkpoint.ways import RestoreWay
from harness.train.checkpoint.planners import LoadPlanner as ManifestPlanner
from harness.train.checkpoint.writer import DTYPES

TORCH_DTYPES = {name: dtype for dtype, name in DTYPES.items()}
Bytes = NDArray[np.uint8]


class ManifestReader(StorageReader):
    """Reads one checkpoint.

    Attributes:
        storage_bytes: read from files by this rank.
        received_bytes: sent to this rank by others.
        seconds: this rank's time waiting for reads, in collectives, and copying into the model.
    """

    def __init__(
        self,
        folder: Path,
        manifest: Manifest,
        way: RestoreWay,
        device: torch.device,
        threads: int = 2,
        block_bytes: int = BLOCK_BYTES,
        direct: bool = False,
        throttle: Throttle | None = None,
    ) -> None:
        self._folder, self._manifest, self._way, self._device = folder, manifest, way, device
        self._threads, self._block_bytes, self._direct, self._throttle = threads, block_bytes, direct, throttle
        self.storage_bytes = self.received_bytes = 0
        self.seconds = {"read": 0.0, "send": 0.0, "copy": 0.0}
        self._damage: list[Damage] = []

    def reset(self, checkpoint_id: str | os.PathLike[str] | None = None) -> None:
        """Nothing: a reader reads one checkpoint."""

    def read_metadata(self, *args: Any, **kwargs: Any) -> Metadata:
        """DCP's view of the manifest."""
        known: dict[str, Any] = {
            key: TensorStorageMetadata(
                properties=TensorProperties(dtype=TORCH_DTYPES[tensor.dtype]),
                size=torch.Size(tensor.shape),
                chunks=[ChunkStorageMetadata(torch.Size(p.offsets), torch.Size(p.shape)) for p in tensor.pieces],
            )
            for key, tensor in self._manifest.tensors.items()
        }
        return Metadata(known | dict.fromkeys(self._manifest.values, BytesStorageMetadata()))

    def set_up_storage_reader(self, metadata: Metadata, is_coordinator: bool, *args: Any, **kwargs: Any) -> None:
        """Nothing is opened before the plan stands."""

    def prepare_local_plan(self, plan: LoadPlan) -> LoadPlan:
        return plan

    def prepare_global_plan(self, plans: list[LoadPlan]) -> list[LoadPlan]:
        """On the coordinator: who reads what. Each rank is told its blocks, and all groups, which all must make."""
        needs = [[_ref(item) for item in plan.items if item.type == LoadItemType.TENSOR] for plan in plans]
        blocks = plan_blocks(self._manifest, needs, self._way, self._block_bytes)
        groups = sorted({block.needers for block in blocks if len(block.needers) > 1})
        for rank, plan in enumerate(plans):
            plan.storage_data = ([block for block in blocks if rank in block.needers], groups)
        return plans

    def read_data(self, plan: LoadPlan, planner: LoadPlanner) -> Future[None]:
        """Work through this rank's blocks in the common order.

        Raises:
            CheckpointError: a piece is not what was written. Raised after the last block, so that no other rank waits
                for a block that does not come.
        """
        blocks, needers = cast(tuple[list[Block], list[tuple[int, ...]]], plan.storage_data)
        items: dict[PieceRef, list[ReadItem]] = {}
        for item in plan.items:
            if item.type == LoadItemType.BYTE_IO:
                cast(ManifestPlanner, planner).load_value(item)
            else:
                items.setdefault(_ref(item), []).append(item)
        with _groups(needers) as groups:
            for block, buffer in self._buffers(blocks):
                start = time.perf_counter()
                if len(block.needers) > 1:
                    buffer = buffer.to(self._device)
                    dist.broadcast(buffer, block.reader, group=groups[block.needers])
                sent = time.perf_counter()
                for ref in block.pieces:
                    self._fill(block, buffer, ref, items[ref], planner)
                self.seconds["send"] += sent - start
                self.seconds["copy"] += time.perf_counter() - sent
        if self._damage:
            raise damaged(self._folder, self._damage)
        future: Future[None] = Future()
        future.set_result(None)
        return future

    def _buffers(self, blocks: Sequence[Block]) -> Iterator[tuple[Block, Tensor]]:
        """Each block with its bytes, or with room for them if another rank reads it; own blocks are read ahead."""
        rank = dist.get_rank()
        mine = iter([block for block in blocks if block.reader == rank])
        ahead: deque[Pending[Tensor]] = deque()
        with ThreadPoolExecutor(self._threads) as pool:

            def read_on() -> None:
                block = next(mine, None)
                if block is not None:
                    ahead.append(pool.submit(self._read, block))

            for _ in range(self._threads + 1):
                read_on()
            for block in blocks:
                start = time.perf_counter()
                if block.reader == rank:
                    buffer = ahead.popleft().result()
                    read_on()
                    self.storage_bytes += block.nbytes
                else:
                    buffer = torch.empty(block.nbytes, dtype=torch.uint8, device=self._device)
                    self.received_bytes += block.nbytes
                self.seconds["read"] += time.perf_counter() - start
                yield block, buffer

    def _read(self, block: Block) -> Tensor:
        if self._throttle is not None:
            self._throttle.take(block.nbytes)
        path = self._folder / block.file
        try:
            data = read_past_cache(path, block) if self._direct else read_range(path, block)
        except OSError as error:
            self._damage.append(Damage(file=block.file, what=f"cannot be read: {error.strerror or error}"))
            return torch.zeros(block.nbytes, dtype=torch.uint8)
        self._check(block, data)
        return torch.from_numpy(data)

    def _check(self, block: Block, data: Bytes) -> None:
        for key, index in block.pieces:
            piece = self._manifest.tensors[key].pieces[index]
            if sum_of(data[piece.begin - block.begin : piece.end - block.begin].data) != piece.crc32:
                self._damage.append(Damage(file=block.file, keys=(key,), what="altered since it was written"))

    def _fill(self, block: Block, buffer: Tensor, ref: PieceRef, items: list[ReadItem], planner: LoadPlanner) -> None:
        """Copy one piece, or the boxes of it that this rank needs, to where they belong."""
        tensor = self._manifest.tensors[ref[0]]
        piece = tensor.pieces[ref[1]]
        data = buffer[piece.begin - block.begin : piece.end - block.begin]
        box = data.view(TORCH_DTYPES[tensor.dtype]).view(piece.shape)
        for item in items:
            part = box
            for dim, (offset, length) in enumerate(zip(item.storage_offsets, item.lengths, strict=True)):
                part = part.narrow(dim, offset, length)
            target = planner.resolve_tensor(item)
            target.detach().copy_(part)
            planner.commit_tensor(item, target)

    @classmethod
    def validate_checkpoint_id(cls, checkpoint_id: str | os.PathLike[str]) -> bool:
        return True


class _groups:
    """A process group for each set of ranks, made on all ranks in one order and dropped at the end."""

    def __init__(self, needers: list[tuple[int, ...]]) -> None:
        self._needers = needers

    def __enter__(self) -> dict[tuple[int, ...], dist.ProcessGroup | None]:
        self._own = {
            ranks: dist.new_group(list(ranks)) for ranks in self._needers if len(ranks) < dist.get_world_size()
        }
        return {ranks: self._own.get(ranks) for ranks in self._needers}

    def __exit__(self, error: type[BaseException] | None, *_: object) -> None:
        if error is not None:
            return  # what the others do is not known; the groups end with the process
        dist.barrier()  # no rank closes connections on which another still receives
        rank = dist.get_rank()
        for ranks, group in self._own.items():
            if rank in ranks:
                dist.destroy_process_group(group)


def _ref(item: ReadItem) -> PieceRef:
    index = item.storage_index.index
    assert index is not None
    return item.storage_index.fqn, index


def read_range(path: Path, block: Block) -> Bytes:
    """A block's bytes through the page cache.

    Raises:
        OSError: it cannot be read to its end.
    """
    data = np.empty(block.nbytes, dtype=np.uint8)
    with path.open("rb", buffering=0) as file:
        file.seek(block.begin)
        view = data.data
        while view:
            count = file.readinto(view)
            if not count:
                raise OSError("the file ends early")
            view = view[count:]
    return data


def read_past_cache(path: Path, block: Block) -> Bytes:
    """A block's bytes straight from the storage (O_DIRECT), from whole pages around them.

    Raises:
        OSError: it cannot be read to its end, or the file system has no such reads.
    """
    first = block.begin // ALIGNMENT * ALIGNMENT
    length = -(-(block.end - first) // ALIGNMENT) * ALIGNMENT
    room = mmap.mmap(-1, max(length, ALIGNMENT))
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECT)
    try:
        count = 0
        while first + count < block.end:
            more = os.preadv(descriptor, [memoryview(room)[count:length]], first + count)
            if not more:
                raise OSError("the file ends early")
            count += more
    finally:
        os.close(descriptor)
    whole = np.frombuffer(room, dtype=np.uint8)
    return whole[block.begin - first : block.end - first]


def reads_past_cache(path: Path) -> bool:
    """Whether the file system of ``path`` has such reads; a tmpfs may not."""
    try:
        read_past_cache(path, Block(path.name, 0, 1, 0, (0,), ()))
    except OSError:
        return False
    return True
