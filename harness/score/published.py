"""Training stacks of published runs: traits that are known of them, and factors fitted to stated calibration rows."""

from __future__ import annotations

import re
from typing import NamedTuple

from harness.predict.job import Recompute
from harness.predict.software import NOMINAL, Software

_SOURCE = "fitted to the calibration rows of published runs by benchmarks/fit_software.py"


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


def _nominal(name: str, **factors: float | bool) -> Software:
    return NOMINAL.model_copy(update={"name": name, **factors})


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
    # before FlashAttention; too few calibration rows to fit more than what it has of its own
    "megatron-2021": Family(
        "megatron-lm v2|megatron-lm$",
        _nominal("megatron-2021", flash=False),
        fused=True,
    ),
    "megatron": Family(
        "megatron|nemo",
        _fitted("megatron", matmul=0.95, attention=0.58, passes=0.95, overlap_tp=0.57, overlap_dp=1.0),
        fused=True,
    ),
    "deepspeed": Family("deepspeed", _nominal("deepspeed", flash=False), fused=True),
    # XLA reduces over slices once a step, after backward; cuDNN's attention
    "jax": Family("maxtext|jax", _nominal("jax", attention=0.55, overlap_replicate=0.0), fused=True),
    "torch": Family("", NOMINAL),
}


# stacks that train bf16 parameters beside an fp32 copy
MASTER_COPY = frozenset({"nanotron", "megatron", "megatron-2021", "deepspeed"})


def family_of(framework: str) -> str:
    """The stack that a table's framework column names; ``torch`` where none is known."""
    text = framework.strip().lower()
    return next(name for name, family in FAMILIES.items() if re.search(family.pattern, text))


# numbers of the rows, by source, that factors were fitted to: those of the project's table whose id has a CRC-32 that
# divides by 4
CALIBRATION_ROWS: dict[str, frozenset[int]] = {
    "korthikanti_tab5": frozenset((2,)),
    "maxtext_a3": frozenset((4,)),
    "megatron_a100": frozenset((4, 6, 10)),
    "mosaic_llmfoundry": frozenset(
        (
            8,
            20,
            22,
            34,
            36,
            48,
            60,
            62,
            74,
            76,
            88,
            104,
            106,
            110,
            112,
            138,
            144,
            146,
            150,
            152,
            178,
            184,
            186,
            190,
            192,
            200,
            202,
            214,
            216,
        )
    ),
    "nanotron_playbook": frozenset(
        (
            2,
            9,
            14,
            16,
            21,
            23,
            28,
            35,
            37,
            40,
            42,
            49,
            54,
            56,
            61,
            63,
            68,
            75,
            77,
            80,
            82,
            89,
            94,
            96,
            105,
            107,
            111,
            113,
            118,
            170,
            172,
            179,
            185,
            187,
            191,
            193,
            198,
            201,
            203,
            208,
            215,
            217,
            220,
            222,
            229,
            234,
            236,
            241,
            243,
            248,
            255,
            257,
            260,
            262,
            269,
            274,
            276,
        )
    ),
    "nemo_2407": frozenset((5, 7, 11)),
    "simumax_b200": frozenset((2, 9, 14, 16, 21, 23, 28)),
    "titan_a100": frozenset((2,)),
    "titan_h100_202412": frozenset((2, 9, 14, 16)),
    "zeropp_blog": frozenset((1, 3, 8, 15, 17, 20, 22, 29, 34, 36)),
}


def is_calibration(row_id: str) -> bool:
    """Whether factors were fitted to this row, by its id such as ``nanotron_playbook-036``; all others evaluate."""
    source, _, number = row_id.rpartition("-")
    return number.isdecimal() and int(number) in CALIBRATION_ROWS.get(source, ())
