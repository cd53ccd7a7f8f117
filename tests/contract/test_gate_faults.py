"""Planted faults that the equivalence gate must catch."""

from __future__ import annotations

import pytest

from harness.errors import IllegalLayoutError
from harness.gate import judge
from harness.layout import check_layout
from harness.workload import make_workload
from tests.contract.conftest import GetGroup
from tests.contract.specs import REMOTE, layout, make_spec

pytestmark = pytest.mark.distributed


def test_gradients_summed_instead_of_averaged_are_caught_at_once(rank_group: GetGroup) -> None:
    reference = rank_group(1).call(f"{REMOTE}:gate", make_spec("single"))[0]
    samples = rank_group(4).call("tests.contract.faults:summed_gradients", make_spec("ddp:r4"))[0]
    verdict = judge(samples, reference, "fp32")
    assert not verdict.passed
    assert verdict.first_bad_step == 0
    assert verdict.max_grad_norm_error > 2.9  # four times the norm


def test_fsdp1_hybrid_on_a_mesh_without_a_shard_axis_is_caught(rank_group: GetGroup) -> None:
    """It switches to NO_SHARD with a warning and its replicas drift apart."""
    reference = rank_group(1).call(f"{REMOTE}:gate", make_spec("single"))[0]
    samples = rank_group(2).call("tests.contract.faults:as_it_is", make_spec("fsdp1_hybrid:r2"))[0]
    assert not judge(samples, reference, "fp32").passed


def test_planning_refuses_that_mesh_and_names_the_nearest_legal_layout() -> None:
    with pytest.raises(IllegalLayoutError, match="the nearest legal layout is ddp:r2"):
        check_layout(layout("fsdp1_hybrid:r2"), make_workload("tiny", 8, 32), 2)


def test_a_small_parameter_that_learns_nothing_is_caught_though_losses_and_global_norm_agree(
    rank_group: GetGroup,
) -> None:
    """At the start attention is nearly uniform, so the gradient of q vanishes in the global norm."""
    workload = make_workload("tests.contract.models:lame_attention", 8, 32)
    reference = rank_group(1).call(f"{REMOTE}:gate", make_spec("single", workload))[0]
    samples = rank_group(2).call(f"{REMOTE}:gate", make_spec("fsdp:s2", workload))[0]
    verdict = judge(samples, reference, "fp32")
    assert verdict.max_loss_error < verdict.tolerance.loss
    assert verdict.max_grad_norm_error < verdict.tolerance.grad_norm
    assert not verdict.passed
    assert verdict.worst_parameter == "layers.0.attention.q.weight"
