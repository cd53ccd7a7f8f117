"""On ranks: steps through the harness and of the bare loop, alternated in one process group."""

from __future__ import annotations

from benchmarks.bare_loop import BareLoop
from harness.measure.clock import slowest
from harness.spec import RunSpec
from harness.train.remote import device
from harness.train.timing import Lane

WARMUP_STEPS = 10


class Nobody:
    """Keeps no samples."""

    def sample(self, kind: str, run: int, **values: object) -> None: ...
    def at(self, run: int, phase: str) -> None: ...


def alternate(spec: RunSpec, cycles: int) -> list[tuple[float, float]]:
    """Slowest ranks' seconds of ``cycles`` pairs of steps (through the harness, bare). Who is first alternates."""
    lane, bare = Lane(0, spec, device(), Nobody()), BareLoop(spec.layout.strategy)
    pairs = []
    for cycle in range(-WARMUP_STEPS, cycles):
        if cycle % 2:
            ours, theirs = lane.step_s("timing"), bare.step()
        else:
            theirs, ours = bare.step(), lane.step_s("timing")
        if cycle >= 0:
            pairs.append((slowest(ours), slowest(theirs)))
    lane.session.close()
    return pairs
