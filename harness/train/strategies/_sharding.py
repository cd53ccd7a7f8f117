"""``fully_shard`` on blocks and root, shared by every strategy that uses it."""

from __future__ import annotations

from torch import nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import CPUOffloadPolicy, OffloadPolicy, fully_shard

from harness.train.parallel import Context, precision_policy


def shard(model: nn.Module, mesh: DeviceMesh, context: Context) -> None:
    """Shard each block and the rest of the model over ``mesh`` (1-D: shard; 2-D: replicate x shard), in place."""
    options = context.layout.options
    policy = precision_policy(context)
    offload = CPUOffloadPolicy(pin_memory=context.device.type == "cuda") if options.cpu_offload else OffloadPolicy()
    for _, block in context.blocks(model):
        fully_shard(
            block,
            mesh=mesh,
            reshard_after_forward=options.reshard_after_forward,
            mp_policy=policy,
            offload_policy=offload,
        )
    # The root keeps torch's default: its parameters stay, since backward needs them first.
    fully_shard(model, mesh=mesh, mp_policy=policy, offload_policy=offload)
