"""DistributedDataParallel over dp_replicate."""

from __future__ import annotations

from torch import nn
from torch.nn.parallel import DistributedDataParallel

from harness.train.muted import keep_gradients
from harness.train.parallel import Context, Parallel, autocast


def parallelize(model: nn.Module, context: Context) -> Parallel:
    context.materialise(model)
    group = context.mesh().get_group(context.dim("dp_replicate"))
    wrapped = DistributedDataParallel(model, process_group=group, gradient_as_bucket_view=True)
    if context.muted:
        wrapped.register_comm_hook(None, keep_gradients)
    return Parallel(wrapped, around_step=autocast(context))
