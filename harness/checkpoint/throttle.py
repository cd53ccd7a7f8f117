"""A storage made slow on purpose: all processes that share a throttle together get its rate."""

from __future__ import annotations

import fcntl
import os
import struct
import time
from pathlib import Path


class Throttle:
    """At most ``bytes_per_s`` over all processes that use the same ``file``.

    Stands for a storage that several hosts share. Each transfer takes its turn on one common clock, which the file
    holds; a copy of the object in another process shares it.
    """

    def __init__(self, file: Path, bytes_per_s: float) -> None:
        self.file, self.bytes_per_s = file, bytes_per_s

    def take(self, nbytes: int) -> None:
        """Wait until ``nbytes`` have passed."""
        descriptor = os.open(self.file, os.O_RDWR | os.O_CREAT)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            held = os.pread(descriptor, 8, 0)
            free_at = struct.unpack("d", held)[0] if len(held) == 8 else 0.0
            end = max(free_at, time.monotonic()) + nbytes / self.bytes_per_s
            os.pwrite(descriptor, struct.pack("d", end), 0)
        finally:
            os.close(descriptor)
        time.sleep(max(0.0, end - time.monotonic()))
