"""Make a sweep's plan from what was asked for and what is here."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Literal

from harness.errors import UsageError
from harness.layout import Layout, LayoutRequest, Mesh
from harness.layout.candidates import candidates
from harness.mesh.contract import MeshContract
from harness.record import RunRecord
from harness.spec import Design, Pruned, Ranks, Settings, SweepPlan, make_race
from harness.sweep.prune import prune
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
    race: bool = False,
    memory_prune: bool = False,
    earlier: Sequence[RunRecord] = (),
    name: str | None = None,
    command: Sequence[str] = (),
    allow_cross_node_tp: bool = False,
    contract: MeshContract | None = None,
    env: Mapping[str, str] | None = None,
) -> SweepPlan:
    """A plan of every candidate on exactly the devices of ``topology``, those that will run and those that will not.

    ``race``: stop plainly slower layouts early, if the settings have rounds enough. ``memory_prune``: leave out what
    cannot fit, by prediction or by ``earlier`` runs that ran out of memory.

    Raises:
        UsageError: a request is illegal, none leaves a legal layout, none has the contract's mesh, or none fits.
    """
    found = candidates(requests, workload, ranks.world_size, topology, allow_cross_node_tp=allow_cross_node_tp)
    layouts, pruned = found.layouts, [Pruned(layout=e.layout, rule=e.rule, reason=e.reason) for e in found.excluded]
    if contract is not None:
        layouts, others = _of_contract(layouts, contract)
        pruned += others
    if memory_prune:
        layouts, too_big = prune(layouts, workload, ranks, topology, earlier)
        if not layouts:
            raise UsageError(f"no layout fits: {too_big[0].layout.text}: {too_big[0].reason}")
        pruned += too_big
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
        race=make_race(settings) if race and len(layouts) > 1 else None,
        reference=Layout(strategy="single", mesh=Mesh()),
        layouts=layouts,
        pruned=tuple(pruned),
        contract=contract,
        env=dict(env or {}),
    )


def _of_contract(layouts: Sequence[Layout], contract: MeshContract) -> tuple[tuple[Layout, ...], list[Pruned]]:
    shape = contract.mesh.signature
    kept = tuple(layout for layout in layouts if layout.mesh == contract.mesh)
    if not kept:
        meshes = ", ".join(sorted({layout.mesh.signature for layout in layouts}))
        raise UsageError(
            f"contract {contract.name!r} fixes mesh {shape} of {contract.world_size} ranks on {len(contract.hosts)} "
            f"hosts; this run has meshes {meshes}; give it as many ranks, or write another contract with "
            "'meshsweep mesh init'"
        )
    reason = f"its mesh is not {shape}, which contract {contract.name!r} fixes"
    return kept, [Pruned(layout=x, rule="mesh_contract", reason=reason) for x in layouts if x not in kept]
