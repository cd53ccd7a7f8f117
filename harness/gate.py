"""The equivalence gate: do a layout's losses and gradient norms follow the reference? Pure, on recorded samples."""

from __future__ import annotations

from collections.abc import Mapping

from harness.base import Frozen
from harness.record import GateSamples


class Tolerance(Frozen):
    """Largest relative error allowed at any step."""

    loss: float
    grad_norm: float


# fp32: two correct layouts differ by up to 2e-7 in loss and 6e-5 in norm, from the order of sums alone.
# bf16 against the fp32 reference: set by rounding of 8-bit mantissas, checked on every layout in the tests.
TOLERANCES: Mapping[str, Tolerance] = {
    "fp32": Tolerance(loss=1e-5, grad_norm=1e-4),
    "bf16": Tolerance(loss=5e-3, grad_norm=5e-2),
}


class GateVerdict(Frozen):
    """``first_bad_step`` counts from 0 and is None when the layout passed."""

    passed: bool
    first_bad_step: int | None
    max_loss_error: float
    max_grad_norm_error: float
    tolerance: Tolerance
    steps: int


def judge(candidate: GateSamples, reference: GateSamples, precision: str) -> GateVerdict:
    """Compare step by step, relative to the reference; a layout with fewer steps strays where it ends."""
    tolerance = TOLERANCES[precision]
    steps = min(len(reference.losses), len(reference.grad_norms))
    loss = [_error(a, b) for a, b in zip(candidate.losses, reference.losses[:steps], strict=False)]
    norm = [_error(a, b) for a, b in zip(candidate.grad_norms, reference.grad_norms[:steps], strict=False)]
    bad = [
        step
        for step, (a, b) in enumerate(zip(loss, norm, strict=False))
        if not (a <= tolerance.loss and b <= tolerance.grad_norm)
    ]
    if min(len(loss), len(norm)) < steps:
        bad.append(min(len(loss), len(norm)))
    return GateVerdict(
        passed=not bad,
        first_bad_step=bad[0] if bad else None,
        max_loss_error=max(loss, default=0.0),
        max_grad_norm_error=max(norm, default=0.0),
        tolerance=tolerance,
        steps=len(loss),
    )


def _error(value: float, reference: float) -> float:
    return abs(value - reference) / max(abs(reference), 1e-12)
