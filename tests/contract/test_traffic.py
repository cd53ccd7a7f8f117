"""Counted collectives equal their closed formula on real ranks, to the byte, for every registered layout."""

from __future__ import annotations

import pytest

from harness.predict.collectives import step_collectives
from harness.workload import PRESETS, ModelShape, Workload, make_workload
from tests.contract.conftest import GetGroup
from tests.contract.specs import REMOTE, layout, make_spec
from tests.contract.test_layouts import REGISTERED, WITH_OPTIONS

pytestmark = pytest.mark.distributed

TINY, SMALL = make_workload("tiny", 8, 32), make_workload("small", 8, 32)
# sizes that divide by neither 4 nor 8, and a tied head
ODD = ModelShape(name="odd", dim=60, n_layers=3, n_heads=6, n_kv_heads=6, ffn_dim=150, vocab_size=510, tied_head=True)
UNEVEN = Workload(model=ODD, global_batch=8, seq_len=32)
# three buckets of DDP: the first closes at 1 MiB, the second at 25 MiB
BUCKETS = Workload(
    model=PRESETS["tiny"].model_copy(update={"dim": 512, "ffn_dim": 1536, "vocab_size": 4096, "n_layers": 3}),
    global_batch=2,
    seq_len=8,
)
MORE_OPTIONS = [
    "tp:t4+sequence_parallel=true+precision=bf16",
    "tp:t4+sequence_parallel=true+activation_checkpointing=selective",
    "tp:t4+precision=bf16+activation_checkpointing=full",
    "fsdp_tp:s2t2+sequence_parallel=true+precision=bf16+activation_checkpointing=full",
    "ddp_tp:r2t2+sequence_parallel=true+precision=bf16",
    "fsdp1_hybrid:r2s2+precision=bf16",
    "hsdp:r2s2+order=dp_shard/dp_replicate/tp",
]


def check(text: str, workload: Workload, rank_group: GetGroup) -> None:
    spec = make_spec(text, workload)
    everyone = rank_group(spec.ranks.world_size).call(f"{REMOTE}:collectives", spec)
    assert len(set(everyone)) == 1, "ranks differ"
    assert everyone[0] == step_collectives(layout(text), workload)


@pytest.mark.parametrize("text", [*REGISTERED, *WITH_OPTIONS, *MORE_OPTIONS])
def test_counted_collectives_equal_the_formula(text: str, rank_group: GetGroup) -> None:
    check(text, TINY, rank_group)


@pytest.mark.parametrize("text", ["ddp:r4", "fsdp:s4", "hsdp:r2s2", "fsdp1:s4", "fsdp_tp:s2t2"])
def test_of_a_larger_model_too(text: str, rank_group: GetGroup) -> None:
    check(text, SMALL, rank_group)


@pytest.mark.parametrize(
    "text",
    ["fsdp:s4", "fsdp:s4+reshard_after_forward=2", "hsdp:r2s2", "fsdp1:s4", "fsdp1:s4+precision=bf16", "fsdp_tp:s2t2"],
)
def test_uneven_shards_are_padded_as_the_formula_says(text: str, rank_group: GetGroup) -> None:
    check(text, UNEVEN, rank_group)


def test_ddps_buckets(rank_group: GetGroup) -> None:
    assert len(step_collectives(layout("ddp:r2"), BUCKETS)) == 3
    check("ddp:r2", BUCKETS, rank_group)


@pytest.mark.parametrize("text", ["hsdp_tp:r2s2t2", "hsdp_tp:r2s2t2+sequence_parallel=true", "hsdp:r2s4"])
def test_three_axes_on_eight_ranks(text: str, rank_group: GetGroup) -> None:
    check(text, TINY, rank_group)
