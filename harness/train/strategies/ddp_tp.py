"""Replicas over dp_replicate of a model that is split over tp; nothing is sharded."""

from __future__ import annotations

from torch import nn
from torch.distributed._composable.replicate_with_fsdp import replicate

from harness.train.parallel import Context, Parallel, precision_policy
from harness.train.strategies._tensor import around_step, split


def parallelize(model: nn.Module, context: Context) -> Parallel:
    mesh = context.mesh()
    policy = precision_policy(context)
    split(model, mesh[context.dim("tp")], context)
    for _, block in context.blocks(model):
        replicate(block, mesh=mesh[context.dim("dp_replicate")], mp_policy=policy)
    replicate(model, mesh=mesh[context.dim("dp_replicate")], mp_policy=policy)
    context.materialise(model)
    return Parallel(model, around_step=around_step(context))
