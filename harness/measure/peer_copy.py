"""How fast GPUs of this host copy to each other: ``python -m harness.measure.peer_copy 0-1 0-2`` prints JSON."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Sequence
from statistics import median

import torch

COPY_BYTES = 64 << 20
COPIES = 10
WARMUP = 3
SMALL_COPIES = 51


def copy_speed(source: int, target: int) -> dict[str, object]:
    """Copies from one device to another, by their numbers in this process: bytes a second, seconds a small copy."""
    here = torch.zeros(COPY_BYTES, dtype=torch.uint8, device=f"cuda:{source}")
    there = torch.empty_like(here, device=f"cuda:{target}")
    for _ in range(WARMUP):
        there.copy_(here)
    times = [_timed(here, there) for _ in range(COPIES)]
    small = [_timed(here[:1], there[:1]) for _ in range(SMALL_COPIES)]
    direct = torch.cuda.can_device_access_peer(target, source)
    return {
        "bandwidth_bytes_per_s": COPY_BYTES / median(times),
        "latency_s": median(small),
        "method": f"copies of {COPY_BYTES >> 20} MiB between GPUs" + ("" if direct else ", through the host"),
    }


def _timed(here: torch.Tensor, there: torch.Tensor) -> float:
    for one in (here, there):
        torch.cuda.synchronize(one.device)
    begin = time.perf_counter()
    there.copy_(here)
    for one in (here, there):
        torch.cuda.synchronize(one.device)
    return time.perf_counter() - begin


def main(pairs: Sequence[str]) -> None:
    """Print a list with one object a pair, in their order."""
    found = [copy_speed(*map(int, pair.split("-"))) for pair in pairs]
    print(json.dumps(found))


if __name__ == "__main__":
    main(sys.argv[1:])
