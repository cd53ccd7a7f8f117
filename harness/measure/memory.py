"""Peak memory of one untimed step, by the allocator on CUDA and by live tensors on a CPU."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.distributed.tensor import DTensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves


@dataclass
class Peak:
    """Filled when the measured block ends; bytes."""

    method: str = ""
    allocated: int = 0
    reserved: int | None = None
    rss: int | None = None


class LiveTensors(TorchDispatchMode):
    """Bytes of all living tensor storages, current and peak.

    Storages that exist at the start are found by the garbage collector; later ones when an operator returns them;
    resizing, by which sharding strategies free and refill unsharded parameters, is followed too.
    Buffers that C++ code holds without showing them to any operator (a gloo work buffer) are not seen.
    """

    def __init__(self) -> None:
        super().__init__()
        self.current = self.peak = 0
        self._living: dict[int, int] = {}
        for thing in gc.get_objects():
            # type() and not isinstance: lazy proxies import things when asked for their class
            if issubclass(type(thing), Tensor):
                self._see(thing)

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if DTensor in types:
            return NotImplemented
        result = func(*args, **(kwargs or {}))
        for leaf in tree_leaves(result):
            if isinstance(leaf, Tensor):
                self._see(leaf)
        return result

    def __enter__(self) -> LiveTensors:
        self._resize = torch.UntypedStorage.resize_

        def resize(storage: torch.UntypedStorage, size: int) -> torch.UntypedStorage:
            self._resize(storage, size)
            self._hold(storage)
            return storage

        setattr(torch.UntypedStorage, "resize_", resize)  # noqa: B010
        super().__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        super().__exit__(*error)
        setattr(torch.UntypedStorage, "resize_", self._resize)  # noqa: B010

    def _see(self, tensor: Tensor) -> None:
        if isinstance(tensor, DTensor) or tensor.device.type == "meta":
            return
        try:
            self._hold(tensor.untyped_storage())
        except (NotImplementedError, RuntimeError):
            return

    def _hold(self, storage: torch.UntypedStorage) -> None:
        key, size = storage._cdata, storage.nbytes()
        known = self._living.get(key)
        if known is None:
            weakref.finalize(storage, self._gone, key)
        self.current += size - (known or 0)
        self._living[key] = size
        self.peak = max(self.peak, self.current)

    def _gone(self, key: int) -> None:
        self.current -= self._living.pop(key, 0)


@contextmanager
def peak_memory(device: torch.device) -> Iterator[Peak]:
    """Measure the peak inside the block."""
    peak = Peak()
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)
        yield peak
        torch.cuda.synchronize(device)
        peak.method = "cuda allocator"
        peak.allocated = torch.cuda.max_memory_allocated(device)
        peak.reserved = torch.cuda.max_memory_reserved(device)
        return
    gc.collect()
    reset_rss_peak()
    with LiveTensors() as live:
        yield peak
    peak.method = "live tensors"
    peak.allocated = live.peak
    peak.rss = rss_peak()


def reset_rss_peak() -> None:
    """Begin anew with the largest resident set, where /proc allows it."""
    try:
        Path("/proc/self/clear_refs").write_text("5")
    except OSError:
        return


def rss_peak() -> int | None:
    """Largest resident set since the last reset, bytes; None where /proc does not say."""
    try:
        lines = Path("/proc/self/status").read_text().splitlines()
    except OSError:
        return None
    values = [line.split()[1] for line in lines if line.startswith("VmHWM:")]
    return int(values[0]) * 1024 if values else None
