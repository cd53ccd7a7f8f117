"""One training step traced on one process: the layout's real code, a fake process group, fake tensors.

The process is rank 0 of a group as large as the world in which nothing is sent, and no tensor has memory; so the
collectives and the bytes that the code asks for are counted at any model and world size, on a laptop. This is the one
module of the planning side that imports torch; whoever wants a trace imports it then.

Only two and three blocks are traced: all blocks are alike, so what a step does grows with each further one by the same
amount, from the second block on (the first differs: nothing is prefetched before it). A test traces four as well.
Peak memory is not among it: the moment of the peak can move as blocks are added.
"""

from __future__ import annotations

import logging
import warnings
from collections.abc import Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from functools import lru_cache
from multiprocessing import get_context

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.distributed.fsdp._fully_shard import _fsdp_param
from torch.distributed.tensor import DTensor
from torch.nn.parallel import DistributedDataParallel
from torch.testing._internal.distributed.fake_pg import FakeStore

from harness.base import Frozen
from harness.errors import UsageError
from harness.layout import Layout
from harness.measure.collectives import CollectiveCounter
from harness.spec import Ranks, RunSpec, Settings
from harness.traffic import Collective, axis_names, merged
from harness.train.parallel import Context
from harness.train.session import Session
from harness.train.weights import allocate
from harness.workload import Workload

SHORT, LONG = 2, 3  # blocks that are traced
UNTRACED = {
    "fsdp1": "its wrapper cuts real tensors",
    "fsdp1_hybrid": "its wrapper cuts real tensors",
}


class Trace(Frozen):
    """What one step of a layout does on its first rank.

    Attributes:
        collectives: as in ``harness.traffic``.
        parameters_bytes, gradients_bytes, optimizer_bytes: of the rank's shards, after a step.
    """

    collectives: tuple[Collective, ...]
    parameters_bytes: int
    gradients_bytes: int
    optimizer_bytes: int


def trace(layout: Layout, workload: Workload) -> Trace:
    """Trace a step with as few blocks as are needed and extend it to all of them.

    Raises:
        UsageError: the layout cannot be traced, or what it does is not linear in the number of blocks.
    """
    layers = workload.model.n_layers
    if layers <= LONG:
        return trace_blocks(layout, workload, layers)
    return extend(trace_blocks(layout, workload, SHORT), trace_blocks(layout, workload, LONG), layers)


def trace_blocks(layout: Layout, workload: Workload, blocks: int) -> Trace:
    """Trace a step of the model with this many blocks.

    Raises:
        UsageError: the layout cannot be traced.
    """
    if (why := UNTRACED.get(layout.strategy)) is not None:
        raise UsageError(f"{layout.text} cannot be traced: {why}; measure it with 'meshsweep run', or trace fsdp, hsdp")
    if workload.model_path is not None:
        raise UsageError(f"{workload.model_path} cannot be traced with fewer blocks; name a preset with --model")
    if layout.options.compile:
        raise UsageError(
            f"{layout.text} cannot be traced compiled; trace it without compile: its collectives are equal"
        )
    shape = workload.model.model_copy(update={"n_layers": blocks})
    spec = RunSpec(
        layout=layout,
        workload=workload.model_copy(update={"model": shape}),
        ranks=Ranks(device="cpu", per_node=(layout.mesh.world_size,)),
        settings=Settings(),
        purpose="verify",
    )
    # in a process of its own, since torch caches what knows the groups of an earlier trace
    with ProcessPoolExecutor(1, mp_context=get_context("fork")) as apart:
        return apart.submit(_trace_apart, spec).result()


def _trace_apart(spec: RunSpec) -> Trace:
    with _fake_group(spec.layout.mesh.world_size), _quiet(), _chunks_on_demand():
        return _trace_step(spec)


def _trace_step(spec: RunSpec) -> Trace:
    fake = FakeTensorMode(allow_non_fake_inputs=True)
    session = Session(spec, torch.device("cpu"), "adamw", context_type=_fake_context(fake))
    if isinstance(session.model, DistributedDataParallel):
        # not the function itself: torch looks at a hook's annotations, and refuses those that are not evaluated
        session.model.register_comm_hook(None, lambda _state, bucket: _all_reduce_bucket(bucket))
    with fake:
        batch = _batch(spec)
        session.step(batch, spec.settings.max_grad_norm)  # makes optimizer states
    if isinstance(session.model, DistributedDataParallel):
        session.model.reducer._rebuild_buckets()  # which reads indices, and so must not do it among fake tensors
    counter = CollectiveCounter(lru_cache(axis_names(spec.layout.mesh, spec.layout.options.order)))
    with fake:
        session.on_phase = counter.set_phase
        with counter:
            session.step(batch, spec.settings.max_grad_norm)
    parameters = list(session.model.parameters())
    states = [value for state in session.optimizer.state.values() for value in state.values()]
    found = Trace(
        collectives=counter.collectives,
        parameters_bytes=_local_bytes(parameters),
        gradients_bytes=_local_bytes(p.grad for p in parameters if p.grad is not None),
        optimizer_bytes=_local_bytes(states),
    )
    session.close()
    return found


def _fake_context(fake: FakeTensorMode) -> type[Context]:
    class FakeContext(Context):
        """Gives a model fake storage and no weights. Strategies themselves run outside the mode, on meta tensors."""

        def materialise(self, model: nn.Module) -> None:
            with fake:
                allocate(model, self.device)

    return FakeContext


def _all_reduce_bucket(bucket: dist.GradBucket) -> torch.futures.Future[Tensor]:
    """What DDP does by itself; a fake group's own future holds no result."""
    dist.all_reduce(bucket.buffer())
    done: torch.futures.Future[Tensor] = torch.futures.Future()
    done.set_result(bucket.buffer())
    return done


class _Chunks:
    """The chunks of a tensor as fully_shard cuts it, each made when it is asked for."""

    def __init__(self, tensor: Tensor, num_chunks: int, dim: int) -> None:
        self._tensor, self._dim = tensor, dim
        self._size = -(-tensor.size(dim) // num_chunks)

    def __getitem__(self, index: int) -> Tensor:
        start, end = index * self._size, self._tensor.size(self._dim)
        if start >= end:
            return self._tensor.new_empty(0)
        return self._tensor.narrow(self._dim, start, min(self._size, end - start))


@contextmanager
def _chunks_on_demand() -> Iterator[None]:
    """fully_shard makes as many chunks of each parameter as there are ranks and looks at two of them.

    Among 16,384 ranks that takes most of a minute, so here only those are made.
    """
    real = _fsdp_param._chunk_with_empty
    setattr(_fsdp_param, "_chunk_with_empty", _Chunks)  # noqa: B010
    try:
        yield
    finally:
        setattr(_fsdp_param, "_chunk_with_empty", real)  # noqa: B010


def _batch(spec: RunSpec) -> tuple[Tensor, Tensor]:
    """Inputs and targets of one rank, (local batch, seq_len) each; no tokens are drawn."""
    count = spec.workload.global_batch // spec.layout.mesh.dp
    shape = (count, spec.workload.seq_len)
    return torch.zeros(shape, dtype=torch.int64), torch.zeros(shape, dtype=torch.int64)


def _local_bytes(tensors: Iterable[Tensor]) -> int:
    local = [x.to_local() if isinstance(x, DTensor) else x for x in tensors if isinstance(x, Tensor)]
    return sum(x.numel() * x.element_size() for x in local)


@contextmanager
def _fake_group(world_size: int) -> Iterator[None]:
    dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=world_size)
    try:
        yield
    finally:
        dist.destroy_process_group()


@contextmanager
def _quiet() -> Iterator[None]:
    """Keep torch from advising on what is only traced."""
    logger = logging.getLogger("torch.distributed.tensor._redistribute")
    before = logger.level
    logger.setLevel(logging.ERROR)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield
    logger.setLevel(before)


def extend(short: Trace, long: Trace, layers: int) -> Trace:
    """What a step with ``layers`` blocks does, from traces with 2 and 3: each further block adds the same.

    Raises:
        UsageError: the two traces differ in more than counts and sizes, so nothing follows for more blocks.
    """
    more = layers - LONG

    def along(a: int, b: int) -> int:
        return b + more * (b - a)

    return Trace(
        collectives=_extend_collectives(short.collectives, long.collectives, more),
        **{
            name: along(getattr(short, name), getattr(long, name))
            for name in ("parameters_bytes", "gradients_bytes", "optimizer_bytes")
        },
    )


def _extend_collectives(
    short: tuple[Collective, ...], long: tuple[Collective, ...], more: int
) -> tuple[Collective, ...]:
    """Counts of equal collectives grow linearly, and so does the size of those that occur in one trace alone.

    Clipping reduces one number a parameter, so there it is always the size that grows.
    """
    before, after = ({_key(c): c for c in found if c.phase != "clipping"} for found in (short, long))
    found = [
        c.model_copy(update={"count": c.count + more * (c.count - before[key].count)})
        for key, c in after.items()
        if key in before
    ]
    shrunk = sorted((c for c in short if _key(c) not in after), key=_key)
    grown = sorted((c for c in long if _key(c) not in before), key=_key)
    if [_kind(c) for c in grown] != [_kind(c) for c in shrunk]:
        raise UsageError(
            f"the collectives of {LONG} blocks do not follow from those of {SHORT}: {shrunk} became {grown}; "
            "measure this layout with 'meshsweep run'"
        )
    found += [
        b.model_copy(update={"size_bytes": b.size_bytes + more * (b.size_bytes - a.size_bytes)})
        for a, b in zip(shrunk, grown, strict=True)
    ]
    return merged(found)


def _key(one: Collective) -> tuple[str, str, str, str, int, int]:
    return (one.phase, one.axis, one.operation, one.dtype, one.group_size, one.size_bytes)


def _kind(one: Collective) -> tuple[object, ...]:
    return (*_key(one)[:-1], one.count)
