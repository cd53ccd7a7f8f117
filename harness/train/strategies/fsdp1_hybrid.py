"""``FullyShardedDataParallel`` HYBRID_SHARD on the mesh dp_replicate x dp_shard."""

from __future__ import annotations

from torch import nn
from torch.distributed.fsdp import ShardingStrategy

from harness.train.parallel import Context, Parallel
from harness.train.strategies._wrapper import wrap


def parallelize(model: nn.Module, context: Context) -> Parallel:
    reshard = context.layout.options.reshard_after_forward
    sharding = ShardingStrategy.HYBRID_SHARD if reshard else ShardingStrategy._HYBRID_SHARD_ZERO2
    return wrap(model, context.mesh(), sharding, context)
