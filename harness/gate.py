"""The equivalence gate: do a layout's losses and gradient norms follow the reference? Pure, on recorded samples."""

from __future__ import annotations

from collections.abc import Mapping

from harness.base import Frozen
from harness.record import GateSamples


class Tolerance(Frozen):
    """Largest relative error allowed: of losses and of global norms at any step, of parameters' norms at the first."""

    loss: float
    grad_norm: float
    parameter: float


# Correct layouts were seen to differ from the single process by up to 2e-7 in loss, 6e-5 in the global norm and
# 5e-7 in a parameter's norm in fp32, from the order of sums alone; in bf16 by 3e-5, 3e-3 and 4e-3.
TOLERANCES: Mapping[str, Tolerance] = {
    "fp32": Tolerance(loss=1e-5, grad_norm=1e-4, parameter=1e-4),
    "bf16": Tolerance(loss=1e-3, grad_norm=1e-2, parameter=2e-2),
}
# A gradient this much smaller than the whole is rounding, and is compared with this share of the whole.
SMALLEST_SHARE = 1e-4
MOST = 1e200


class GateVerdict(Frozen):
    """``first_bad_step`` counts from 0 and is None when the layout passed."""

    passed: bool
    first_bad_step: int | None
    max_loss_error: float
    max_grad_norm_error: float
    tolerance: Tolerance
    steps: int
    max_parameter_error: float | None = None
    worst_parameter: str | None = None


def judge(candidate: GateSamples, reference: GateSamples, precision: str) -> GateVerdict:
    """Compare step by step, relative to the reference; a layout with fewer steps strays where it ends.

    The gradient norm of each parameter is compared at the first step, since the global norm does not show what
    becomes of a small one.
    """
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
    error, worst = _worst_parameter(candidate, reference)
    if error is not None and not error <= tolerance.parameter:
        bad.insert(0, 0)
    return GateVerdict(
        passed=not bad,
        first_bad_step=bad[0] if bad else None,
        max_loss_error=max(loss, default=0.0),
        max_grad_norm_error=max(norm, default=0.0),
        tolerance=tolerance,
        steps=len(loss),
        max_parameter_error=error,
        worst_parameter=worst,
    )


def _worst_parameter(candidate: GateSamples, reference: GateSamples) -> tuple[float | None, str | None]:
    """The largest relative error of a parameter's first gradient norm, and its name; None where none was recorded."""
    mine, theirs = candidate.first_grad_norm_by_parameter, reference.first_grad_norm_by_parameter
    if not mine or not theirs or not reference.grad_norms:
        return None, None
    least = SMALLEST_SHARE * reference.grad_norms[0]
    errors = {
        name: abs(mine[name] - norm) / max(abs(norm), least, 1e-12) if name in mine else 1.0
        for name, norm in theirs.items()
    }
    worst = max(errors, key=lambda name: errors[name])
    return min(errors[worst], MOST), worst


def _error(value: float, reference: float) -> float:
    return abs(value - reference) / max(abs(reference), 1e-12)
