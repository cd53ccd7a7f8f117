"""Steps that are counted and not timed for the ranking: every collective, and what network ports moved meanwhile."""

from __future__ import annotations

import os
import platform
from collections.abc import Callable
from typing import NamedTuple

import torch.distributed as dist

from harness.measure.clock import slowest, timed
from harness.measure.collectives import CollectiveCounter
from harness.measure.ports import moved_between, read_ports
from harness.traffic import Collective, Port, axis_names
from harness.train.session import Session

SETTLE_STEPS = 1  # with the memory's steps before: DDP has laid its buckets out anew by then
COUNTED_STEPS = 2
ACCOUNTING_STEPS = SETTLE_STEPS + 2 * COUNTED_STEPS


class Counted(NamedTuple):
    """What one rank saw. ``ports`` is of its host, and given by one rank of each host only."""

    collectives: tuple[Collective, ...]
    ports: tuple[Port, ...]
    plain_step_s: tuple[float, ...]
    counted_step_s: tuple[float, ...]


def count_steps(session: Session, first_step: int) -> Counted:
    """Train on from ``first_step`` (the third of the session or later) and count; on every rank.

    Ports are read by the first rank of each host while all ranks wait, before and after the counted steps.
    """
    steps = iter(range(first_step, first_step + ACCOUNTING_STEPS))

    def plain_step() -> None:
        session.step(session.batch(next(steps)), session.spec.settings.max_grad_norm)

    for _ in range(SETTLE_STEPS):
        plain_step()
    plain = tuple(_seconds(session, plain_step) for _ in range(COUNTED_STEPS))
    reads = os.environ.get("LOCAL_RANK", "0") == "0"
    dist.barrier()
    before = read_ports() if reads else {}
    dist.barrier()
    counter = counter_for(session)
    seconds = tuple(_seconds(session, lambda: count_step(session, next(steps), counter)) for _ in range(COUNTED_STEPS))
    dist.barrier()
    host = os.environ.get("SLURMD_NODENAME") or platform.node()
    ports = moved_between(host, before, read_ports()) if reads else ()
    dist.barrier()
    return Counted(counter.collectives, ports, plain, seconds)


def counter_for(session: Session) -> CollectiveCounter:
    """A counter that names groups by the axes of the session's mesh."""
    return CollectiveCounter(axis_names(session.spec.layout.mesh, session.spec.layout.options.order))


def count_step(session: Session, number: int, counter: CollectiveCounter) -> None:
    """One step; the counter then holds its collectives and no others."""
    counter.clear()
    before, session.on_phase = session.on_phase, counter.set_phase
    with counter:
        session.step(session.batch(number), session.spec.settings.max_grad_norm)
    session.on_phase = before


def _seconds(session: Session, work: Callable[[], object]) -> float:
    """The slowest rank's time of one step, the making of its batch included."""
    return slowest(timed(work, session.device))
