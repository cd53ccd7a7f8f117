"""The equivalence gate on hand-made losses and norms."""

from __future__ import annotations

import pytest

from harness.gate import TOLERANCES, judge
from harness.record import GateSamples
from tests.unit.factories import LOSSES, NORMS

REFERENCE = GateSamples(losses=LOSSES, grad_norms=NORMS)


def with_value(values: tuple[float, ...], step: int, factor: float) -> tuple[float, ...]:
    return tuple(v * factor if i == step else v for i, v in enumerate(values))


def test_the_reference_passes_against_itself() -> None:
    verdict = judge(REFERENCE, REFERENCE, "fp32")
    assert verdict.passed
    assert verdict.first_bad_step is None
    assert (verdict.max_loss_error, verdict.max_grad_norm_error, verdict.steps) == (0, 0, len(LOSSES))


@pytest.mark.parametrize(("precision", "loss", "norm"), [("fp32", 1e-5, 1e-4), ("bf16", 5e-3, 5e-2)])
def test_each_precision_has_its_tolerance(precision: str, loss: float, norm: float) -> None:
    assert TOLERANCES[precision].loss == loss
    for factor, passed in ((0.9, True), (1.1, False)):
        losses = GateSamples(losses=with_value(LOSSES, 3, 1 + factor * loss), grad_norms=NORMS)
        norms = GateSamples(losses=LOSSES, grad_norms=with_value(NORMS, 3, 1 - factor * norm))
        for candidate in (losses, norms):
            verdict = judge(candidate, REFERENCE, precision)
            assert verdict.passed is passed
            assert verdict.first_bad_step == (None if passed else 3)


def test_gradients_summed_instead_of_averaged_are_caught_at_the_first_step() -> None:
    """The losses of the first step agree: only the norm, four times as large, shows it."""
    candidate = GateSamples(losses=LOSSES, grad_norms=tuple(4 * norm for norm in NORMS))
    verdict = judge(candidate, REFERENCE, "fp32")
    assert verdict.first_bad_step == 0
    assert verdict.max_grad_norm_error == pytest.approx(3)
    assert verdict.max_loss_error == 0


def test_missing_steps_fail_where_they_begin() -> None:
    candidate = GateSamples(losses=LOSSES[:7], grad_norms=NORMS[:7])
    verdict = judge(candidate, REFERENCE, "fp32")
    assert not verdict.passed
    assert verdict.first_bad_step == 7


def test_the_first_of_several_bad_steps_is_named() -> None:
    losses = with_value(with_value(LOSSES, 5, 1.5), 8, 2.0)
    verdict = judge(GateSamples(losses=losses, grad_norms=NORMS), REFERENCE, "fp32")
    assert verdict.first_bad_step == 5
    assert verdict.max_loss_error == pytest.approx(1.0)
