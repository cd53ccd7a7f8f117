"""Hugging Face Accelerate: the YAML that ``accelerate launch --config_file`` reads, with FSDP2 and its mesh."""

from __future__ import annotations

from typing import Any

from harness.errors import UsageError
from harness.recommend.export.target import File, Target, comments, lost_lines, order_lost


def as_yaml(target: Target) -> File:
    """DDP as multi-GPU or multi-CPU; everything sharded as FSDP2 with a ``ParallelismConfig``.

    Raises:
        UsageError: Accelerate has no such layout.
    """
    mesh, options, cpu = target.mesh, target.options, target.plan.ranks.device == "cpu"
    if mesh.tp > 1 and not target.sharded:
        raise UsageError(
            f"Accelerate has no {target.layout.strategy}: tensor parallel goes with FSDP2 there; "
            "export a layout such as fsdp_tp, or another kind"
        )
    lost = list(order_lost(target))
    values: dict[str, Any] = {
        "compute_environment": "LOCAL_MACHINE",
        "distributed_type": "FSDP" if target.sharded else ("MULTI_CPU" if cpu else "MULTI_GPU"),
        "mixed_precision": "bf16" if options.precision == "bf16" else "no",
        "num_machines": target.nodes,
        "num_processes": target.plan.ranks.world_size,
        "machine_rank": 0,
        "main_training_function": "main",
        "use_cpu": cpu,
    }
    if options.compile:
        values["dynamo_config"] = {"dynamo_backend": "INDUCTOR"}
    if target.sharded:
        values["fsdp_config"] = _fsdp(target, lost)
        values["parallelism_config"] = {
            "parallelism_config_dp_replicate_size": mesh.dp_replicate,
            "parallelism_config_dp_shard_size": mesh.dp_shard,
            "parallelism_config_tp_size": mesh.tp,
        }
    elif options.activation_checkpointing != "none":
        lost.append(f"activation checkpointing {options.activation_checkpointing}: switch it on in the model")
    if options.sequence_parallel or options.loss_parallel:
        lost.append("sequence or loss parallel: the model's own tp plan decides")
    if target.nodes > 1:
        lost.append("machine_rank and main_process_ip of each node: give them to `accelerate launch`")
    head = comments([*target.head, "accelerate launch --config_file THIS_FILE train.py", *lost_lines(lost)])
    return File(head + _yaml(values), tuple(lost))


def _fsdp(target: Target, lost: list[str]) -> dict[str, Any]:
    options = target.options
    if not isinstance(options.reshard_after_forward, bool):
        lost.append(f"resharding to groups of {options.reshard_after_forward} ranks after forward")
    if options.activation_checkpointing == "selective":
        lost.append("selective activation checkpointing: Accelerate checkpoints whole blocks")
    if target.layout.strategy.startswith("fsdp1"):
        lost.append("FullyShardedDataParallel: written as FSDP2, its successor")
    return {
        "fsdp_version": 2,
        "fsdp_auto_wrap_policy": "TRANSFORMER_BASED_WRAP",
        "fsdp_reshard_after_forward": bool(options.reshard_after_forward),
        "fsdp_activation_checkpointing": options.activation_checkpointing != "none",
        "fsdp_offload_params": options.cpu_offload,
        "fsdp_state_dict_type": "SHARDED_STATE_DICT",
    }


def _yaml(values: dict[str, Any], indent: str = "") -> str:
    """Words, numbers and mappings of them; no value needs more."""
    lines = ""
    for name, value in values.items():
        if isinstance(value, dict):
            lines += f"{indent}{name}:\n{_yaml(value, indent + '  ')}"
        else:
            text = str(value).lower() if isinstance(value, bool) else f"'{value}'" if value == "no" else str(value)
            lines += f"{indent}{name}: {text}\n"
    return lines
