"""One process: the reference."""

from __future__ import annotations

from torch import nn

from harness.train.parallel import Context, Parallel, autocast


def parallelize(model: nn.Module, context: Context) -> Parallel:
    context.materialise(model)
    return Parallel(model, around_step=autocast(context))
