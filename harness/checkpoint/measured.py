"""What a checkpoint cost: sizes by kind, who wrote and read how much, times by part, the disk's own rates."""

from __future__ import annotations

from typing import Literal

from harness.base import Frozen
from harness.checkpoint.manifest import Manifest
from harness.checkpoint.ways import RestoreWay, SaveWay

Cache = Literal["cold", "warm", "direct"]  # direct: past the page cache (O_DIRECT)


class DiskRate(Frozen):
    """A plain sequential write (with flush) and read by one process, in the same folder and job, bytes a second."""

    size_bytes: int
    write_bytes_per_s: float
    read_cold_bytes_per_s: float
    read_warm_bytes_per_s: float


class Sizes(Frozen):
    """Bytes on disk. They add up to the files' sizes.

    ``metadata_bytes``: headers and manifest; ``duplicate_bytes``: tensors stored again, in no kind's bytes.
    """

    bytes_by_kind: dict[str, int]
    metadata_bytes: int
    duplicate_bytes: int
    files: int  # the manifest included

    @property
    def total_bytes(self) -> int:
        return sum(self.bytes_by_kind.values()) + self.metadata_bytes + self.duplicate_bytes


class SaveCost(Frozen):
    """One save. Tuples have a value a rank; ``seconds`` are of the slowest rank in each part.

    ``blocking_s``: what training waited for, the whole save unless it went on behind the steps; then
    ``step_slowdown`` is the median step time meanwhile over that before.
    """

    way: SaveWay
    sizes: Sizes | None  # None where only the total is known (stock)
    total_bytes: int
    time_s: float
    blocking_s: float
    written_bytes: tuple[int, ...] | None = None
    seconds: dict[str, float] | None = None
    asynchronous: bool = False
    step_slowdown: float | None = None
    digest: bool = True


class RestoreCost(Frozen):
    """One restore into a fresh model. Tuples have a value a rank.

    ``storage_bytes``: read at the file layer; ``device_bytes``: what the kernel fetched from the storage device for
    the rank (``read_bytes`` of /proc/PID/io), 0 if all was cached.
    """

    way: RestoreWay
    cache: Cache
    time_s: float
    storage_bytes: tuple[int, ...]
    device_bytes: tuple[int, ...] | None = None
    received_bytes: tuple[int, ...] | None = None
    peak_rss_growth_bytes: tuple[int, ...] | None = None
    seconds: dict[str, float] | None = None
    threads: int | None = None
    throttled_to_bytes_per_s: float | None = None


class CheckpointParts(Frozen):
    """Everything measured of one layout's checkpoints. The first save and restore are the default ways."""

    saves: tuple[SaveCost, ...]
    restores: tuple[RestoreCost, ...]
    disk: DiskRate | None = None


def sizes_of(manifest: Manifest, manifest_bytes: int) -> Sizes:
    """Sizes of a checkpoint from its manifest."""
    by_kind: dict[str, int] = {}
    for tensor in manifest.tensors.values():
        by_kind[tensor.kind] = by_kind.get(tensor.kind, 0) + tensor.nbytes
    total = sum(file.size_bytes for file in manifest.files)
    tensors = manifest.tensor_bytes + manifest.duplicate_bytes
    return Sizes(
        bytes_by_kind=by_kind,
        metadata_bytes=total - tensors + manifest_bytes,
        duplicate_bytes=manifest.duplicate_bytes,
        files=len(manifest.files) + 1,
    )
