"""Which layouts a sweep tries: every legal mesh of every strategy asked for, and those left out with their rule."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from harness.errors import IllegalLayoutError, UsageError
from harness.layout.layout import Layout, LayoutRequest
from harness.layout.legality import check_layout, meshes, no_mesh
from harness.layout.mesh import Mesh
from harness.layout.strategies import STRATEGIES, get_strategy
from harness.workload import Workload


class Excluded(NamedTuple):
    """A layout that will not run, and why."""

    layout: Layout
    rule: str
    reason: str


class Candidates(NamedTuple):
    """What to run and what was left out."""

    layouts: tuple[Layout, ...]
    excluded: tuple[Excluded, ...]


def default_requests(world_size: int) -> tuple[LayoutRequest, ...]:
    """What a sweep tries when nothing is asked for: ``single`` on one rank, else every default strategy."""
    if world_size == 1:
        return (LayoutRequest(strategy="single"),)
    return tuple(LayoutRequest(strategy=s.name) for s in STRATEGIES.values() if s.default)


def candidates(requests: Sequence[LayoutRequest], workload: Workload, world_size: int) -> Candidates:
    """Turn requests into layouts.

    A request with a mesh must be legal; one without gives every legal mesh, and its illegal ones are excluded.

    Raises:
        IllegalLayoutError: a request with a mesh is illegal.
        UsageError: no request leaves a legal layout.
    """
    layouts: list[Layout] = []
    excluded: list[Excluded] = []
    for request in requests or default_requests(world_size):
        if request.mesh is not None:
            layout = Layout(strategy=request.strategy, mesh=request.mesh, options=request.options)
            check_layout(layout, workload, world_size)
            layouts.append(layout)
        else:
            _expand(request, workload, world_size, layouts, excluded)
    unique = tuple(dict.fromkeys(layouts))
    if not unique:
        reasons = "; ".join(f"{e.layout.strategy}: {e.reason}" for e in excluded[:3])
        raise UsageError(f"no layout is legal on {world_size} ranks ({reasons}); change --ranks, --batch or --model")
    return Candidates(unique, tuple(e for e in dict.fromkeys(excluded) if e.layout not in unique))


def _expand(
    request: LayoutRequest, workload: Workload, world_size: int, layouts: list[Layout], excluded: list[Excluded]
) -> None:
    strategy = get_strategy(request.strategy)
    found = meshes(strategy, world_size)
    if not found:
        nowhere = Layout(strategy=strategy.name, mesh=Mesh(), options=request.options)
        excluded.append(Excluded(nowhere, "world_size", no_mesh(strategy, world_size)))
    for mesh in found:
        layout = Layout(strategy=strategy.name, mesh=mesh, options=request.options)
        try:
            check_layout(layout, workload, world_size)
        except IllegalLayoutError as error:
            excluded.append(Excluded(layout, error.rule, str(error)))
        else:
            layouts.append(layout)
