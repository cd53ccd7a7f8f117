"""DeepSpeed: the nearest ZeRO stage as its JSON configuration, with what is lost."""

from __future__ import annotations

import json
from typing import Any

from harness.recommend.export.target import File, Target, order_lost


def as_json(target: Target) -> File:
    """Stage 0 for DDP, 2 where parameters stay whole after forward, else 3; HSDP as ZeRO 3 with hpZ.

    Stages as in Rajbhandari et al. 2020 (ZeRO); hpZ, a second copy of the parameters sharded within a group, in Wang et
    al. 2023 (ZeRO++). MiCS, which was HSDP itself, is no longer in DeepSpeed, and its key is refused.
    """
    mesh, options = target.mesh, target.options
    stage = 0
    if target.sharded:
        stage = 3 if options.reshard_after_forward else 2
    lost = list(order_lost(target))
    zero: dict[str, Any] = {"stage": stage}
    if stage and mesh.dp_replicate > 1:
        lost.append(f"shards of {mesh.dp_shard}: ZeRO {stage} shards over all {mesh.dp} data-parallel ranks")
        if stage == 3 and mesh.tp == 1:  # its groups are neighbours in the world, which with tp are tp's
            zero["zero_hpz_partition_size"] = mesh.dp_shard
            lost[-1] += f"; backward gathers within {mesh.dp_shard} (hpZ), for a second copy of the parameters"
    if options.cpu_offload and stage:
        zero["offload_optimizer"] = {"device": "cpu"}
        if stage == 3:
            zero["offload_param"] = {"device": "cpu"}
    if not isinstance(options.reshard_after_forward, bool):
        lost.append(f"resharding to groups of {options.reshard_after_forward} ranks after forward")
    if options.activation_checkpointing != "none":
        lost.append(f"activation checkpointing {options.activation_checkpointing}: the model switches it on")
    if options.compile:
        lost.append("torch.compile: call engine.compile()")
    values: dict[str, Any] = {
        "train_batch_size": target.micro_batch * mesh.dp,
        "train_micro_batch_size_per_gpu": target.micro_batch,
        "gradient_accumulation_steps": 1,
        "gradient_clipping": target.plan.settings.max_grad_norm,
        "bf16": {"enabled": options.precision == "bf16"},
        "zero_optimization": zero,
    }
    if mesh.tp > 1:
        values["tensor_parallel"] = {"autotp_size": mesh.tp}
    if target.caution:
        values = {"_caution": target.caution, **values}  # DeepSpeed reads the keys that it knows
    return File(json.dumps(values, indent=2) + "\n", tuple(lost))
