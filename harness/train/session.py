"""A layout ready to train on this rank: model, optimizer, and the step that is measured."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterable
from typing import Literal

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor, nn
from torch.distributed.tensor import DTensor
from torch.nn.parallel import DistributedDataParallel

from harness.layout.order import ranks_by_slot
from harness.spec import RunSpec
from harness.traffic import StepPhase
from harness.train.blocks import prepare_blocks
from harness.train.data import local_batch
from harness.train.decoder import definition
from harness.train.muted import MUTED
from harness.train.parallel import Context, load_strategy, matching
from harness.train.weights import clean_name, full_tensors
from harness.workload import ModelDefinition, Workload, load_definition

Batch = tuple[Tensor, Tensor]
OptimizerName = Literal["adamw", "sgd"]


def model_definition(workload: Workload) -> ModelDefinition:
    """The reference model's definition, or the user's."""
    return load_definition(workload.model_path) if workload.model_path else definition(workload.model)


def check_definition(bare: nn.Module, context: Context) -> None:
    """See that a model's definition speaks of the model that it builds.

    Raises:
        ValueError: a glob matches no module, or the embedding has another size than the shape says. Without this a
            layout would run as though it sharded or split what it leaves whole.
    """
    definition = context.definition
    patterns = [("block_pattern", definition.block_pattern), *(("tp_plan", p) for p in definition.tp_plan)]
    for field, pattern in patterns:
        if not matching(bare, pattern):
            names = ", ".join(name for name, _ in list(bare.named_modules())[1:9])
            raise ValueError(f"{field}: {pattern!r} matches no module of the model; its modules are {names}, ...")
    sizes = [m.num_embeddings for m in bare.modules() if isinstance(m, nn.Embedding)]
    if sizes and max(sizes) < definition.shape.vocab_size:
        raise ValueError(
            f"shape.vocab_size is {definition.shape.vocab_size} and the model's embedding holds {max(sizes)} tokens; "
            "let build() and shape agree"
        )


class Session:
    """Builds the layout of ``spec`` on this rank and trains it step by step.

    ``muted`` axes communicate nothing, or only wait, as ``stand_in`` says; what is trained then is worthless, and its
    time is that without them.

    Attributes:
        rank: this process's place in the mesh; its rank in the process group where axes lie in their usual order.
        model: the parallelised module.
        optimizer: AdamW (what is timed) or SGD (what the equivalence gate uses).
        on_phase: called as each part of a step begins; does nothing unless somebody who counts sets it.
    """

    def __init__(
        self,
        spec: RunSpec,
        device: torch.device,
        optimizer: OptimizerName,
        seed: int | None = None,
        context_type: type[Context] = Context,
        muted: Iterable[str] = (),
        stand_in: str = MUTED,
    ) -> None:
        self.spec, self.device = spec, device
        self.rank = ranks_by_slot(spec.layout.mesh, spec.layout.options.order)[dist.get_rank()]
        seed = spec.seed if seed is None else seed
        model_def = model_definition(spec.workload)
        full = full_tensors(model_def, seed)
        context = context_type(spec.layout, model_def, device, full, frozenset(muted), stand_in)
        with torch.device("meta"):
            bare = model_def.build()
        check_definition(bare, context)
        prepare_blocks(bare, context)
        parallel = load_strategy(spec.layout.strategy).parallelize(bare, context)
        self.model, self._around_step, self._clip = parallel.model, parallel.around_step, parallel.clip or clip_by_group
        self._holds_shards = parallel.holds_shards
        self.optimizer = make_optimizer(optimizer, self.model, spec)
        self.on_phase: Callable[[StepPhase], object] = lambda phase: None

    def batch(self, step: int) -> Batch:
        """This rank's inputs and targets of a step, each (local batch, seq_len) int64."""
        return local_batch(self.spec.workload, self.spec.layout.mesh, self.rank, self.spec.seed, step, self.device)

    def step(self, batch: Batch, max_norm: float) -> tuple[Tensor, Tensor]:
        """One optimizer step; returns this rank's loss and the global pre-clip gradient norm, both scalars."""
        inputs, targets = batch
        self.optimizer.zero_grad(set_to_none=True)
        with self._around_step():
            self.on_phase("forward")
            logits = self.model(inputs)
            loss = F.cross_entropy(logits.flatten(0, 1).float(), targets.flatten())
            self.on_phase("backward")
            loss.backward()
        self.on_phase("clipping")
        norm = self._clip(self.model, max_norm)
        self.on_phase("optimizer")
        self.optimizer.step()
        return loss.detach(), norm

    @property
    def bare(self) -> nn.Module:
        """The model without DDP's wrapper; other wrappers leave names that ``clean_name`` mends."""
        return self.model.module if isinstance(self.model, DistributedDataParallel) else self.model

    def grad_norms(self) -> dict[str, float]:
        """The global L2 norm of each parameter's gradient after a step, by name in the bare model; a collective."""
        norms = {}
        for name, parameter in self.bare.named_parameters():
            square = _square(parameter)
            if self._holds_shards:
                dist.all_reduce(square)
                square /= self.spec.layout.mesh.dp_replicate
            norms[clean_name(name)] = float(square.sqrt())
        return norms

    def close(self) -> None:
        """Drop model and optimizer, so that wrappers are gone before their process groups are."""
        del self.model, self.optimizer, self._around_step, self._clip
        gc.collect()


def _square(parameter: nn.Parameter) -> Tensor:
    """Sum of squares of a gradient, over all shards of a DTensor; 0 where there is none."""
    if parameter.grad is None:
        return torch.zeros((), device=parameter.device, dtype=torch.float32)
    norm = torch.linalg.vector_norm(parameter.grad.detach(), dtype=torch.float32)
    return (norm.full_tensor() if isinstance(norm, DTensor) else norm).square()


def make_optimizer(name: OptimizerName, model: nn.Module, spec: RunSpec) -> torch.optim.Optimizer:
    """AdamW or SGD; parameters on different meshes go into different groups, since foreach kernels cannot mix them."""
    groups = [{"params": group} for group in by_mesh(model.parameters())]
    if name == "sgd":
        return torch.optim.SGD(groups, lr=spec.settings.gate_learning_rate)
    return torch.optim.AdamW(groups, lr=spec.settings.learning_rate)


def by_mesh(parameters: Iterable[nn.Parameter]) -> list[list[nn.Parameter]]:
    """Parameters grouped by device mesh; ordinary tensors are a group."""
    groups: dict[object, list[nn.Parameter]] = {}
    for parameter in parameters:
        key = parameter.device_mesh if isinstance(parameter, DTensor) else None
        groups.setdefault(key, []).append(parameter)
    return list(groups.values())


def clip_by_group(model: nn.Module, max_norm: float) -> Tensor:
    """Clip gradients by their global L2 norm over all meshes; returns the norm before clipping."""
    groups = by_mesh(p for p in model.parameters() if p.grad is not None)
    # a CPU's foreach kernels are loops, and DTensor takes seconds to find how to split a list of many tensors
    foreach = None if groups[0][0].device.type == "cuda" else False
    squares = []
    for group in groups:
        norm = nn.utils.get_total_norm([p.grad for p in group if p.grad is not None], foreach=foreach)
        full = norm.full_tensor() if isinstance(norm, DTensor) else norm
        squares.append(full.square())
    total = torch.stack(squares).sum().sqrt()
    for group in groups:
        nn.utils.clip_grads_with_norm_(group, max_norm, total, foreach=foreach)
    return total


def mean_over_ranks(value: Tensor) -> float:
    """Mean of a scalar over all ranks; for a loss this is the mean over the global batch."""
    value = value.full_tensor() if isinstance(value, DTensor) else value.clone()
    dist.all_reduce(value)
    return value.item() / dist.get_world_size()
