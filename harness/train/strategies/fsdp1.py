"""``FullyShardedDataParallel`` over dp_shard: FULL_SHARD, or SHARD_GRAD_OP when parameters stay after forward."""

from __future__ import annotations

from torch import nn
from torch.distributed.fsdp import ShardingStrategy

from harness.train.parallel import Context, Parallel
from harness.train.strategies._wrapper import wrap


def parallelize(model: nn.Module, context: Context) -> Parallel:
    reshard = context.layout.options.reshard_after_forward
    sharding = ShardingStrategy.FULL_SHARD if reshard else ShardingStrategy.SHARD_GRAD_OP
    return wrap(model, context.mesh(), sharding, context)
