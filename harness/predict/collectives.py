"""Closed formulas for the collectives of one training step of the reference model, for every strategy.

What a rank issues in a steady step (the third or later: DDP lays its buckets out anew after the first). Sources: torch
2.13's ``fully_shard``, ``FullyShardedDataParallel``, DDP's reducer and DTensor's redistribution; the contract tests
hold every formula to the count on real ranks, to the byte. ``docs/traffic.md`` has them as a table.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial

from harness.errors import UsageError
from harness.layout import Layout
from harness.predict.parameters import Parameter, parameters
from harness.predict.sharding import FLAT, PER_PARAMETER, units
from harness.predict.tensor_parallel import replicated_gradients, tensor_collectives
from harness.predict.terms import collective, compute_dtype
from harness.traffic import Collective, merged
from harness.workload import Workload

DDP_FIRST_BUCKET_BYTES = 2**20  # torch.distributed._DEFAULT_FIRST_BUCKET_BYTES
DDP_BUCKET_BYTES = 25 * 2**20  # DistributedDataParallel's bucket_cap_mb


def step_collectives(layout: Layout, workload: Workload) -> tuple[Collective, ...]:
    """The collectives of one optimizer step as rank 0 issues them, merged.

    Raises:
        UsageError: the workload's model is the user's own, of whose parameters only a trace knows.
    """
    if workload.model_path is not None:
        raise UsageError(
            f"no formula knows the parameters of {workload.model_path}; only those of presets are known by shape"
        )
    return merged(_step(layout, workload))


def _step(layout: Layout, workload: Workload) -> Iterator[Collective]:
    params = parameters(workload.model)
    if layout.strategy == "ddp":
        yield from _buckets(layout, params)
    elif layout.strategy == "ddp_tp":
        yield from _replicated(layout, workload)
    elif layout.strategy in PER_PARAMETER | FLAT:
        yield from _sharded(layout, workload)
    if layout.mesh.tp > 1:
        yield from tensor_collectives(layout, workload)
        yield from replicated_gradients(layout, params)
    yield from _clipping(layout, params)


def ddp_buckets(sizes: Sequence[int]) -> tuple[int, ...]:
    """Bytes of DDP's buckets; ``sizes``: bytes of each gradient in the order in which backward makes them.

    A bucket is full when it has reached its limit, 1 MiB for the first and 25 MiB for the others. Source:
    ``compute_bucket_assignment_by_size`` in torch/csrc/distributed/c10d/reducer.cpp.
    """
    buckets: list[int] = []
    current = 0
    for size in sizes:
        current += size
        if current >= (DDP_BUCKET_BYTES if buckets else DDP_FIRST_BUCKET_BYTES):
            buckets.append(current)
            current = 0
    return (*buckets, current) if current else tuple(buckets)


def _buckets(layout: Layout, params: Sequence[Parameter]) -> Iterator[Collective]:
    """Gradients, fp32 also under autocast, come in the reverse order of parameters."""
    for size in ddp_buckets([4 * p.numel for p in reversed(params)]):
        yield collective("all_reduce", "dp_replicate", layout.mesh.dp_replicate, "float32", "backward", size // 4)


def _units(layout: Layout, workload: Workload) -> list[tuple[int, int, bool]]:
    """What is gathered or reduced as one: (elements with padding, how many such units, whether they are blocks)."""
    found = units(layout, workload.model)
    return [(found.root.whole, 1, False), (found.block.whole, found.blocks, True)]


def _replicated(layout: Layout, workload: Workload) -> Iterator[Collective]:
    """``replicate`` is built on fully_shard: a unit's gradients are all-reduced as one."""
    for numel, count, _ in _units(layout, workload):
        yield collective("all_reduce", "dp_replicate", layout.mesh.dp_replicate, "float32", "backward", numel, count)


def _sharded(layout: Layout, workload: Workload) -> Iterator[Collective]:
    """Gathers and reductions of ``fully_shard`` and of ``FullyShardedDataParallel``, which differ in padding only.

    The root stays gathered after forward. With dp_replicate, each reduce-scattered part is all-reduced over it.
    """
    mesh, dtype, reshard = layout.mesh, compute_dtype(layout), layout.options.reshard_after_forward
    again = mesh.dp_shard if reshard is True else int(reshard)
    for numel, count, is_block in _units(layout, workload):
        yield collective("all_gather", "dp_shard", mesh.dp_shard, dtype, "forward", numel, count)
        if is_block and again > 1:
            yield collective("all_gather", "dp_shard", again, dtype, "backward", numel, count)
        yield collective("reduce_scatter", "dp_shard", mesh.dp_shard, "float32", "backward", numel, count)
        if mesh.dp_replicate > 1:
            part = numel // mesh.dp_shard
            yield collective("all_reduce", "dp_replicate", mesh.dp_replicate, "float32", "backward", part, count)


def _clipping(layout: Layout, params: Sequence[Parameter]) -> Iterator[Collective]:
    """The norms of each device mesh's parameters are stacked and all-reduced over each axis that shards them, fp32."""
    mesh = layout.mesh
    reduced = partial(collective, "all_reduce", dtype="float32", phase="clipping")
    if layout.strategy in FLAT:
        yield reduced(axis="dp_shard", group_size=mesh.dp_shard, numel=1)
        return
    split = sum(p.tp_dim is not None or layout.options.sequence_parallel for p in params)
    if mesh.tp > 1:
        yield reduced(axis="tp", group_size=mesh.tp, numel=split)
    if mesh.dp_shard > 1:
        for norms in (split, len(params) - split) if mesh.tp > 1 else (len(params),):
            if norms:
                yield reduced(axis="dp_shard", group_size=mesh.dp_shard, numel=norms)
