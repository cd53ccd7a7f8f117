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


@pytest.mark.parametrize(("precision", "loss", "norm"), [("fp32", 1e-5, 1e-4), ("bf16", 1e-3, 1e-2)])
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


def with_parameters(**norms: float) -> GateSamples:
    return GateSamples(losses=LOSSES, grad_norms=NORMS, first_grad_norm_by_parameter=norms)


def test_a_wrong_gradient_of_a_small_parameter_is_caught_though_the_global_norm_is_right() -> None:
    reference = with_parameters(head=1.9, q=0.01)
    assert judge(with_parameters(head=1.9, q=0.01 * (1 + 5e-5)), reference, "fp32").passed
    verdict = judge(with_parameters(head=1.9, q=0.0), reference, "fp32")
    assert not verdict.passed
    assert (verdict.first_bad_step, verdict.worst_parameter) == (0, "q")
    assert verdict.max_parameter_error == pytest.approx(1.0)
    assert not judge(with_parameters(head=1.9, q=0.011), reference, "bf16").passed


def test_a_parameter_that_is_missing_is_caught() -> None:
    assert not judge(with_parameters(head=1.9), with_parameters(head=1.9, q=0.01), "fp32").passed


def test_a_gradient_that_is_rounding_beside_the_whole_is_not_compared_by_its_own_size() -> None:
    reference = with_parameters(head=1.9, bias=1e-12)
    assert judge(with_parameters(head=1.9, bias=3e-12), reference, "fp32").passed


def test_records_without_parameters_are_judged_by_the_rest() -> None:
    assert judge(with_parameters(head=1.9), GateSamples(losses=LOSSES, grad_norms=NORMS), "fp32").passed
