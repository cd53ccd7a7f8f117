"""Backends that carry nothing: the same step without its communication, on tensors of the same shapes.

``muted`` does nothing else; with ``waiting`` the ranks of a group still wait for each other at each collective.
"""

# No `from __future__ import annotations` here: DDP looks at the hook's annotations as objects.
from typing import Any

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import FakeProcessGroup, ProcessGroupGloo

MUTED, WAITING = "muted", "waiting"
COLLECTIVES = (
    "allreduce",
    "allreduce_coalesced",
    "allgather",
    "all_gather_single",
    "all_gather_single_coalesced",
    "reduce_scatter",
    "reduce_scatter_single",
    "reduce_scatter_single_coalesced",
    "broadcast",
)


def _create(common: Any, _options: Any) -> Any:
    return FakeProcessGroup._create_internal(common.group_rank, common.group_size)


class Waiting(dist.ProcessGroup):
    """A muted group on CPUs whose collectives each begin with an all-reduce of one number over gloo."""

    def __init__(self, common: Any) -> None:
        rank, size = common.group_rank, common.group_size
        super().__init__(rank, size)  # type: ignore[call-arg]  # the stub lacks this one
        self._size = size
        self._gloo: Any = ProcessGroupGloo(common.store, rank, size, common.timeout)
        self._token = torch.zeros(1)
        kind = dist.ProcessGroup.BackendType.CUSTOM
        self._muted = dist.ProcessGroup(common.store, rank, size)
        self._muted._set_default_backend(kind)
        self._muted._register_backend(torch.device("cpu"), kind, _create(common, None))

    def size(self) -> int:
        return self._size

    @property
    def group_name(self) -> Any:
        return dist.distributed_c10d._world.pg_names[self]

    def getBackendName(self) -> str:
        return WAITING

    def wait(self) -> None:
        """Until all ranks of the group are here."""
        self._gloo.allreduce([self._token]).wait()


def _after_waiting(name: str) -> Any:
    def collective(self: Waiting, *args: Any, **kwargs: Any) -> Any:
        self.wait()
        return getattr(self._muted, name)(*args, **kwargs)

    return collective


for _name in COLLECTIVES:
    setattr(Waiting, _name, _after_waiting(_name))


def register() -> None:
    """Make the backends known. Gathers repeat a rank's own part and reductions keep it, so that values stay finite."""
    if MUTED not in dist.Backend.backend_list:
        dist.Backend.register_backend(MUTED, _create, extended_api=True, devices=["cpu", "cuda"])
        dist.Backend.register_backend(WAITING, lambda common, _: Waiting(common), extended_api=True, devices=["cpu"])


def keep_gradients(_state: object, bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:
    """DDP's hook in the place of its all-reduce, whose C++ does not take this backend's answer."""
    future: torch.futures.Future[torch.Tensor] = torch.futures.Future()
    future.set_result(bucket.buffer())
    return future
