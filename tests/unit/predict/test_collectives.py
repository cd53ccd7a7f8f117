"""Formulas of collectives against sums by hand; tests/contract/test_traffic.py holds them to the count."""

from __future__ import annotations

import pytest

from harness.errors import UsageError
from harness.layout.strategies import STRATEGIES
from harness.predict.collectives import ddp_buckets, step_collectives
from harness.traffic import Collective
from harness.workload import PRESETS, Workload
from tests.unit.factories import layout

MIB = 2**20
TINY = Workload(model=PRESETS["tiny"], global_batch=8, seq_len=32)
# tiny: dim 64, 2 blocks, 8 heads of 8, 4 kv heads, ffn 192, vocabulary 512
BLOCK = 2 * 64 * 64 + 2 * 64 * 32 + 3 * 64 * 192 + 2 * 64
ROOT = 2 * 512 * 64 + 64


def seen(text: str, workload: Workload = TINY) -> set[tuple[str, str, str, int, int]]:
    """(phase, axis, operation, bytes, count) of each."""
    return {(c.phase, c.axis, c.operation, c.size_bytes, c.count) for c in step_collectives(layout(text), workload)}


def test_one_rank_and_small_ddp() -> None:
    assert seen("single") == set()
    assert seen("ddp:r4") == {("backward", "dp_replicate", "all_reduce", 4 * (2 * BLOCK + ROOT), 1)}


def test_fsdp_gathers_blocks_twice_and_the_root_once() -> None:
    assert seen("fsdp:s4") == {
        ("forward", "dp_shard", "all_gather", 4 * ROOT, 1),
        ("forward", "dp_shard", "all_gather", 4 * BLOCK, 2),
        ("backward", "dp_shard", "all_gather", 4 * BLOCK, 2),
        ("backward", "dp_shard", "reduce_scatter", 4 * ROOT, 1),
        ("backward", "dp_shard", "reduce_scatter", 4 * BLOCK, 2),
        ("clipping", "dp_shard", "all_reduce", 4 * 21, 1),
    }


def test_hsdp_reduces_shards_over_replicas_and_gathers_half_the_bytes_in_bf16() -> None:
    found = seen("hsdp:r2s2+precision=bf16")
    assert ("backward", "dp_replicate", "all_reduce", 2 * BLOCK, 2) in found
    assert ("forward", "dp_shard", "all_gather", 2 * BLOCK, 2) in found
    assert ("backward", "dp_shard", "reduce_scatter", 4 * BLOCK, 2) in found


def test_tensor_parallelism_carries_activations() -> None:
    activations = 4 * 8 * 32 * 64  # all samples: nothing else splits the batch
    assert seen("tp:t4") == {
        ("forward", "tp", "all_reduce", activations, 1 + 2 * 2),
        ("forward", "tp", "all_gather", 4 * 8 * 32 * 512, 1),
        ("backward", "tp", "all_reduce", activations, 2 * 2 + 1),
        ("clipping", "tp", "all_reduce", 4 * (2 * 7 + 2), 1),
    }


def test_uneven_shards_are_padded_by_parameter_and_flat_ones_as_a_whole() -> None:
    """Two parameters' dim 0 of 10 and 6 rows over 4 ranks: 12 and 8 rows travel."""
    shape = PRESETS["tiny"].model_copy(update={"dim": 6, "n_heads": 1, "n_kv_heads": 1, "ffn_dim": 10, "n_layers": 1})
    workload = Workload(model=shape.model_copy(update={"tied_head": True, "vocab_size": 10}), global_batch=8, seq_len=4)
    block = 2 * 8 + 4 * 8 * 6 + 2 * 12 * 6 + 8 * 10  # norms; q, k, v, out; gate, up; down
    assert ("forward", "dp_shard", "all_gather", 4 * block, 1) in seen("fsdp:s4", workload)
    assert ("forward", "dp_shard", "all_gather", 4 * (12 * 6 + 8), 1) in seen("fsdp:s4", workload)
    # flat: each part begins at a multiple of 16 bytes; norms of 6 take 8, all other sizes are multiples of 4
    assert ("forward", "dp_shard", "all_gather", 4 * (2 * 8 + 4 * 36 + 3 * 60), 1) in seen("fsdp1:s4", workload)


def test_a_bucket_closes_when_it_has_reached_its_limit() -> None:
    assert ddp_buckets([MIB // 2, MIB // 2, MIB]) == (MIB, MIB)
    assert ddp_buckets([3 * MIB, 20 * MIB, 5 * MIB, 26 * MIB]) == (3 * MIB, 25 * MIB, 26 * MIB)
    assert ddp_buckets([5, 6]) == (11,)


def test_every_registered_strategy_has_a_formula() -> None:
    silent = [name for name in STRATEGIES if name != "single" and not _formula(name)]
    assert silent == []


def _formula(name: str) -> tuple[Collective, ...]:
    mesh = "".join(f"{axis[3] if axis.startswith('dp_') else 't'}2" for axis in STRATEGIES[name].axes)
    return step_collectives(layout(f"{name}:{mesh}"), TINY)


def test_a_users_model_has_no_formula() -> None:
    with pytest.raises(UsageError, match="known by shape"):
        step_collectives(layout("ddp:r2"), TINY.model_copy(update={"model_path": "my.model:build"}))
