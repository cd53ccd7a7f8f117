"""Predicted memory beside what real gloo ranks measure."""

from __future__ import annotations

import pytest

from harness.layout import STRATEGIES
from harness.layout.legality import meshes
from harness.predict.memory import predict_memory
from harness.workload import make_workload
from tests.contract.conftest import GetGroup
from tests.contract.specs import REMOTE, layout, make_spec, retaken

pytestmark = pytest.mark.distributed

WORKLOAD = make_workload("tiny", 8, 64)
# every layout of the default sweep of 4 ranks
DEFAULT_SWEEP = [f"{s.name}:{mesh.short}" for s in STRATEGIES.values() if s.default for mesh in meshes(s, 4)]


@pytest.mark.parametrize("text", [*DEFAULT_SWEEP, "fsdp:s4+activation_checkpointing=full"])
def test_predicted_peak_is_within_5_percent_of_the_measured_one(text: str, rank_group: GetGroup) -> None:
    def measure() -> int:
        peaks: list[int] = rank_group(4).call(f"{REMOTE}:open_session", make_spec(text, WORKLOAD))
        rank_group(4).call(f"{REMOTE}:close_session")
        return max(peaks)

    predicted = predict_memory(layout(text), WORKLOAD, kernels="cpu").peak_bytes
    assert retaken(measure, lambda peak: predicted == pytest.approx(peak, rel=0.05)) == pytest.approx(
        predicted, rel=0.05
    )
