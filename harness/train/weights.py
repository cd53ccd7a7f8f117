"""The same initial weights for every layout: a full parameter is a function of (seed, name); a rank keeps its part."""

from __future__ import annotations

import hashlib
from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.distributed.tensor import DTensor, Shard
from torch.distributed.tensor.placement_types import _StridedShard

from harness.workload import ModelDefinition

WRAPPER_PARTS = ("_checkpoint_wrapped_module", "_fsdp_wrapped_module", "_orig_mod")

FullTensor = Callable[[str, Tensor], Tensor]


def clean_name(name: str) -> str:
    """A parameter's or module's name in the bare model, without what wrappers add."""
    return ".".join(part for part in name.split(".") if part not in WRAPPER_PARTS)


def full_tensors(definition: ModelDefinition, seed: int) -> FullTensor:
    """A function (name, tensor of the right global shape) -> full fp32 CPU tensor.

    With ``definition.init`` only one full parameter exists at a time. Without it the user's module is built whole on
    the CPU of each rank.
    """
    init = definition.init
    if init is None:
        torch.manual_seed(seed)
        module = definition.build()
        state = {**dict(module.named_parameters(remove_duplicate=False)), **dict(module.named_buffers())}
        return lambda name, like: state[name].detach()

    def draw(name: str, like: Tensor) -> Tensor:
        key = hashlib.sha256(f"{seed}/{name}".encode()).digest()
        full = torch.empty(like.shape, dtype=torch.float32)
        init(name, full, torch.Generator().manual_seed(int.from_bytes(key[:7], "big")))
        return full

    return draw


def materialise(model: nn.Module, full: FullTensor, device: torch.device) -> None:
    """Give a model on the meta device its storage on ``device`` and its initial weights, in place."""
    allocate(model, device)
    with torch.no_grad():
        for name, tensor in [*model.named_parameters(), *model.named_buffers()]:
            _copy_part(tensor, full(clean_name(name), tensor))


def allocate(model: nn.Module, device: torch.device) -> None:
    """Give a model on the meta device its storage on ``device``, in place; tied parameters stay tied."""
    aliases = _aliases(model)
    model.to_empty(device=device)
    parameters = dict(model.named_parameters(remove_duplicate=False))
    for alias, name in aliases.items():
        module_name, _, leaf = alias.rpartition(".")
        setattr(model.get_submodule(module_name), leaf, parameters[name])


def _aliases(model: nn.Module) -> dict[str, str]:
    first: dict[int, str] = {}
    aliases = {}
    for name, parameter in model.named_parameters(remove_duplicate=False):
        if id(parameter) in first:
            aliases[name] = first[id(parameter)]
        first.setdefault(id(parameter), name)
    return aliases


def _copy_part(tensor: Tensor, full: Tensor) -> None:
    if not isinstance(tensor, DTensor):
        tensor.copy_(full)
        return
    local = tensor.to_local()
    part = local_part(full, tensor)
    if local.shape != part.shape:
        raise RuntimeError(f"part of shape {tuple(part.shape)} for a local tensor of shape {tuple(local.shape)}")
    local.copy_(part)


def local_part(full: Tensor, tensor: DTensor) -> Tensor:
    """This rank's part of ``full``, placed as ``tensor``.

    Inner axes are cut first: fully_shard cuts what tensor parallelism has left, with torch.chunk's sizes.
    """
    coordinate = tensor.device_mesh.get_coordinate()
    assert coordinate is not None
    for axis in reversed(range(tensor.device_mesh.ndim)):
        placement = tensor.placements[axis]
        if isinstance(placement, Shard | _StridedShard):
            chunks = full.chunk(tensor.device_mesh.size(axis), dim=placement.dim)
            index = coordinate[axis]
            full = chunks[index] if index < len(chunks) else full.narrow(placement.dim, 0, 0)
    return full
