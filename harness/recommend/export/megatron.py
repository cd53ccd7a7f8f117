"""Megatron-LM and NeMo: degrees as command-line flags."""

from __future__ import annotations

from harness.recommend.export.target import File, Target, comments, lost_lines, order_lost


def as_flags(target: Target) -> File:
    """Flags of Megatron-LM, a line each, for ``$(grep -v '^#' FILE)``; NeMo's strategy takes the same names."""
    mesh, options = target.mesh, target.options
    flags = [
        f"--tensor-model-parallel-size {mesh.tp}",
        "--pipeline-model-parallel-size 1",
        "--context-parallel-size 1",
        f"--micro-batch-size {target.micro_batch}",
        f"--global-batch-size {target.plan.workload.global_batch}",
        f"--seq-length {target.plan.workload.seq_len}",
        f"--clip-grad {target.plan.settings.max_grad_norm:g}",
    ]
    lost = list(order_lost(target))
    if target.sharded:
        strategy = "optim_grads_params" if options.reshard_after_forward else "optim_grads"
        flags += [
            "--use-distributed-optimizer",
            "--use-megatron-fsdp",
            f"--data-parallel-sharding-strategy {strategy}",
            "--ckpt-format fsdp_dtensor",
        ]
        if mesh.dp_replicate > 1:
            flags.append(f"--num-distributed-optimizer-instances {mesh.dp_replicate}")
        lost.append("fully_shard itself: Megatron's own FSDP shards the same tensors with other kernels")
        if not isinstance(options.reshard_after_forward, bool):
            lost.append(f"resharding to groups of {options.reshard_after_forward} ranks after forward")
    if options.sequence_parallel and mesh.tp > 1:
        flags.append("--sequence-parallel")
    if options.precision == "bf16":
        flags += ["--bf16", "--accumulate-allreduce-grads-in-fp32"]
    recompute = {"selective": "selective", "full": "full"}.get(options.activation_checkpointing)
    if recompute:
        flags.append(f"--recompute-granularity {recompute}")
        flags += ["--recompute-method uniform", "--recompute-num-layers 1"] if recompute == "full" else []
    if options.cpu_offload:
        lost.append("parameters on the CPU")
    if options.compile:
        lost.append("torch.compile")
    start = "torchrun ... pretrain_gpt.py $(grep -v '^#' THIS_FILE) ..."
    head = comments([*target.head, start, *_connections(target), *lost_lines(lost)])
    return File(head + "\n".join(flags) + "\n", tuple(lost))


def _connections(target: Target) -> list[str]:
    """What the environment must hold: Megatron refuses to start otherwise."""
    if target.sharded:
        return ["CUDA_DEVICE_MAX_CONNECTIONS must not be 1."]
    return ["Before Blackwell: CUDA_DEVICE_MAX_CONNECTIONS=1."] if target.mesh.tp > 1 else []
