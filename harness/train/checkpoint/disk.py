"""The disk's own rates, what is in its cache, and what this process has read."""

from __future__ import annotations

import os
import time
from pathlib import Path

from harness.checkpoint.measured import DiskRate
from harness.train.checkpoint.writer import write_all

CHUNK_BYTES = 8 << 20
LEAST_BYTES, MOST_BYTES = 16 << 20, 1 << 30


def drop_cache(folder: Path) -> None:
    """Have the kernel forget the files' cached pages, which must be on disk by then (``posix_fadvise``)."""
    for path in folder.rglob("*"):
        if path.is_file():
            descriptor = os.open(path, os.O_RDONLY)
            try:
                os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
            finally:
                os.close(descriptor)


def sequential_rates(folder: Path, nbytes: int) -> DiskRate:
    """Write a file of about ``nbytes``, flush it, read it cold and warm; 16 MiB at least and 1 GiB at most."""
    size = min(MOST_BYTES, max(LEAST_BYTES, nbytes)) // CHUNK_BYTES * CHUNK_BYTES
    chunk = memoryview(os.urandom(CHUNK_BYTES))  # a disk may compress anything simpler
    path = folder / "sequential.bin"
    try:
        start = time.perf_counter()
        with path.open("wb", buffering=0) as file:
            for _ in range(size // CHUNK_BYTES):
                write_all(file, chunk)
            os.fsync(file.fileno())
        write_s = time.perf_counter() - start
        drop_cache(folder)
        cold_s, warm_s = _read_s(path), _read_s(path)
    finally:
        path.unlink(missing_ok=True)
    return DiskRate(
        size_bytes=size,
        write_bytes_per_s=size / write_s,
        read_cold_bytes_per_s=size / cold_s,
        read_warm_bytes_per_s=size / warm_s,
    )


def _read_s(path: Path) -> float:
    room = bytearray(CHUNK_BYTES)
    start = time.perf_counter()
    with path.open("rb", buffering=0) as file:
        while file.readinto(room):
            pass
    return time.perf_counter() - start


def process_io() -> tuple[int, int] | None:
    """(bytes read at the file layer, bytes fetched from devices) by this process so far; None if /proc does not say."""
    try:
        lines = Path("/proc/self/io").read_text().splitlines()
    except OSError:
        return None
    values = dict(line.split(": ") for line in lines)
    return int(values["rchar"]), int(values["read_bytes"])
