"""Peak memory of untimed steps and what it is made of: live tensors by kind, and on CUDA the allocator's word beside.

Every operator's results are seen by a dispatch mode, resizes by a patch, and modules and phases by hooks; what each
storage was for is decided in hindsight (``harness.measure.ledger``).
"""

from __future__ import annotations

import gc
import time
import weakref
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributed._functional_collectives import AsyncCollectiveTensor
from torch.distributed.fsdp import FullyShardedDataParallel
from torch.distributed.tensor import DTensor
from torch.nn.modules.module import register_module_forward_hook, register_module_forward_pre_hook
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from harness.measure.ledger import Ledger, Mark, Moment
from harness.memory_kinds import AllocatorStats, PeakMemory, RankMemory
from harness.traffic import StepPhase

COMMUNICATION: dict[str, Mark] = {
    "c10d": "communication_buffers",
    "_c10d_functional": "functional_communication",
}
# what fully_shard gathers into and scatters from; chunk_cat's first argument are whole gradients
COPY_IN = ("fsdp::all_gather_copy_in", "fsdp::chunk_cat")


WAIT = "_c10d_functional::wait_tensor"
LETTING_GO_S = 2e-3

NO_NUMBER = 2**62  # nodes that accumulate gradients have the largest number there is


class LiveTensors(TorchDispatchMode):
    """Books of all living tensor storages of one kind of device.

    Storages that exist at the start are found by the garbage collector; later ones when an operator returns them;
    resizing, by which sharding strategies free and refill unsharded parameters, is followed too.
    Buffers that C++ code holds without showing them to any operator (a gloo work buffer) are not seen.
    """

    def __init__(
        self, device_type: str, before_op: Callable[[], None] = lambda: None, local_type: type[Tensor] = Tensor
    ) -> None:
        super().__init__()
        self.ledger = Ledger()
        self._device_type, self._before_op, self._local_type = device_type, before_op, local_type
        self._gloo = device_type == "cpu" and local_type is Tensor
        self._names: dict[int, int] = {}
        self._finalizers: dict[int, weakref.finalize[Any, Any]] = {}
        for thing in gc.get_objects():
            # type() and not isinstance: lazy proxies import things when asked for their class
            if issubclass(type(thing), Tensor):
                self.see(thing)

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if DTensor in types:
            return NotImplemented
        self._before_op()
        result = func(*args, **(kwargs or {}))
        for leaf in tree_leaves(result):
            if isinstance(leaf, Tensor):
                self.see(leaf)
        mark = COMMUNICATION.get(func.namespace)
        if mark is not None or func.name().startswith(COPY_IN):
            self.mark(tree_leaves((args, kwargs, result)), mark or "communication_buffers")
        if func.name() == WAIT and self._gloo:
            # gloo's thread says that a collective is done and then lets go of its tensors; it often loses its core
            # between the two to the rank that it woke
            time.sleep(LETTING_GO_S)
        return result

    def __enter__(self) -> LiveTensors:
        self._resize = torch.UntypedStorage.resize_

        def resize(storage: torch.UntypedStorage, size: int) -> torch.UntypedStorage:
            self._resize(storage, size)
            # a fake tensor's storage says that it is on no device
            if storage._cdata in self._names or storage.device.type == self._device_type:
                self.ledger.mark(self._hold(storage), "unsharded_parameters")
            return storage

        setattr(torch.UntypedStorage, "resize_", resize)  # noqa: B010
        super().__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        super().__exit__(*error)
        setattr(torch.UntypedStorage, "resize_", self._resize)  # noqa: B010
        for finalizer in self._finalizers.values():
            finalizer.detach()

    def see(self, tensor: Tensor) -> int | None:
        """Book a tensor's storage; its name in the ledger, None where it has none on this device."""
        # wrappers name a storage as large as the wrapped tensor's, which no allocator has
        if isinstance(tensor, DTensor):
            return self.see(tensor._local_tensor)
        if isinstance(tensor, AsyncCollectiveTensor):
            return self.see(tensor.elem)
        if tensor.device.type != self._device_type or not isinstance(tensor, self._local_type):
            return None
        try:
            return self._hold(tensor.untyped_storage())
        except (NotImplementedError, RuntimeError):
            return None

    def mark(self, things: Iterable[object], mark: Mark) -> None:
        """Say what the storages of those things that are tensors are for."""
        for thing in things:
            name = self.see(thing) if isinstance(thing, Tensor) else None
            if name is not None:
                self.ledger.mark(name, mark)

    def _hold(self, storage: torch.UntypedStorage) -> int:
        key, size = storage._cdata, storage.nbytes()
        name = self._names.get(key)
        if name is None:
            self._finalizers[key] = weakref.finalize(storage, self._gone, key)
            name = self._names[key] = self.ledger.birth(size)
        else:
            self.ledger.resize(name, size)
        return name

    def _gone(self, key: int) -> None:
        del self._finalizers[key]
        self.ledger.death(self._names.pop(key))


class MemoryWatch:
    """Follows a model through its steps and, when the measured block has ended, says what memory was made of.

    Call ``watch`` once the model is built, then around each step ``begin``, ``at_phase`` and ``end``. Only tensors of
    ``local_type`` count, so that a trace's books are of fake ones alone.
    """

    def __init__(self, device: torch.device, local_type: type[Tensor] = Tensor) -> None:
        self.method = "live tensors" if device.type == "cpu" else "cuda allocator"
        self.rss: int | None = None
        self.rank_memory: RankMemory | None = None
        self._device = device
        self._live = LiveTensors(device.type, self._before_op, local_type)
        self._step: int | None = None
        self._step_began = self._rest = 0
        self._stack: list[tuple[str, int, int]] = []  # module, first storage, first autograd node
        self._owner: dict[int, str] = {}  # module by autograd node
        self._names: dict[int, str] = {}
        self._watched: set[int] = set()
        self._model: nn.Module | None = None
        self._optimizer: torch.optim.Optimizer | None = None
        self._handles: list[Any] = []
        self._forward_began = self._allocated_before = 0

    @property
    def peak_bytes(self) -> int:
        """Of the whole block."""
        assert self.rank_memory is not None
        return self.rank_memory.peak.peak_bytes

    @property
    def reserved(self) -> int | None:
        """Peak that the device's allocator took from the device."""
        allocator = self.rank_memory and self.rank_memory.allocator
        return allocator.reserved_bytes if allocator else None

    def watch(
        self, model: nn.Module, bare: nn.Module, optimizer: torch.optim.Optimizer, clean: Callable[[str], str]
    ) -> None:
        """Follow a built model. ``clean`` takes what wrappers add out of a module's name in ``bare``."""
        self._model, self._optimizer = model, optimizer
        self._names = {id(module): clean(name) for name, module in bare.named_modules()} | {id(model): ""}
        self._live.mark(model.parameters(), "parameters")
        for module in model.modules():
            handle = getattr(module, "_handle", None) if isinstance(module, FullyShardedDataParallel) else None
            if handle is not None:
                self._watch_gradient(handle.flat_param)
        self._handles += [
            register_module_forward_pre_hook(self._enter),
            register_module_forward_hook(self._leave, always_call=True),
        ]

    def begin(self, step: int) -> None:
        """Say that a step comes."""
        self._step = step
        self._owner.clear()
        self._at(None)
        self._step_began = self._live.ledger.position
        if self._device.type == "cuda":
            torch.cuda.synchronize(self._device)
            self._allocated_before = max(self._allocated_before, torch.cuda.max_memory_allocated(self._device))
            torch.cuda.reset_peak_memory_stats(self._device)

    def at_phase(self, phase: StepPhase) -> None:
        """Say which part of the step comes; a session's ``on_phase``."""
        if phase == "forward":
            self._forward_began = self._live.ledger.born_next
        elif phase == "backward":
            self._live.ledger.mark_survivors(self._forward_began, "activations")
        elif phase == "optimizer":
            assert self._model is not None
            parameters = list(self._model.parameters())
            self._live.mark(parameters, "parameters")
            self._live.mark([parameter.grad for parameter in parameters], "gradients")
        self._at(phase)

    def end(self) -> None:
        """Say that the step is over."""
        assert self._optimizer is not None
        self._live.mark(tree_leaves(list(self._optimizer.state.values())), "optimizer_state")
        self._rest = self._live.ledger.position
        self._at(None)

    def step_moments(self) -> Iterator[tuple[Moment, int]]:
        """Every stay at a moment of the last step, with the most bytes that lived there."""
        return self._live.ledger.moments(self._step_began, self._rest)

    @contextmanager
    def running(self) -> Iterator[None]:
        """The measured block."""
        reset_rss_peak()
        if self._device.type == "cuda":
            torch.cuda.reset_peak_memory_stats(self._device)
        try:
            with self._live:
                yield
        finally:
            for handle in self._handles:
                handle.remove()
            self._model = self._optimizer = None
        self.rss = rss_peak()
        ledger = self._live.ledger
        peak, step_peak = ledger.peak(), ledger.peak(self._step_began)
        allocator = None
        if self._device.type == "cuda":
            torch.cuda.synchronize(self._device)
            step_bytes = torch.cuda.max_memory_allocated(self._device)
            step_peak = with_rest(step_peak, step_bytes)
            peak = with_rest(peak, max(step_bytes, self._allocated_before))
            allocator = _allocator_stats(self._device, peak.peak_bytes)
        self.rank_memory = RankMemory(
            peak=peak,
            step_peak=step_peak,
            resting_bytes_by_kind=ledger.by_kind(self._rest),
            allocator=allocator,
        )

    def _at(self, phase: StepPhase | None, module: str | None = None) -> None:
        self._live.ledger.at(Moment(self._step, phase, module))

    @property
    def _phase(self) -> StepPhase | None:
        return self._live.ledger.now.phase

    def _before_op(self) -> None:
        """Before every operator of backward: see of which module its autograd node is."""
        if self._phase == "backward":
            node = torch._C._current_autograd_node()
            if node is not None:
                self._at("backward", self._module_of(node))

    def _module_of(self, node: Any) -> str | None:
        """The module whose forward made an autograd node; for one that accumulates a gradient, the last one."""
        if self._stack:
            return self._stack[-1][0]
        number = node._sequence_nr()
        return self._owner.get(number) if number < NO_NUMBER else self._live.ledger.now.module

    def _enter(self, module: nn.Module, _inputs: object) -> None:
        name = self._names.get(id(module))
        if name is None:
            return
        self._stack.append((name, self._live.ledger.born_next, torch._C._autograd._get_sequence_nr()))
        self._at(self._phase, name)
        for parameter in module._parameters.values():
            if parameter is not None:
                self._watch_gradient(parameter)

    def _leave(self, module: nn.Module, _inputs: object, _output: object) -> None:
        if id(module) not in self._names or not self._stack:
            return
        name, first, node = self._stack.pop()
        for number in range(node, torch._C._autograd._get_sequence_nr()):
            self._owner.setdefault(number, name)
        if not self._stack and self._phase == "backward":
            # a forward that backward repeats
            self._live.ledger.mark_survivors(first, "activations")
        self._at(self._phase, self._stack[-1][0] if self._stack else None)

    def _watch_gradient(self, parameter: Tensor) -> None:
        """Mark what backward puts into ``.grad`` of a leaf, also of one that a sharding strategy made for compute."""
        if id(parameter) in self._watched or not parameter.is_leaf or not parameter.requires_grad:
            return
        self._watched.add(id(parameter))
        self._handles.append(
            parameter.register_post_accumulate_grad_hook(lambda leaf: self._live.mark([leaf.grad], "gradients"))
        )


def with_rest(peak: PeakMemory, measured_bytes: int) -> PeakMemory:
    """The peak as the device's allocator saw it; what tensors do not explain (rounding, workspaces) is ``other``.

    Where the allocator saw less than the tensors' own sum, their sum stays.
    """
    rest = max(0, measured_bytes - peak.peak_bytes)
    by_kind = {**peak.bytes_by_kind, "other": peak.bytes_by_kind["other"] + rest}
    return peak.model_copy(update={"peak_bytes": peak.peak_bytes + rest, "bytes_by_kind": by_kind})


def _allocator_stats(device: torch.device, allocated_bytes: int) -> AllocatorStats:
    stats = torch.cuda.memory_stats(device)
    return AllocatorStats(
        allocated_bytes=allocated_bytes,
        # reserved memory seldom shrinks, so its peak over the last step is its peak over all
        reserved_bytes=torch.cuda.max_memory_reserved(device),
        inactive_split_bytes=stats.get("inactive_split_bytes.all.peak"),
        alloc_retries=stats.get("num_alloc_retries"),
    )


@contextmanager
def peak_memory(device: torch.device) -> Iterator[MemoryWatch]:
    """Measure the memory of the block; the watch has its results when the block has ended."""
    gc.collect()
    watch = MemoryWatch(device)
    with watch.running():
        yield watch


def reset_rss_peak() -> None:
    """Begin anew with the largest resident set, where /proc allows it."""
    try:
        Path("/proc/self/clear_refs").write_text("5")
    except OSError:
        return


def rss_peak() -> int | None:
    """Largest resident set since the last reset, bytes; None where /proc does not say."""
    try:
        lines = Path("/proc/self/status").read_text().splitlines()
    except OSError:
        return None
    values = [line.split()[1] for line in lines if line.startswith("VmHWM:")]
    return int(values[0]) * 1024 if values else None
