"""What stands in for ranks and memory where a step is traced: a fake group, fake storage and buckets, fewer chunks."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.distributed.fsdp._fully_shard import _fsdp_param
from torch.testing._internal.distributed.fake_pg import FakeStore
from torch.utils._python_dispatch import TorchDispatchMode

from harness.train.parallel import Context
from harness.train.weights import allocate


class FakeFloats(TorchDispatchMode):
    """Makes floating-point tensors fake and leaves others real, for DDP's C++ code, which reads numbers of buckets."""

    def __init__(self, fake: FakeTensorMode) -> None:
        super().__init__()
        self._fake = fake

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        dtype = (kwargs or {}).get("dtype")
        fakes = FakeTensor in types or (dtype is not None and dtype.is_floating_point)
        with self._fake if fakes else nullcontext():
            return func(*args, **(kwargs or {}))


@contextmanager
def fake_buckets(fake: FakeTensorMode) -> Iterator[None]:
    """DDP's reducer makes buckets as large as all gradients as soon as it is made."""
    real = dist.Reducer

    def reducer(*args: Any, **kwargs: Any) -> dist.Reducer:
        with FakeFloats(fake):
            return real(*args, **kwargs)

    setattr(dist, "Reducer", reducer)  # noqa: B010
    try:
        yield
    finally:
        setattr(dist, "Reducer", real)  # noqa: B010


def fake_context(fake: FakeTensorMode) -> type[Context]:
    """What strategies are given instead of the usual context."""

    class FakeContext(Context):
        """Gives a model fake storage and no weights. Strategies themselves run outside the mode, on meta tensors."""

        def materialise(self, model: nn.Module) -> None:
            with fake:
                allocate(model, self.device)

    return FakeContext


def all_reduce_bucket(bucket: dist.GradBucket) -> torch.futures.Future[Tensor]:
    """What DDP does by itself; a fake group's own future holds no result."""
    dist.all_reduce(bucket.buffer())
    done: torch.futures.Future[Tensor] = torch.futures.Future()
    done.set_result(bucket.buffer())
    return done


class Chunks:
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
def chunks_on_demand() -> Iterator[None]:
    """fully_shard makes as many chunks of each parameter as there are ranks and looks at two of them.

    Among 16,384 ranks that takes most of a minute, so here only those are made.
    """
    real = _fsdp_param._chunk_with_empty
    setattr(_fsdp_param, "_chunk_with_empty", Chunks)  # noqa: B010
    try:
        yield
    finally:
        setattr(_fsdp_param, "_chunk_with_empty", real)  # noqa: B010


@contextmanager
def fake_group(world_size: int) -> Iterator[None]:
    """This process as rank 0 of a default group in which nothing is sent."""
    dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=world_size)
    try:
        yield
    finally:
        dist.destroy_process_group()


@contextmanager
def quiet_torch() -> Iterator[None]:
    """Keep torch from advising on what is only traced."""
    logger = logging.getLogger("torch.distributed.tensor._redistribute")
    before = logger.level
    logger.setLevel(logging.ERROR)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield
    logger.setLevel(before)
