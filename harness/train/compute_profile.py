"""Times the steps of every layout without communication, for predictions of step time."""

from __future__ import annotations

import time
import traceback
from typing import NamedTuple

import psutil
import torch
import torch.distributed as dist

from harness.layout import Layout, get_strategy
from harness.measure.clock import slowest, synchronise
from harness.predict.memory import predict_memory
from harness.spec import RunSpec
from harness.traffic import StepPhase
from harness.train import muted
from harness.train.session import Session

WARMUP_STEPS = 3
STEPS = 8
LONGEST_S = 20.0  # of one layout's steps; fewer are made where they take longer
SHARE_OF_MEMORY = 0.5


class RankProfile(NamedTuple):
    """One rank's times of each step, seconds. ``waits``: as in ``harness.compute_profile``."""

    waits: bool
    forward_s: tuple[float, ...]
    backward_s: tuple[float, ...]
    optimizer_s: tuple[float, ...]


def profile_compute(spec: RunSpec, layout: Layout, device: torch.device) -> tuple[RankProfile, ...]:
    """Steps of one layout whose collectives carry nothing, all ranks at once.

    On CPUs once more with ranks that wait for each other at each collective, as those that share cores do for long. Not
    of DDP: its all-reduces go on beside backward.

    Empty, on all ranks alike, where its model does not fit or cannot be trained without its communication.
    """
    own = spec.model_copy(update={"layout": layout})
    if not _fits(own, device):
        return ()
    muted.register()
    stand_ins = [muted.MUTED]
    if device.type == "cpu" and layout.strategy != "ddp":
        stand_ins.append(muted.WAITING)
    found = [_profile_with(stand_in, own, device) for stand_in in stand_ins]
    return tuple(one for one in found if one is not None)


def _profile_with(stand_in: str, spec: RunSpec, device: torch.device) -> RankProfile | None:
    """A session whose groups are of the backend ``stand_in``; None on all ranks if one of them fails."""
    session, problem = None, False
    try:
        axes = get_strategy(spec.layout.strategy).axes
        session = Session(spec, device, "adamw", muted=axes, stand_in=stand_in)
        session.step(session.batch(0), spec.settings.max_grad_norm)
    except Exception:
        traceback.print_exc()
        problem = True
    found = None if slowest(float(problem)) or session is None else _profile(session, stand_in == muted.WAITING)
    if session is not None:
        session.close()
    return found


def _profile(session: Session, waits: bool) -> RankProfile:
    warm_s = [slowest(sum(_step(session, number))) for number in range(1, 1 + WARMUP_STEPS)]
    steps = max(1, min(STEPS, int(LONGEST_S / warm_s[-1])))
    return RankProfile(
        waits, *zip(*(_step(session, 1 + WARMUP_STEPS + number) for number in range(steps)), strict=True)
    )


def _step(session: Session, number: int) -> tuple[float, float, float]:
    """Seconds of forward, of backward, and of clipping and optimizer, from a common start."""
    batch = session.batch(number)
    began: dict[StepPhase, float] = {}

    def at_phase(phase: StepPhase) -> None:
        synchronise(session.device)
        began[phase] = time.perf_counter()

    session.on_phase = at_phase
    dist.barrier()
    synchronise(session.device)
    session.step(batch, session.spec.settings.max_grad_norm)
    synchronise(session.device)
    end = time.perf_counter()
    return (began["backward"] - began["forward"], began["clipping"] - began["backward"], end - began["clipping"])


def _fits(spec: RunSpec, device: torch.device) -> bool:
    """Whether the layout's model is known to fit on every rank of every host."""
    workload = spec.workload.model_copy(update={"model_path": None})
    kernels = "cpu" if device.type == "cpu" else "cuda"
    needed = predict_memory(spec.layout, workload, kernels=kernels).peak_bytes  # type: ignore[arg-type]
    if device.type == "cpu":
        room = SHARE_OF_MEMORY * psutil.virtual_memory().available / max(spec.ranks.per_node)
    else:
        room = torch.cuda.mem_get_info(device)[0]
    return not slowest(float(needed > room))
