"""Steps without communication: that every layout has them, and that nothing is communicated then."""

from __future__ import annotations

import math

import pytest

from harness.layout import STRATEGIES, get_strategy
from harness.layout.legality import meshes
from tests.contract.conftest import GetGroup
from tests.contract.specs import REMOTE, make_spec

pytestmark = pytest.mark.distributed

LAYOUTS = [f"{s.name}:{found[0].short}" for s in STRATEGIES.values() if (found := meshes(s, 4)) and s.name != "single"]
STEPS = 3


@pytest.mark.parametrize("text", [*LAYOUTS, "hsdp:r2s2+order=dp_shard/dp_replicate/tp"])
def test_every_layout_can_be_timed_without_each_of_its_axes(text: str, rank_group: GetGroup) -> None:
    spec = make_spec(text, exposure_steps=STEPS)
    axes = get_strategy(spec.layout.strategy).axes
    for found in rank_group(4).call(f"{REMOTE}:exposure", spec):
        assert found is not None
        assert set(found.without_axis_s) == (set(axes) if len(axes) > 1 else set())
        rows = (found.step_time_s, found.compute_s, found.optimizer_s, *found.without_axis_s.values())
        assert [len(row) for row in rows] == [STEPS] * len(rows)
        assert all(time > 0 for row in rows for time in row)
        assert all(part < whole for part, whole in zip(found.optimizer_s, found.compute_s, strict=True))


@pytest.mark.parametrize(
    ("text", "differing"),
    [
        ("ddp:r4", {(): 1, ("dp_replicate",): 4}),
        ("fsdp:s4", {("dp_shard",): 4}),
        # without dp_replicate the two replicas part, each of them still whole; after the others nothing of them is left
        ("hsdp:r2s2", {("dp_replicate",): 2, ("dp_replicate", "dp_shard"): 4, (): 1}),
        ("tp:t4", {("tp",): 4, (): 1}),
        ("fsdp1:s4", {("dp_shard",): 4}),
    ],
)
def test_muted_axes_communicate_nothing(text: str, differing: dict[tuple[str, ...], int], rank_group: GetGroup) -> None:
    for axes, count in differing.items():
        norms = rank_group(4).call("tests.contract.muted:grad_norms", make_spec(text), axes)
        assert len(set(norms)) == count, axes
        assert all(math.isfinite(norm) for rank in norms for norm in rank)


def test_a_single_process_exposes_nothing(rank_group: GetGroup) -> None:
    assert rank_group(1).call(f"{REMOTE}:exposure", make_spec("single")) == [None]
