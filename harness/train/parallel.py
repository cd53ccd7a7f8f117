"""What strategies share: their protocol, the device mesh, precision, wrapping of blocks."""

from __future__ import annotations

import contextlib
import fnmatch
import importlib
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any, Protocol, cast

import torch
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy

from harness.layout import AXES, Layout, get_strategy
from harness.layout.order import slots
from harness.train.muted import MUTED
from harness.train.weights import FullTensor, clean_name, materialise
from harness.workload import ModelDefinition

Clip = Callable[[nn.Module, float], Tensor]


@dataclass(frozen=True)
class Context:
    """What a strategy is given: the layout, the model's definition, this rank's device, the initial weights.

    ``muted``: the mesh axes whose collectives carry nothing, to see what a step costs without them; ``stand_in``: their
    backend, of ``harness.train.muted``.
    """

    layout: Layout
    definition: ModelDefinition
    device: torch.device
    full: FullTensor
    muted: frozenset[str] = frozenset()
    stand_in: str = MUTED

    def mesh(self) -> DeviceMesh:
        """The device mesh of the strategy's axes, outermost first, with their names."""
        axes = get_strategy(self.layout.strategy).axes
        sizes = dict(zip(AXES, self.layout.mesh.sizes, strict=True))
        shape, names = tuple(sizes[a] for a in axes), tuple(map(self.dim, axes))
        if self.layout.options.order == AXES:
            muted: dict[int | str, Any] = {self.dim(axis): self.stand_in for axis in axes if axis in self.muted}
            return init_device_mesh(self.device.type, shape, mesh_dim_names=names, backend_override=muted or None)
        backends = tuple((self.backend(axis), None) for axis in axes)
        places = self.places().view(shape)
        return DeviceMesh(self.device.type, places, mesh_dim_names=names, backend_override=backends)

    def dim(self, axis: str) -> str:
        """The mesh's own name of an axis.

        With muted axes it says so, for DTensor caches by mesh, and meshes with equal names are equal to it whatever
        their groups are.
        """
        return axis if not self.muted else f"{axis}_{self.stand_in}_{'_'.join(sorted(self.muted))}"

    def backend(self, axis: str) -> str | None:
        """The backend of an axis' groups; None is the default group's."""
        return self.stand_in if axis in self.muted else None

    def places(self) -> Tensor:
        """Process ranks in the mesh's own order: which process sits at each place of the mesh."""
        return torch.tensor(slots(self.layout.mesh, self.layout.options.order))

    def materialise(self, model: nn.Module) -> None:
        """Give the model its storage and initial weights."""
        materialise(model, self.full, self.device)

    def blocks(self, model: nn.Module) -> list[tuple[str, nn.Module]]:
        """The blocks, by name, in the model's order."""
        return matching(model, self.definition.block_pattern)


@dataclass(frozen=True)
class Parallel:
    """A parallelised model, how its step is run, and how its gradients are clipped (None: the common way).

    ``holds_shards``: its parameters are ordinary tensors that hold a shard over dp_shard, and no DTensors.
    """

    model: nn.Module
    around_step: Callable[[], AbstractContextManager[object]] = field(default=contextlib.nullcontext)
    clip: Clip | None = None
    holds_shards: bool = False


class ParallelStrategy(Protocol):
    """A strategy's module: takes the bare model on the meta device, returns it parallelised, with weights."""

    def parallelize(self, model: nn.Module, context: Context) -> Parallel: ...


def load_strategy(name: str) -> ParallelStrategy:
    """Import a strategy's module."""
    return cast(ParallelStrategy, importlib.import_module(get_strategy(name).module))


def matching(model: nn.Module, pattern: str) -> list[tuple[str, nn.Module]]:
    """Modules whose bare name matches the glob part by part (``*`` stands for one part), outermost wrapper first.

    Returns (name in ``model`` as it is now, module).
    """
    parts = pattern.split(".")
    found: dict[str, tuple[str, nn.Module]] = {}
    for name, module in model.named_modules():
        bare = clean_name(name)
        names = bare.split(".")
        if len(names) == len(parts) and all(fnmatch.fnmatchcase(n, p) for n, p in zip(names, parts, strict=True)):
            found.setdefault(bare, (name, module))
    return list(found.values())


def replace_module(model: nn.Module, name: str, new: nn.Module) -> None:
    """Put ``new`` in the place of the submodule ``name``."""
    parent, _, leaf = name.rpartition(".")
    setattr(model.get_submodule(parent), leaf, new)


def autocast(context: Context) -> Callable[[], AbstractContextManager[object]]:
    """bf16 compute over fp32 parameters and gradients, for strategies without a precision policy of their own."""
    if context.layout.options.precision == "fp32":
        return contextlib.nullcontext
    return lambda: torch.autocast(context.device.type, dtype=torch.bfloat16)


def precision_policy(context: Context) -> MixedPrecisionPolicy:
    """bf16 parameters in compute, gradients reduced in fp32."""
    if context.layout.options.precision == "fp32":
        return MixedPrecisionPolicy()
    return MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)


@contextlib.contextmanager
def entered(*contexts: AbstractContextManager[object]) -> Iterator[None]:
    """Several contexts as one."""
    with contextlib.ExitStack() as stack:
        for each in contexts:
            stack.enter_context(each)
        yield
