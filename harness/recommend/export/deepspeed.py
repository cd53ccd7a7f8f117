"""DeepSpeed: the nearest ZeRO stage as its JSON configuration, with what is lost."""

from __future__ import annotations

import json
from typing import Any

from harness.recommend.export.target import File, Target, order_lost


def as_json(target: Target) -> File:
    """Stage 0 for DDP, 2 where parameters stay whole after forward, else 3; HSDP as MiCS, which is ZeRO 3 in groups.

    Stages as in Rajbhandari et al. 2020 (ZeRO); MiCS in Zhang et al. 2022. ``autotp_size`` works with stages 0 to 2.
    """
    mesh, options = target.mesh, target.options
    stage = 0
    if target.sharded:
        stage = 3 if options.reshard_after_forward else 2
    lost = list(order_lost(target))
    if mesh.tp > 1 and stage == 3:
        stage = 2
        lost.append("sharded parameters: AutoTP goes with ZeRO 2 at most, so each rank holds its tp part whole")
    zero: dict[str, Any] = {"stage": stage}
    if stage == 3 and mesh.dp_replicate > 1:
        zero["mics_shard_size"] = mesh.dp_shard
        lost.append("nothing of HSDP, if the model is built under deepspeed.zero.MiCS_Init; else it is ZeRO 3 over all")
    elif stage in (1, 2) and mesh.dp_replicate > 1:
        lost.append(f"shards of {mesh.dp_shard}: ZeRO {stage} shards over all {mesh.dp} data-parallel ranks")
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
    return File(json.dumps(values, indent=2) + "\n", tuple(lost))
