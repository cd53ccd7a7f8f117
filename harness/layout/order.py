"""Which mesh axis runs fastest over devices: the permutation between ranks and the machine's slots.

A **slot** is a device's position in the topology, node after node. In the default order rank r runs on slot r. In
another order the mesh keeps its ranks, as ``init_device_mesh`` numbers them, and the ranks move to other slots.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from harness.errors import UsageError
from harness.layout.mesh import AXES, Mesh
from harness.topology.cuda_visible import RankPlace, rank_places
from harness.topology.model import Topology


def parse_order(text: str) -> tuple[str, ...]:
    """Read ``tp,dp_shard,dp_replicate``: all three axes, outermost (slowest over devices) first.

    Raises:
        UsageError: an axis is unknown, missing or named twice.
    """
    order = tuple(part.strip() for part in text.split(","))
    if sorted(order) != sorted(AXES):
        raise UsageError(
            f"order {text!r} must name each of {', '.join(AXES)} once, outermost first; the default is {','.join(AXES)}"
        )
    return order


def strides(mesh: Mesh, order: Sequence[str] = AXES) -> dict[str, int]:
    """For each axis, how many slots lie between neighbours of a group."""
    sizes = dict(zip(AXES, mesh.sizes, strict=True))
    found: dict[str, int] = {}
    stride = 1
    for axis in reversed(order):
        found[axis] = stride
        stride *= sizes[axis]
    return found


def slots(mesh: Mesh, order: Sequence[str] = AXES) -> tuple[int, ...]:
    """The slot of each rank, in rank order."""
    step = strides(mesh, order)
    by_axis = [step[axis] for axis in AXES]
    return tuple(
        sum(at * stride for at, stride in zip(mesh.coordinate(rank), by_axis, strict=True))
        for rank in range(mesh.world_size)
    )


def ranks_by_slot(mesh: Mesh, order: Sequence[str] = AXES) -> tuple[int, ...]:
    """The rank on each slot: what a launcher sets as RANK for the process of each device."""
    found = [0] * mesh.world_size
    for rank, slot in enumerate(slots(mesh, order)):
        found[slot] = rank
    return tuple(found)


def ordered_places(
    topology: Topology,
    mesh: Mesh,
    order: Sequence[str] = AXES,
    visible: Mapping[str, str | Sequence[str]] | str | None = None,
) -> tuple[RankPlace, ...]:
    """Every rank of ``mesh`` with its node, local rank and physical device, in rank order.

    Raises:
        UsageError: the machine has fewer visible devices than the mesh has ranks.
    """
    places = rank_places(topology, visible)
    if len(places) < mesh.world_size:
        raise UsageError(f"mesh {mesh.short} needs {mesh.world_size} devices and {len(places)} are visible")
    return tuple(places[slot].model_copy(update={"rank": rank}) for rank, slot in enumerate(slots(mesh, order)))
