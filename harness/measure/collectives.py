"""Every collective that a rank issues, whatever issues it: the wrappers' Python, DTensor, or C++ such as DDP's reducer.

All of them reach the dispatcher as ``c10d.*`` or ``_c10d_functional.*`` operators, so one dispatch mode sees them. A
mode holds for its thread and for what autograd runs on that thread's behalf: backward's operators are seen both on a
CPU, where they run in the calling thread, and on CUDA, whose engine threads take the mode over with the thread state.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, cast

import torch.distributed as dist
from torch import Tensor
from torch.distributed.distributed_c10d import _resolve_process_group
from torch.distributed.tensor import DTensor
from torch.utils._python_dispatch import TorchDispatchMode

from harness.traffic import Collective, Operation, StepPhase, merged

AxisOf = Callable[[tuple[int, ...]], str]

# Operator: what it is, the argument whose bytes count, whether these are one rank's part of the whole.
_OPERATORS: dict[str, tuple[Operation, int, bool]] = {
    "c10d::allreduce_": ("all_reduce", 0, False),
    "c10d::allreduce_coalesced_": ("all_reduce", 0, False),
    "c10d::broadcast_": ("broadcast", 0, False),
    "c10d::reduce_": ("reduce", 0, False),
    "c10d::allgather_": ("all_gather", 1, True),
    "c10d::_allgather_base_": ("all_gather", 1, True),
    "c10d::allgather_coalesced_": ("all_gather", 1, True),
    "c10d::allgather_into_tensor_coalesced_": ("all_gather", 1, True),
    "c10d::reduce_scatter_": ("reduce_scatter", 1, False),
    "c10d::_reduce_scatter_base_": ("reduce_scatter", 1, False),
    "c10d::reduce_scatter_tensor_coalesced_": ("reduce_scatter", 1, False),
    "c10d::gather_": ("gather", 1, True),
    "c10d::scatter_": ("scatter", 0, True),
    "c10d::alltoall_": ("all_to_all", 1, False),
    "c10d::alltoall_base_": ("all_to_all", 1, False),
    "c10d::send": ("send", 0, False),
    "_c10d_functional::all_reduce": ("all_reduce", 0, False),
    "_c10d_functional::all_reduce_": ("all_reduce", 0, False),
    "_c10d_functional::all_reduce_coalesced": ("all_reduce", 0, False),
    "_c10d_functional::all_reduce_coalesced_": ("all_reduce", 0, False),
    "_c10d_functional::broadcast": ("broadcast", 0, False),
    "_c10d_functional::broadcast_": ("broadcast", 0, False),
    "_c10d_functional::all_gather_into_tensor": ("all_gather", 0, True),
    "_c10d_functional::all_gather_into_tensor_out": ("all_gather", 0, True),
    "_c10d_functional::all_gather_into_tensor_coalesced": ("all_gather", 0, True),
    "_c10d_functional::reduce_scatter_tensor": ("reduce_scatter", 0, False),
    "_c10d_functional::reduce_scatter_tensor_out": ("reduce_scatter", 0, False),
    "_c10d_functional::reduce_scatter_tensor_coalesced": ("reduce_scatter", 0, False),
    "_c10d_functional::all_to_all_single": ("all_to_all", 0, False),
    "_c10d_functional::isend": ("send", 0, False),
}


class CollectiveCounter(TorchDispatchMode):
    """Counts this rank's collectives while it is entered; set ``phase`` as the step goes on.

    Works with any process group and any tensors, also fake ones. Groups of one rank move nothing and are left out.

    Args:
        axis_of: the axis of a group, from its members' ranks in the default process group, ascending;
            ``harness.traffic.axis_names`` makes one for a mesh.
    """

    def __init__(self, axis_of: AxisOf) -> None:
        super().__init__()
        self.phase: StepPhase = "forward"
        self._axis_of = axis_of
        self._seen: list[Collective] = []

    @property
    def collectives(self) -> tuple[Collective, ...]:
        """What was counted so far, equal ones merged."""
        return merged(self._seen)

    def clear(self) -> None:
        """Forget what was counted."""
        self._seen.clear()

    def set_phase(self, phase: StepPhase) -> None:
        """Say in which part of the step the next collectives fall."""
        self.phase = phase

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if DTensor in types:
            return NotImplemented  # DTensor's own dispatch comes first; its collectives on local tensors come back here
        known = _OPERATORS.get(func._schema.name)
        if known is not None:
            self._count(*known, args)
        return func(*args, **(kwargs or {}))

    def _count(self, operation: Operation, at: int, part: bool, args: tuple[Any, ...]) -> None:
        ranks = dist.get_process_group_ranks(_group(args))
        if len(ranks) == 1:
            return
        tensors = list(_tensors(args[at]))
        size = sum(tensor.numel() * tensor.element_size() for tensor in tensors)
        self._seen.append(
            Collective(
                operation=operation,
                axis=self._axis_of(tuple(sorted(ranks))),
                group_size=len(ranks),
                dtype=str(tensors[0].dtype).removeprefix("torch."),
                phase=self.phase,
                size_bytes=size * (len(ranks) if part else 1),
                count=1,
            )
        )


def _group(args: Iterable[Any]) -> dist.ProcessGroup:
    """The process group among an operator's arguments: the object itself, boxed, or its name (the last string)."""
    name = ""
    for arg in args:
        if isinstance(arg, dist.ProcessGroup):
            return arg
        if type(arg).__name__ == "ScriptObject" and "ProcessGroup" in str(arg._type()):
            return dist.ProcessGroup.unbox(arg)
        name = arg if isinstance(arg, str) else name
    return _resolve_process_group(cast(Any, name))


def _tensors(value: Any) -> Iterable[Tensor]:
    if isinstance(value, Tensor):
        yield value
    else:
        for each in value:
            yield from _tensors(each)
