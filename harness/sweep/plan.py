"""Make a sweep's plan from what was asked for and what is here."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Literal

from harness.layout import Layout, LayoutRequest, Mesh
from harness.layout.candidates import candidates
from harness.spec import Design, Pruned, Ranks, Settings, SweepPlan
from harness.topology.model import Topology
from harness.workload import Workload


def make_plan(
    *,
    topology: Topology,
    ranks: Ranks,
    workload: Workload,
    requests: Sequence[LayoutRequest],
    settings: Settings,
    seed: int = 0,
    design: Design | Literal["auto"] = "auto",
    name: str | None = None,
    command: Sequence[str] = (),
) -> SweepPlan:
    """A plan of every candidate, those that will run and those that will not.

    Raises:
        UsageError: a request is illegal, or none leaves a legal layout.
    """
    found = candidates(requests, workload, ranks.world_size)
    now = datetime.now(UTC)
    return SweepPlan(
        name=name or f"{now:%Y%m%d-%H%M%S}-{workload.model.name}-w{ranks.world_size}",
        created_at=now.isoformat(timespec="seconds"),
        command=shlex.join(command),
        topology=topology,
        workload=workload,
        ranks=ranks,
        settings=settings,
        seed=seed,
        design=design,
        reference=Layout(strategy="single", mesh=Mesh()),
        layouts=found.layouts,
        pruned=tuple(Pruned(layout=e.layout, rule=e.rule, reason=e.reason) for e in found.excluded),
    )
