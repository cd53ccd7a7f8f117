"""torchtitan: a Python configuration function, as it has used since February 2026, and the TOML of versions before.

Fields as in torchtitan's ``ParallelismConfig`` and ``TrainingConfig``. Activation checkpointing is a policy of its own
class since 0.3, a mode by name before.
"""

from __future__ import annotations

from typing import Any

from harness.recommend.export.target import File, Target, comments, lost_lines, order_lost

_POLICIES = {"selective": "SelectiveAC", "full": "FullAC"}


def fields(target: Target) -> tuple[dict[str, dict[str, Any]], tuple[str, ...]]:
    """Section -> field -> value, and what is lost. Activation checkpointing is not among them."""
    mesh, options = target.mesh, target.options
    parallelism: dict[str, Any] = {
        "data_parallel_replicate_degree": mesh.dp_replicate,
        "data_parallel_shard_degree": mesh.dp_shard,
        "tensor_parallel_degree": mesh.tp,
        "pipeline_parallel_degree": 1,
        "context_parallel_degree": 1,
    }
    lost = list(order_lost(target))
    if target.sharded:
        parallelism["fsdp_reshard_after_forward"] = "always" if options.reshard_after_forward else "never"
        if not isinstance(options.reshard_after_forward, bool):
            lost.append(f"resharding to groups of {options.reshard_after_forward} ranks after forward")
    if mesh.tp > 1:
        parallelism["enable_sequence_parallel"] = options.sequence_parallel
        if not options.loss_parallel:
            lost.append("logits gathered before the loss: torchtitan computes it on shards of them")
    if target.layout.strategy.startswith("fsdp1"):
        lost.append("FullyShardedDataParallel: torchtitan shards with fully_shard")
    training = {
        "local_batch_size": target.micro_batch,
        "global_batch_size": target.plan.workload.global_batch,
        "seq_len": target.plan.workload.seq_len,
        "max_norm": target.plan.settings.max_grad_norm,
        "mixed_precision_param": "bfloat16" if options.precision == "bf16" else "float32",
        "mixed_precision_reduce": "float32",
        "enable_cpu_offload": options.cpu_offload,
    }
    sections = {
        "parallelism": parallelism,
        "training": training,
        "compile": {"enable": options.compile},
    }
    return sections, tuple(lost)


def as_python(target: Target) -> File:
    """A function that sets the fields of any complete ``Trainer.Config``."""
    sections, lost = fields(target)
    lines = [
        f"config.{section}.{name} = {value!r}" for section, found in sections.items() for name, value in found.items()
    ]
    policy = _POLICIES.get(target.options.activation_checkpointing)
    lines.append(f"config.activation_checkpoint = {f'{policy}.Config()' if policy else None}")
    if policy:
        lines.insert(0, f"from torchtitan.distributed.activation_checkpoint import {policy}\n")
    body = "\n".join(f"    {line}" for line in lines)
    head = comments(
        [
            *target.head,
            "Derive a configuration from one of torchtitan's own:",
            "    def my_run():",
            "        return layout(llama3_8b())",
            f"and start it on {target.plan.ranks.world_size} ranks with --module and --config.",
            *lost_lines(lost),
        ]
    )
    return File(
        f'{head}\n\ndef layout(config):\n    """Set parallelism, batch and precision as they were measured."""\n'
        f"{body}\n    return config\n",
        lost,
    )


def as_toml(target: Target) -> File:
    """Sections for a job file."""
    sections, lost = fields(target)
    sections["activation_checkpoint"] = {"mode": target.options.activation_checkpointing}
    lines = [comments([*target.head, "For torchtitan before the Python configurations.", *lost_lines(lost)])]
    for section, found in sections.items():
        lines += [f"[{section}]", *(f"{name} = {_toml(value)}" for name, value in found.items()), ""]
    return File("\n".join(lines), lost)


def _toml(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return f'"{value}"' if isinstance(value, str) else str(value)
