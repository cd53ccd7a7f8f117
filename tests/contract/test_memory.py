"""What memory is made of in every layout, against closed formulas and against the allocator's own count."""

from __future__ import annotations

from math import ceil, prod

import pytest
import torch

from harness.execute.ranks import RankGroup
from harness.layout import STRATEGIES
from harness.layout.legality import meshes
from harness.predict.parameters import parameters
from harness.spec import RunSpec
from tests.contract.conftest import GetGroup
from tests.contract.specs import REMOTE, make_spec, retaken

pytestmark = pytest.mark.distributed

LAYOUTS = [f"{s.name}:{found[0].short}" for s in STRATEGIES.values() if (found := meshes(s, 4)) and s.name != "single"]
MORE = ["fsdp:s4+reshard_after_forward=false", "fsdp:s4+precision=bf16", "ddp:r4+activation_checkpointing=full"]


def state_bytes(spec: RunSpec) -> int:
    """fp32 parameters of one rank: each split over tp, then dim 0 in equal chunks, the last one padded.

    Source: torch.distributed.fsdp.fully_shard, which keeps every chunk as large as the first. The older wrapper cuts
    all parameters of a unit as one; in this model they divide evenly, so that the sum is the same.
    """
    mesh = spec.layout.mesh
    total = 0
    for parameter in parameters(spec.workload.model):
        rows, *rest = parameter.split_shape(mesh.tp)
        total += 4 * ceil(rows / mesh.dp_shard) * prod(rest)
    return total


@pytest.mark.parametrize("text", [*LAYOUTS, *MORE])
def test_parts_of_the_model_state_equal_their_closed_formula(text: str, rank_group: GetGroup) -> None:
    spec = make_spec(text)
    state, shape = state_bytes(spec), spec.workload.model
    tensors = len(parameters(shape))
    # Of tensor parallelism alone autograd gives the embedding's gradient whole on every rank.
    whole = 4 * shape.vocab_size * shape.dim * (1 - 1 / spec.layout.mesh.tp) if spec.layout.strategy == "tp" else 0
    for memory in rank_group(4).call(f"{REMOTE}:memory", spec):
        resting, step = memory.resting_bytes_by_kind, memory.step_peak
        assert resting["parameters"] == state
        assert resting["gradients"] == state + whole
        assert resting["unsharded_parameters"] == 0
        # two moments, and AdamW's step of each parameter; the older wrapper has none where a rank has no part
        counters = resting["optimizer_state"] - 2 * state
        assert counters % 4 == 0
        assert 0 < counters <= 4 * tensors
        assert counters == 4 * tensors or spec.layout.strategy in ("fsdp1", "fsdp1_hybrid")
        for peak in (memory.peak, step):
            assert sum(peak.bytes_by_kind.values()) == peak.peak_bytes
        assert (step.step, step.bytes_by_kind["optimizer_state"]) == (1, resting["optimizer_state"])
        assert step.phase in ("forward", "backward", "optimizer")
        assert step.bytes_by_kind["other"] < 0.01 * step.peak_bytes


@pytest.mark.parametrize("text", [*LAYOUTS, *MORE, "fsdp_tp:s2t2+sequence_parallel=true"])
def test_the_books_are_what_the_allocator_counts(text: str, rank_group: GetGroup) -> None:
    """To the byte, but for the state of the random generator that checkpointing keeps for each block's repetition."""
    spec = make_spec(text)
    blocks = spec.workload.model.n_layers if spec.layout.options.activation_checkpointing == "full" else 0
    for allocated, booked in rank_group(4).call("tests.contract.allocator:step_peaks", spec):
        assert allocated - booked == blocks * torch.get_rng_state().nbytes


@pytest.mark.parametrize("text", ["ddp:r4", "fsdp:s4"])
def test_kinds_sum_to_what_the_allocator_counts(text: str, rank_group: GetGroup) -> None:
    """With communication, whose threads may hold more, beside the allocator's count of a step without."""
    spec = make_spec(text)
    counted = [peak for peak, _ in rank_group(4).call("tests.contract.allocator:step_peaks", spec)]

    def measure() -> list[int]:
        memories = rank_group(4).call(f"{REMOTE}:memory", spec)
        return [sum(memory.step_peak.bytes_by_kind.values()) for memory in memories]

    assert retaken(measure, lambda sums: sums == pytest.approx(counted, rel=0.03)) == pytest.approx(counted, rel=0.03)


def test_a_rank_starts_with_its_modules_and_no_tensor() -> None:
    """What was imported before the fork is out of the collector's sight, so the books of memory must miss nothing."""
    with RankGroup(1) as fresh:
        (start,) = fresh.call("tests.contract.preloaded:facts")
    assert start == {"tensors": 0, "frozen": True, "imported": True, "cuda": False}
