"""Run specs for tests on real ranks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from harness.layout import Layout, parse_layout
from harness.layout.mesh import Mesh
from harness.spec import Ranks, RunSpec, Settings
from harness.workload import Workload, make_workload

REMOTE = "harness.train.remote"

T = TypeVar("T")


def layout(text: str) -> Layout:
    request = parse_layout(text)
    return Layout(strategy=request.strategy, mesh=request.mesh or Mesh(), options=request.options)


def make_spec(text: str, workload: Workload | None = None, **settings: Any) -> RunSpec:
    """A verify run of ``text`` on the ``tiny`` model."""
    chosen = layout(text)
    return RunSpec(
        layout=chosen,
        workload=workload or make_workload("tiny", 8, 32),
        ranks=Ranks(device="cpu", per_node=(chosen.mesh.world_size,)),
        settings=Settings(**settings),
        purpose="verify",
    )


def retaken(take: Callable[[], T], fits: Callable[[T], bool]) -> T:
    """A measurement of memory, the first of up to three that fits, else the last.

    A gloo thread that loses its core between finishing a collective and letting go of it keeps the collective's tensors
    into the operators that follow. With more ranks than cores that happens in one of some hundred sessions.
    """
    for _ in range(2):
        if fits(found := take()):
            return found
    return take()
