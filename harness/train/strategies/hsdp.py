"""``fully_shard`` on the mesh dp_replicate x dp_shard."""

from __future__ import annotations

from torch import nn

from harness.train.parallel import Context, Parallel
from harness.train.strategies._sharding import shard


def parallelize(model: nn.Module, context: Context) -> Parallel:
    shard(model, context.mesh(), context)
    context.materialise(model)
    return Parallel(model)
