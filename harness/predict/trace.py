"""One training step traced on one process: the layout's real code, a fake process group, fake tensors.

The process is rank 0 of a group as large as the world in which nothing is sent, and no tensor has memory; so the
collectives and the bytes that the code asks for are counted at any model and world size, on a laptop. This module and
its ``fakes`` are all of the planning side that imports torch; whoever wants a trace imports it then.

Only three and four blocks are traced, side by side: all blocks are alike but for those at the ends, so what a step does
grows with each further one by the same amount. So does memory at each moment; the peak is the largest of them
(``harness.predict.traced_memory``). Tests trace more blocks as well.
"""

from __future__ import annotations

import gc
from collections.abc import Iterable
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack
from functools import lru_cache
from multiprocessing import get_context

import torch
import torch._dynamo  # DTensor does so at its first operator; once here and not in every process that traces
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.distributed.fsdp import FSDPModule
from torch.distributed.tensor import DTensor
from torch.nn.parallel import DistributedDataParallel

from harness.base import Frozen
from harness.errors import UsageError
from harness.layout import Layout
from harness.measure.collectives import CollectiveCounter
from harness.measure.memory import MemoryWatch
from harness.predict.fakes import (
    FakeFloats,
    all_reduce_bucket,
    chunks_on_demand,
    fake_buckets,
    fake_context,
    fake_group,
    quiet_torch,
)
from harness.predict.traced_memory import LEAST_BLOCKS, TracedMoment, extend_moments, peak_of
from harness.spec import Ranks, RunSpec, Settings
from harness.traffic import Collective, StepPhase, axis_names, merged
from harness.train.session import Session
from harness.train.weights import clean_name
from harness.workload import Workload

SHORT, LONG = LEAST_BLOCKS, LEAST_BLOCKS + 1  # blocks that are traced
UNTRACED = {
    "fsdp1": "its wrapper cuts real tensors",
    "fsdp1_hybrid": "its wrapper cuts real tensors",
}


class Trace(Frozen):
    """What one step of a layout does on its first rank.

    Attributes:
        collectives: as in ``harness.traffic``.
        parameters_bytes, gradients_bytes, optimizer_bytes: of the rank's shards, after a step.
        moments: bytes that live on the rank at the moments of a step, as a CPU's verify run measures them. Empty where
            they do not follow for more blocks.
    """

    collectives: tuple[Collective, ...]
    parameters_bytes: int
    gradients_bytes: int
    optimizer_bytes: int
    moments: tuple[TracedMoment, ...] = ()

    @property
    def peak(self) -> TracedMoment | None:
        """The fullest moment; None where moments are not known."""
        return peak_of(self.moments) if self.moments else None


def trace(layout: Layout, workload: Workload) -> Trace:
    """Trace a step with as few blocks as are needed and extend it to all of them.

    Raises:
        UsageError: the layout cannot be traced, or what it does is not linear in the number of blocks.
    """
    layers = workload.model.n_layers
    if layers <= LONG:
        return trace_blocks(layout, workload, layers)[0]
    short, long = trace_blocks(layout, workload, SHORT, LONG)
    return extend(short, long, layers)


def trace_blocks(layout: Layout, workload: Workload, *blocks: int) -> tuple[Trace, ...]:
    """Trace a step of models with these many blocks each, at the same time.

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
    specs = [_spec(layout, workload, count) for count in blocks]

    with ExitStack() as stack:
        # each in a process of its own, since torch caches what knows the groups of an earlier trace
        context = get_context("fork")
        apart = [stack.enter_context(ProcessPoolExecutor(1, mp_context=context)) for _ in specs]
        running = [one.submit(_trace_apart, spec) for one, spec in zip(apart, specs, strict=True)]
        return tuple(one.result() for one in running)


def _spec(layout: Layout, workload: Workload, blocks: int) -> RunSpec:
    shape = workload.model.model_copy(update={"n_layers": blocks})
    return RunSpec(
        layout=layout,
        workload=workload.model_copy(update={"model": shape}),
        ranks=Ranks(device="cpu", per_node=(layout.mesh.world_size,)),
        settings=Settings(),
        purpose="verify",
    )


def _trace_apart(spec: RunSpec) -> Trace:
    gc.freeze()  # what was imported, which collections need not look at
    with fake_group(spec.layout.mesh.world_size), quiet_torch(), chunks_on_demand():
        return _trace_step(spec)


def _trace_step(spec: RunSpec) -> Trace:
    fake = FakeTensorMode(allow_non_fake_inputs=True)
    with fake_buckets(fake):
        session = Session(spec, torch.device("cpu"), "adamw", context_type=fake_context(fake))
    if isinstance(session.model, DistributedDataParallel):
        # not the function itself: torch looks at a hook's annotations, and refuses those that are not evaluated
        session.model.register_comm_hook(None, lambda _state, bucket: all_reduce_bucket(bucket))
    parts = _optimize_parts(session) if isinstance(session.model, FSDPModule) else []
    with fake:
        batch = _batch(spec)
    _settle(session, batch, fake)
    counter = CollectiveCounter(lru_cache(axis_names(spec.layout.mesh, spec.layout.options.order)))
    # a fake number has a real one beside it, which is nobody's memory
    watch = MemoryWatch(session.device, FakeTensor)
    watch.watch(session.model, session.bare, session.optimizer, clean_name)

    def at_phase(phase: StepPhase) -> None:
        counter.set_phase(phase)
        watch.at_phase(phase)
        if phase == "optimizer":
            for parameter, part in parts:
                assert parameter.grad is not None
                part.grad = _local(parameter.grad)

    session.on_phase = at_phase
    with fake, watch.running(), counter:
        watch.begin(1)
        session.step(batch, spec.settings.max_grad_norm)
        watch.end()
    parameters = list(session.model.parameters())
    states = [v for state in session.optimizer.state.values() for v in state.values() if isinstance(v, Tensor)]
    found = Trace(
        collectives=counter.collectives,
        parameters_bytes=_local_bytes(parameters),
        gradients_bytes=_local_bytes(p.grad for p in parameters if p.grad is not None),
        optimizer_bytes=_local_bytes(states),
        moments=tuple(
            TracedMoment(phase=moment.phase, module=moment.module, peak_bytes=peak_bytes)
            for moment, peak_bytes in watch.step_moments()
            if moment.phase is not None
        ),
    )
    session.close()
    return found


def _optimize_parts(session: Session) -> list[tuple[Tensor, Tensor]]:
    """Give the optimizer the rank's own parts instead of parameters; returns both.

    fully_shard leaves gradients placed as their parameters are, and AdamW works element by element: on DTensors it does
    the same to the parts, once DTensor has found, in half a second, that it needs no communication.
    """
    found: list[tuple[Tensor, Tensor]] = []
    for group in session.optimizer.param_groups:
        parts = [_local(parameter) for parameter in group["params"]]
        found += zip(group["params"], parts, strict=True)
        group["params"] = parts
    return found


def _settle(session: Session, batch: tuple[Tensor, Tensor], fake: FakeTensorMode) -> None:
    """What lies behind a steady step: the optimizer's states, which its first step makes of zeros; DDP's buckets."""
    if not isinstance(session.model, DistributedDataParallel):
        with fake:
            for group in session.optimizer.param_groups:
                for parameter in group["params"]:  # those without a gradient get no state
                    parameter.grad = torch.empty_like(parameter)
                session.optimizer._init_group(group, [], [], [], [], [], [])  # type: ignore[attr-defined]
        return
    for _ in range(2):  # buckets are laid out anew after the first step, and hold gradients after the second
        with fake:
            session.step(batch, session.spec.settings.max_grad_norm)
        with FakeFloats(fake):
            session.model.reducer._rebuild_buckets()


def _batch(spec: RunSpec) -> tuple[Tensor, Tensor]:
    """Inputs and targets of one rank, (local batch, seq_len) each; no tokens are drawn."""
    count = spec.workload.global_batch // spec.layout.mesh.dp
    shape = (count, spec.workload.seq_len)
    return torch.zeros(shape, dtype=torch.int64), torch.zeros(shape, dtype=torch.int64)


def _local(tensor: Tensor) -> Tensor:
    """The rank's own part."""
    return tensor._local_tensor if isinstance(tensor, DTensor) else tensor


def _local_bytes(tensors: Iterable[Tensor]) -> int:
    return sum(local.numel() * local.element_size() for local in map(_local, tensors))


def extend(short: Trace, long: Trace, layers: int) -> Trace:
    """What a step with ``layers`` blocks does, from traces with SHORT and LONG: each further block adds the same.

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
        moments=extend_moments(short.moments, long.moments, LONG, layers) or (),
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
