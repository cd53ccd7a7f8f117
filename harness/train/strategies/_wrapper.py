"""``FullyShardedDataParallel``, the older wrapper, on a mesh; shared by its two strategies."""

from __future__ import annotations

from functools import partial

import torch
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import CPUOffload, FullyShardedDataParallel, MixedPrecision, ShardingStrategy
from torch.distributed.fsdp.wrap import lambda_auto_wrap_policy

from harness.train.parallel import Context, Parallel


def wrap(model: nn.Module, mesh: DeviceMesh, sharding: ShardingStrategy, context: Context) -> Parallel:
    """Wrap blocks and root. The whole model is materialised on each rank first: this wrapper cuts real tensors."""
    options = context.layout.options
    context.materialise(model)
    blocks = {id(block) for _, block in context.blocks(model)}
    bf16 = MixedPrecision(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    wrapped = FullyShardedDataParallel(
        model,
        device_mesh=mesh,
        sharding_strategy=sharding,
        auto_wrap_policy=partial(lambda_auto_wrap_policy, lambda_fn=lambda module: id(module) in blocks),
        mixed_precision=bf16 if options.precision == "bf16" else None,
        cpu_offload=CPUOffload(offload_params=True) if options.cpu_offload else None,
        device_id=context.device,
        use_orig_params=True,
    )
    return Parallel(wrapped, clip=_clip, holds_shards=True)


def _clip(model: nn.Module, max_norm: float) -> Tensor:
    assert isinstance(model, FullyShardedDataParallel)
    return model.clip_grad_norm_(max_norm)
