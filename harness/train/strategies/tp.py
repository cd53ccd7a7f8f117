"""Tensor parallelism alone."""

from __future__ import annotations

from torch import nn

from harness.train.parallel import Context, Parallel, autocast
from harness.train.strategies._tensor import around_step, split


def parallelize(model: nn.Module, context: Context) -> Parallel:
    split(model, context.mesh(), context)
    context.materialise(model)
    return Parallel(model, around_step=around_step(context, autocast(context)))
