"""Plain PyTorch: a script with ``init_device_mesh`` and the wrappers, and the torchrun line that starts it."""

from __future__ import annotations

from harness.layout import AXES
from harness.layout.order import strides
from harness.recommend.export.target import File, Target

_SCRIPT = '''\
"""{title}

{launch}

Take make_mesh and parallelize into your own training script; as it stands, it trains a small model for one step.
"""

import os

import torch
import torch.distributed as dist
from torch import nn
{imports}

def make_mesh(device_type):
    """{mesh_text}"""
{make_mesh}

def parallelize(model, blocks, mesh):
    """``blocks`` are the modules to shard one by one, such as a transformer's layers."""
{parallelize}

def main():
    device_type = "cuda" if torch.cuda.is_available() else "cpu"
    if device_type == "cuda":
        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    dist.init_process_group("nccl" if device_type == "cuda" else "gloo")
    mesh = make_mesh(device_type)
    torch.manual_seed(0)
    blocks = [nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 64)) for _ in range(2)]
    model = parallelize(nn.Sequential(*blocks).to(device_type), blocks, mesh)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    loss = model(torch.randn({batch}, 64, device=device_type)).square().mean()
    loss.backward()
    optimizer.step()
    if dist.get_rank() == 0:
        sizes = dict(zip(mesh.mesh_dim_names, mesh.shape))
        print(f"mesh {{sizes}}, ranks {{mesh.mesh.tolist()}}, loss {{loss:.4f}}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
'''


def as_script(target: Target) -> File:
    """A script that runs as it stands on the layout's ranks. Its tp splits each block's two linear layers."""
    axes = tuple((axis, size) for axis, size in zip(AXES, target.mesh.sizes, strict=True) if size > 1)
    axes = axes or (("dp_shard", 1),)
    names = tuple(axis for axis, _ in axes)
    shape = tuple(size for _, size in axes)
    imports, body, lost = _wrappers(target, names)
    text = _SCRIPT.format(
        title="\n".join(target.head),
        launch=_launch(target),
        imports="\n".join(imports) + "\n",
        mesh_text=" x ".join(f"{axis} {size}" for axis, size in axes) + ", outermost first.",
        make_mesh=_make_mesh(target, names, shape),
        parallelize="\n".join(f"    {line}" for line in body) + "\n",
        batch=target.micro_batch,
    )
    return File(text, lost)


def _launch(target: Target) -> str:
    if target.nodes == 1:
        return f"torchrun --nproc-per-node {target.ranks_per_node} THIS_FILE"
    return (
        f"torchrun --nnodes {target.nodes} --nproc-per-node {target.ranks_per_node} \\\\\n"
        "    --rdzv-backend c10d --rdzv-endpoint FIRST_HOST:29500 THIS_FILE"
    )


def _make_mesh(target: Target, names: tuple[str, ...], shape: tuple[int, ...]) -> str:
    if "order" not in target.options.changed():
        return f"{_why(names)}    return init_device_mesh(device_type, {shape}, mesh_dim_names={names})\n"
    step = strides(target.mesh, target.options.order)
    steps = tuple(step[name] for name in names)
    return (
        f"    # not the default order: neighbours along {names} lie {steps} ranks apart\n"
        f"    ranks = torch.arange({target.mesh.world_size}).as_strided({shape}, {steps})\n"
        f"    return DeviceMesh(device_type, ranks, mesh_dim_names={names})\n"
    )


def _why(names: tuple[str, ...]) -> str:
    """Why the axes stand in this order; nothing to say of one axis."""
    if len(names) == 1:
        return ""
    first, last = names[0], names[-1]
    text = f"outermost first: {last} communicates most and takes neighbouring ranks, {first} may span nodes"
    return f"    # {text}\n"


def _wrappers(target: Target, names: tuple[str, ...]) -> tuple[list[str], list[str], tuple[str, ...]]:
    """Import lines, the body of ``parallelize``, and what is lost."""
    options, mesh = target.options, target.mesh
    device_mesh = "DeviceMesh" if "order" in options.changed() else "init_device_mesh"
    imports = [f"from torch.distributed.device_mesh import {device_mesh}"]
    body: list[str] = []
    lost = []
    if mesh.tp > 1:
        plan = '{"0": ColwiseParallel(), "2": RowwiseParallel()}'
        imports.append(
            "from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module"
        )
        body += ["for block in blocks:", f'    parallelize_module(block, mesh["tp"], {plan})  # your own plan']
        if options.sequence_parallel or options.loss_parallel:
            lost.append("sequence and loss parallel: they belong into the tp plan of your model")
    if options.activation_checkpointing != "none":
        imports.append(
            "from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import apply_activation_checkpointing"
        )
        body.append("apply_activation_checkpointing(model, check_fn=lambda module: module in blocks)")
        if options.activation_checkpointing == "selective":
            lost.append("selective activation checkpointing: whole blocks are checkpointed here")
    if target.sharded:
        body += _fully_shard(target, names, imports)
        if target.layout.strategy.startswith("fsdp1"):
            lost.append("FullyShardedDataParallel: written with fully_shard, its successor")
    elif mesh.dp_replicate > 1:
        body += _ddp(target, imports)
        if options.precision == "bf16":
            lost.append("bf16 compute: run forward under torch.autocast")
    if options.compile:
        body.append("model.compile()")
    return imports, [*body, "return model"], tuple(lost)


def _fully_shard(target: Target, names: tuple[str, ...], imports: list[str]) -> list[str]:
    options = target.options
    data = tuple(name for name in names if name != "tp")
    arguments = {
        "mesh": "mesh" if data == names else f"mesh[{data if len(data) > 1 else repr(data[0])!s}]",
        "reshard_after_forward": repr(options.reshard_after_forward),
    }
    wanted = ["fully_shard"]
    if options.precision == "bf16":
        wanted.append("MixedPrecisionPolicy")
        arguments["mp_policy"] = "MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)"
    if options.cpu_offload:
        wanted.append("CPUOffloadPolicy")
        arguments["offload_policy"] = "CPUOffloadPolicy()"
    imports.append(f"from torch.distributed.fsdp import {', '.join(sorted(wanted, key=str.lower))}")
    keywords = ", ".join(f"{name}={value}" for name, value in arguments.items())
    return [
        f"options = dict({keywords})",
        "for block in blocks:",
        "    fully_shard(block, **options)",
        "fully_shard(model, **options)",
    ]


def _ddp(target: Target, imports: list[str]) -> list[str]:
    if target.mesh.tp > 1:
        imports.append("from torch.distributed._composable.replicate_with_fsdp import replicate")
        return ['return replicate(model, mesh=mesh["dp_replicate"])']
    imports.append("from torch.nn.parallel import DistributedDataParallel")
    return ["model = DistributedDataParallel(model, device_mesh=mesh)"]
