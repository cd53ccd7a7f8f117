"""Run specs for tests on real ranks."""

from __future__ import annotations

from typing import Any

from harness.layout import Layout, parse_layout
from harness.layout.mesh import Mesh
from harness.spec import Ranks, RunSpec, Settings
from harness.workload import Workload, make_workload

REMOTE = "harness.train.remote"


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
