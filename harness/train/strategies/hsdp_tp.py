"""``fully_shard`` over dp_replicate x dp_shard of a model that is split over tp."""

from __future__ import annotations

from torch import nn

from harness.train.parallel import Context, Parallel
from harness.train.strategies._sharding import shard
from harness.train.strategies._tensor import around_step, split


def parallelize(model: nn.Module, context: Context) -> Parallel:
    mesh = context.mesh()
    split(model, mesh[context.dim("tp")], context)
    shard(model, mesh[context.dim("dp_replicate"), context.dim("dp_shard")], context)
    context.materialise(model)
    return Parallel(model, around_step=around_step(context))
