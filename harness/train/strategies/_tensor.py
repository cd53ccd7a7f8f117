"""Tensor parallelism from a model's ``tp_plan``, shared by every strategy with a tp axis."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

from torch import nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, Placement, Replicate, Shard
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    ParallelStyle,
    RowwiseParallel,
    SequenceParallel,
    loss_parallel,
    parallelize_module,
)

from harness.layout import LayoutOptions
from harness.train.parallel import Context, entered, matching


class GatherInput(ParallelStyle):
    """Replicates the first input of a module once for all colwise modules in it; other inputs pass untouched.

    Once, and not in each colwise module: the input's gradient is then reduced once as well.
    """

    def __init__(self, layout: Placement) -> None:
        super().__init__()
        self.layout = layout

    def _apply(self, module: nn.Module, device_mesh: DeviceMesh) -> nn.Module:
        def replicated(_module: nn.Module, inputs: tuple[Any, ...]) -> tuple[Any, ...]:
            first = inputs[0]
            if not isinstance(first, DTensor):
                first = DTensor.from_local(first, device_mesh, (self.layout,), run_check=False)
            return (first.redistribute(placements=(Replicate(),)), *inputs[1:])

        module.register_forward_pre_hook(replicated)
        return module


def styles(options: LayoutOptions) -> dict[str, ParallelStyle | None]:
    """The style of each word of a tp_plan.

    With sequence parallelism activations between modules lie split over the sequence (dim 1) and norms work on
    their part; without it they are replicated and norms stay as they are.
    """
    between = Shard(1) if options.sequence_parallel else Replicate()
    logits = Shard(-1) if options.loss_parallel else Replicate()
    return {
        "embedding": RowwiseParallel(input_layouts=Replicate(), output_layouts=between),
        "norm": SequenceParallel() if options.sequence_parallel else None,
        "gather": GatherInput(between),
        "colwise": ColwiseParallel(),
        "rowwise": RowwiseParallel(output_layouts=between),
        "head": ColwiseParallel(
            input_layouts=between, output_layouts=logits, use_local_output=not options.loss_parallel
        ),
    }


def split(model: nn.Module, mesh: DeviceMesh, context: Context) -> None:
    """Split the model's modules over the 1-D ``mesh`` as its tp_plan says, in place; tied parameters stay tied."""
    words = styles(context.layout.options)
    tied = [
        (module, leaf, parameter)
        for module in model.modules()
        for leaf, parameter in module.named_parameters(recurse=False)
    ]
    plan = {}
    for pattern, word in context.definition.tp_plan.items():
        style = words[word]
        if style is not None:
            plan.update({name: style for name, _ in matching(model, pattern)})
    parallelize_module(model, mesh, plan)
    _tie_again(tied)


def _tie_again(before: list[tuple[nn.Module, str, nn.Parameter]]) -> None:
    first: dict[int, nn.Parameter] = {}
    for module, leaf, parameter in before:
        setattr(module, leaf, first.setdefault(id(parameter), getattr(module, leaf)))


def around_step(
    context: Context, inner: Callable[[], AbstractContextManager[object]] = contextlib.nullcontext
) -> Callable[[], AbstractContextManager[object]]:
    """The context of forward, loss and backward: loss parallelism where asked for, around ``inner``."""
    if not context.layout.options.loss_parallel:
        return inner
    return lambda: entered(loss_parallel(), inner())
