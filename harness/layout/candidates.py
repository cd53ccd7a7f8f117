"""Which layouts a sweep tries: every legal mesh of every strategy asked for, and those left out with their rule."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from harness.errors import IllegalLayoutError, UsageError
from harness.layout.layout import Layout, LayoutRequest
from harness.layout.legality import check_layout, meshes, no_mesh
from harness.layout.mesh import AXES, Mesh
from harness.layout.placement import Placement, Placer
from harness.layout.strategies import STRATEGIES, get_strategy
from harness.layout.subset import counts_text, first_devices, uneven_remedy
from harness.topology.model import Topology
from harness.workload import Workload


class Excluded(NamedTuple):
    """A layout that will not run, and why."""

    layout: Layout
    rule: str
    reason: str


class Candidates(NamedTuple):
    """What to run and what was left out.

    ``placements`` has one entry a layout where a topology was given, else none. ``notes`` are about the machine.
    """

    layouts: tuple[Layout, ...]
    excluded: tuple[Excluded, ...]
    placements: tuple[Placement, ...] = ()
    notes: tuple[str, ...] = ()


def default_requests(world_size: int) -> tuple[LayoutRequest, ...]:
    """What a sweep tries when nothing is asked for: ``single`` on one rank, else every default strategy.

    Each factorisation of the world size belongs to exactly one of them, the one whose axes have size 2 or more, so
    shapes that differ only in axes of size 1 are one.
    """
    if world_size == 1:
        return (LayoutRequest(strategy="single"),)
    return tuple(LayoutRequest(strategy=s.name) for s in STRATEGIES.values() if s.default)


def with_order(requests: Sequence[LayoutRequest], order: tuple[str, ...]) -> tuple[LayoutRequest, ...]:
    """The requests with their axes in ``order`` on the devices, where they have several axes and no order of theirs."""
    return tuple(
        request.model_copy(update={"options": request.options.model_copy(update={"order": order})})
        if "order" in get_strategy(request.strategy).options and request.options.order == AXES
        else request
        for request in requests
    )


def candidates(
    requests: Sequence[LayoutRequest],
    workload: Workload,
    world_size: int,
    topology: Topology | None = None,
    *,
    allow_cross_node_tp: bool = False,
) -> Candidates:
    """Turn requests into layouts; with a topology also say where each lies, node-aligned ones first.

    A request with a mesh must be legal; one without gives every legal mesh, and its illegal ones are excluded. The
    first ``world_size`` devices of the topology are used, in its order.

    Raises:
        IllegalLayoutError: a request with a mesh is illegal.
        UsageError: no request leaves a legal layout, or the topology has too few devices.
    """
    machine = None if topology is None else first_devices(topology, world_size)
    collected = _Collected(workload, world_size, machine, allow_cross_node_tp)
    for request in requests or default_requests(world_size):
        if request.mesh is not None:
            collected.add(Layout(strategy=request.strategy, mesh=request.mesh, options=request.options))
        else:
            collected.expand(request)
    unique = tuple(collected.layouts)
    excluded = tuple(e for e in dict.fromkeys(collected.excluded) if e.layout not in collected.layouts)
    if not unique:
        reasons = "; ".join(f"{e.layout.strategy}: {e.reason}" for e in excluded[:3])
        raise UsageError(f"no layout is legal on {world_size} ranks ({reasons}); change --ranks, --batch or --model")
    if machine is None:
        return Candidates(unique, excluded)
    placed = sorted(collected.layouts.items(), key=lambda item: item[1].sort_key if item[1] else ())
    return Candidates(
        tuple(layout for layout, _ in placed),
        excluded,
        tuple(placement for _, placement in placed if placement is not None),
        _notes(machine),
    )


class _Collected:
    """Layouts with their placement and exclusions gathered so far."""

    def __init__(
        self, workload: Workload, world_size: int, machine: Topology | None, allow_cross_node_tp: bool
    ) -> None:
        self._workload, self._world_size = workload, world_size
        self._machine, self._allow_cross_node_tp = machine, allow_cross_node_tp
        self._placers: dict[tuple[str, ...], Placer] = {}
        self.layouts: dict[Layout, Placement | None] = {}
        self.excluded: list[Excluded] = []

    def add(self, layout: Layout) -> None:
        """Check and keep a layout.

        Raises:
            IllegalLayoutError: model, batch, world size or machine forbid it.
        """
        check_layout(layout, self._workload, self._world_size)
        self._check_device(layout)
        placement = None
        if self._machine is not None:
            order = layout.options.order
            if order not in self._placers:
                self._placers[order] = Placer(self._machine, order, allow_cross_node_tp=self._allow_cross_node_tp)
            placement = self._placers[order].place(layout)
            self._placers[order].check(layout, placement)
        self.layouts.setdefault(layout, placement)

    def _check_device(self, layout: Layout) -> None:
        devices = [] if self._machine is None else [d for node in self._machine.nodes for d in node.devices]
        on_cpu = bool(devices) and all(device.kind == "cpu" for device in devices)
        if on_cpu and layout.options.cpu_offload and layout.strategy in ("fsdp1", "fsdp1_hybrid"):
            raise IllegalLayoutError(
                "device",
                f"{layout.strategy} offloads from an accelerator only, and this machine has none; leave cpu_offload "
                "out, or use fsdp or hsdp",
            )

    def expand(self, request: LayoutRequest) -> None:
        """Keep or exclude every mesh of a strategy."""
        strategy = get_strategy(request.strategy)
        found = meshes(strategy, self._world_size)
        if not found:
            nowhere = Layout(strategy=strategy.name, mesh=Mesh(), options=request.options)
            self.excluded.append(Excluded(nowhere, "world_size", no_mesh(strategy, self._world_size)))
        for mesh in found:
            layout = Layout(strategy=strategy.name, mesh=mesh, options=request.options)
            try:
                self.add(layout)
            except IllegalLayoutError as error:
                self.excluded.append(Excluded(layout, error.rule, str(error)))


def _notes(machine: Topology) -> tuple[str, ...]:
    if len({len(node.devices) for node in machine.nodes}) <= 1:
        return ()
    return (f"nodes have {counts_text(machine)} devices; {uneven_remedy(machine)}",)
