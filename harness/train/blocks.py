"""What is done to blocks before any strategy: activation checkpointing and torch.compile."""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
from torch import nn
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper
from torch.utils.checkpoint import CheckpointPolicy, create_selective_checkpoint_contexts

from harness.train.parallel import Context, replace_module

# What selective checkpointing keeps: results that cost matrix work to make again.
KEPT_OPS = frozenset(
    {
        torch.ops.aten.mm.default,
        torch.ops.aten.addmm.default,
        torch.ops.aten._scaled_dot_product_flash_attention.default,
        torch.ops.aten._scaled_dot_product_efficient_attention.default,
        torch.ops.aten._scaled_dot_product_flash_attention_for_cpu.default,
        torch.ops._c10d_functional.reduce_scatter_tensor.default,
    }
)


def _policy(_context: Any, op: Any, *_args: Any, **_kwargs: Any) -> CheckpointPolicy:
    return CheckpointPolicy.MUST_SAVE if op in KEPT_OPS else CheckpointPolicy.PREFER_RECOMPUTE


def prepare_blocks(model: nn.Module, context: Context) -> None:
    """Wrap each block for activation checkpointing and compile it, as the layout's options say, in place."""
    mode = context.layout.options.activation_checkpointing
    for name, block in context.blocks(model):
        if mode == "full":
            replace_module(model, name, checkpoint_wrapper(block))
        elif mode == "selective":
            selective = partial(create_selective_checkpoint_contexts, _policy)
            replace_module(model, name, checkpoint_wrapper(block, context_fn=selective))
    if context.layout.options.compile:
        for _, block in context.blocks(model):
            block.compile()
