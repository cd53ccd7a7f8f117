"""Training stacks of published runs: traits that are known of them, and factors fitted to stated calibration rows."""

from __future__ import annotations

import re
from typing import NamedTuple
from zlib import crc32

from harness.predict.job import Recompute
from harness.predict.software import NOMINAL, Software

_SOURCE = "fitted to the calibration rows of published runs by benchmarks/fit_software.py"
CALIBRATION_SHARE = 4  # one row in so many


class Family(NamedTuple):
    """A stack by a pattern of its name. ``fused``: its usual kernels join what is not a matrix product."""

    pattern: str
    software: Software
    fused: bool = False
    selective: Recompute = "selective"
    logit_bytes: int | None = None
    lean: bool = False


def _fitted(name: str, **factors: float | bool) -> Software:
    return NOMINAL.model_copy(update={"name": name, "provenance": "fitted", "source": _SOURCE, **factors})


FAMILIES: dict[str, Family] = {
    "torchtitan": Family(
        "torchtitan", _fitted("torchtitan", matmul=0.85, attention=0.36, overlap_dp=0.72), selective="operators"
    ),
    # its loss writes bf16 gradients in the logits' place
    "composer": Family(
        "composer|foundry|mosaic",
        _fitted("composer", matmul=0.85, attention=0.36, passes=0.85),
        logit_bytes=4,
        lean=True,
    ),
    "nanotron": Family(
        "nanotron",
        _fitted("nanotron", matmul=0.85, passes=0.87, host_s=4.42e-3, overlap_tp=0.33, overlap_dp=0.19),
    ),
    # before FlashAttention
    "megatron-2021": Family(
        "megatron-lm v2|megatron-lm$",
        _fitted("megatron-2021", matmul=0.85, passes=0.87, overlap_tp=0.15, overlap_dp=0.93, flash=False),
        fused=True,
    ),
    "megatron": Family("megatron|nemo", _fitted("megatron", matmul=0.98, attention=0.57, passes=0.97), fused=True),
    "deepspeed": Family("deepspeed", _fitted("deepspeed", flash=False), fused=True),
    # XLA reduces over slices once a step, after backward
    "jax": Family(
        "maxtext|jax", _fitted("jax", matmul=0.8, attention=0.4, passes=1.2, overlap_replicate=0.0), fused=True
    ),
    "torch": Family("", NOMINAL),
}


# stacks that train bf16 parameters beside an fp32 copy
MASTER_COPY = frozenset({"nanotron", "megatron", "megatron-2021", "deepspeed"})


def family_of(framework: str) -> str:
    """The stack that a table's framework column names; ``torch`` where none is known."""
    text = framework.strip().lower()
    return next(name for name, family in FAMILIES.items() if re.search(family.pattern, text))


def is_calibration(row_id: str) -> bool:
    """Whether a row of the project's table of published runs is one of those that factors were fitted to.

    By a checksum of its id, one in four; every other row, and every row of another table, is for evaluation.
    """
    return crc32(row_id.encode()) % CALIBRATION_SHARE == 0
