"""vLLM: serve what was trained with the same split of tensors."""

from __future__ import annotations

from harness.recommend.export.target import File, Target, comments


def as_command(target: Target) -> File:
    """``vllm serve`` with the tensor-parallel size of the training mesh; data-parallel axes mean nothing there."""
    dtype = "bfloat16" if target.options.precision == "bf16" else "float32"
    head = comments(
        [
            *target.head,
            "tensor-parallel-size is the mesh's tp: the same matrices are split, so weights load shard by shard.",
            "Training precision decided dtype; serving in bfloat16 needs half the memory of float32.",
        ]
    )
    command = f'vllm serve "$MODEL" --tensor-parallel-size {target.mesh.tp} --dtype {dtype}\n'
    return File(f"#!/bin/sh\n{head}{command}")
