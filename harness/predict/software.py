"""How well a training stack uses a device: few factors, each with where it comes from."""

from __future__ import annotations

from typing import Literal

from harness.base import Frozen

Provenance = Literal["nominal", "measured", "fitted"]


class Software(Frozen):
    """Factors of one training stack.

    Attributes:
        matmul: reached share of the accelerator's measured matrix product, for large shapes.
        attention: reached share of the accelerator's peak in fused attention, head dim 128, long sequences.
        flash: whether scores stay on chip; without, they are written and read again.
        passes: factor on the memory traffic of everything else (1: as counted in ``compute.py``).
        host_s: time of the host for one block's forward and backward; no block is faster.
        overlap_tp: share of tp's communication that compute hides.
        overlap_dp: share of compute that hides dp_shard's communication, and gradients where nothing is sharded.
        overlap_replicate: the same of the all-reduce over dp_replicate of sharded gradients; None: as ``overlap_dp``.
        source: where the factors come from.
    """

    name: str
    matmul: float
    attention: float
    passes: float = 1.0
    host_s: float = 0.5e-3
    overlap_tp: float = 0.0
    overlap_dp: float = 1.0
    overlap_replicate: float | None = None
    flash: bool = True
    provenance: Provenance = "nominal"
    source: str


TORCH = Software(
    name="torch",
    matmul=0.85,
    attention=0.36,
    overlap_dp=0.72,
    provenance="fitted",
    source="factors of FSDP2 in published torchtitan runs, fitted to stated calibration rows; see docs/prediction.md",
)
NOMINAL = Software(
    name="torch",
    matmul=0.85,
    attention=0.40,
    overlap_tp=0.0,
    overlap_dp=0.9,
    source="typical of PyTorch with FlashAttention-2; nothing of it is measured here",
)
