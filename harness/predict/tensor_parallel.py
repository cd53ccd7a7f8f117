"""The collectives that tensor parallelism adds to a step of the reference model.

Per block a rowwise projection ends attention and another ends the feed-forward part. Forward all-reduces their
outputs, a partial sum each; backward all-reduces the gradients of the inputs that their colwise projections share.
Sequence parallelism turns each all-reduce into a reduce-scatter and an all-gather (Korthikanti et al. 2022, section
4.2.2). The embedding counts as a rowwise module, the head as a colwise one. Loss parallelism reduces maximum, sum of
exponentials and picked logit of each token instead of gathering logits.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial

from harness.layout import Layout
from harness.predict.parameters import Parameter
from harness.predict.terms import collective, compute_dtype
from harness.traffic import Collective, Operation, StepPhase
from harness.workload import Workload


def tensor_collectives(layout: Layout, workload: Workload) -> Iterator[Collective]:
    """Activations, logits and losses on the tp axis."""
    mesh, options, shape = layout.mesh, layout.options, workload.model
    tokens = workload.global_batch // mesh.dp * workload.seq_len
    on_tp = partial(_on_tp, layout)
    block_dtype = compute_dtype(layout)
    # autocast, which tp alone uses, leaves the embedding, the residual stream and its gradients in fp32
    stream = "float32" if layout.strategy == "tp" else block_dtype
    activations = partial(on_tp, numel=tokens * shape.dim)
    if options.loss_parallel:
        yield on_tp("all_reduce", "float32", "forward", numel=tokens, count=3)
    else:
        yield on_tp("all_gather", block_dtype, "forward", numel=tokens * shape.vocab_size)
    joins, splits = 2 * shape.n_layers, 2 * shape.n_layers + 1  # the embedding is a join too, in the stream's dtype
    recomputed = options.activation_checkpointing != "none"
    if options.sequence_parallel:
        yield activations("reduce_scatter", stream, "forward", count=1)
        yield activations("reduce_scatter", block_dtype, "forward", count=joins)
        yield activations("all_gather", stream, "forward", count=splits)
        yield activations("reduce_scatter", stream, "backward", count=splits)
        yield activations("all_gather", stream, "backward", count=1)
        yield activations("all_gather", block_dtype, "backward", count=joins)
        if recomputed:
            yield activations("all_gather", stream, "backward", count=2 * shape.n_layers)
        # a block's recomputation ends before its last projection; selective checkpointing keeps what was scattered
        if options.activation_checkpointing == "full":
            yield activations("reduce_scatter", block_dtype, "backward", count=shape.n_layers)
        return
    yield activations("all_reduce", stream, "forward", count=1)
    yield activations("all_reduce", block_dtype, "forward", count=joins)
    yield activations("all_reduce", stream, "backward", count=splits)
    if recomputed:
        yield activations("all_reduce", block_dtype, "backward", count=shape.n_layers)


def replicated_gradients(layout: Layout, params: Sequence[Parameter]) -> Iterator[Collective]:
    """Norms' gradients under sequence parallelism: each tp rank saw a part of the sequence only.

    Where a wrapper reduces gradients over dp it first has them reduced over tp. With tp alone they stay partial sums,
    and each of those who use them reduces them anew: clipping once, AdamW in three of its operators.
    """
    if not layout.options.sequence_parallel:
        return
    for param in params:
        if param.tp_dim is None and layout.mesh.dp > 1:
            yield _on_tp(layout, "all_reduce", compute_dtype(layout), "backward", numel=param.numel)
        elif param.tp_dim is None:
            yield _on_tp(layout, "all_reduce", "float32", "clipping", numel=param.numel)
            yield _on_tp(layout, "all_reduce", "float32", "optimizer", numel=param.numel, count=3)


def _on_tp(
    layout: Layout, operation: Operation, dtype: str, phase: StepPhase, *, numel: int, count: int = 1
) -> Collective:
    return collective(operation, "tp", layout.mesh.tp, dtype, phase, numel, count)
