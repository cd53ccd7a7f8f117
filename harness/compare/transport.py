"""What communicators used, held against what their place on the machine lets expect."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from harness.comms import Communicator
from harness.compare.collect import Cell
from harness.compare.models import GroupTransports
from harness.layout import AXES, Layout
from harness.layout.order import slots
from harness.record import RunRecord
from harness.spec import SweepPlan
from harness.topology import cpulist
from harness.topology.links import FAST, link_in_node
from harness.topology.model import Node


class Used(NamedTuple):
    """A communicator of a cell: the axis that it serves, or other words for it, and what is unexpected about it."""

    label: str
    role: str
    communicator: Communicator
    surprise: str | None
    source: str
    log: str | None


def used_transports(plan: SweepPlan, cells: Sequence[Cell]) -> tuple[Used, ...]:
    """All communicators of all cells that were looked at."""
    return tuple(used for cell in cells if cell.verify is not None for used in _of_record(plan, cell, cell.verify))


def _of_record(plan: SweepPlan, cell: Cell, record: RunRecord) -> Iterator[Used]:
    if record.comms is None:
        return
    ranks = record.spec.ranks
    node_of = [at for at, count in enumerate(ranks.per_node) for _ in range(count)]
    roles = group_roles(cell.layout)
    for one in record.comms.found:
        members = frozenset(one.ranks)
        role = roles.get(members) or ("all ranks" if len(members) == ranks.world_size else "other")
        yield Used(
            cell.label,
            role,
            one,
            _surprise(plan, node_of, one),
            record.comms.source,
            next(iter(record.comms.logs), None),
        )


def group_roles(layout: Layout) -> dict[frozenset[int], str]:
    """The axis of every group of the mesh, by the group's members as ranks of the job."""
    place = slots(layout.mesh, layout.options.order)
    found = {}
    for axis in AXES:
        for group in layout.mesh.groups(axis):
            if len(group) > 1:
                found[frozenset(place[rank] for rank in group)] = axis
    return found


def _surprise(plan: SweepPlan, node_of: Sequence[int], one: Communicator) -> str | None:
    """Why a transport is not what the place of the ranks lets expect; None where it is."""
    known = [rank for rank in one.ranks if rank < len(node_of)]
    at = {node_of[rank] for rank in known}
    nodes = plan.topology.nodes
    network = next((name for name in one.transports if name.startswith("NET/")), None)
    if len(at) == 1:
        if network is not None:
            return f"went over {network}, though its ranks share a node"
        node = nodes[min(at)] if min(at) < len(nodes) else None
        if "SHM" in one.transports and node is not None and _all_fast(node, [_local(node_of, r) for r in known]):
            return "went over SHM, though NVLink or its kin joins its devices"
    elif "NET/Socket" in one.transports and any(nodes[place].nics for place in at if place < len(nodes)):
        return "went over NET/Socket, though its nodes have RDMA ports"
    return None


def _local(node_of: Sequence[int], rank: int) -> int:
    """The place of a rank among those of its node."""
    return rank - list(node_of).index(node_of[rank])


def _all_fast(node: Node, places: Sequence[int]) -> bool:
    if max(places, default=0) >= len(node.devices):
        return False
    indices = [node.devices[place].index for place in places]
    return all(link_in_node(node, a, b) in FAST for at, a in enumerate(indices) for b in indices[at + 1 :])


def surprises(used: Sequence[Used]) -> Iterator[tuple[Used, str]]:
    """Each surprise with its words, once for all groups of a cell's axis."""
    seen = set()
    for one in used:
        key = (one.label, one.role, one.surprise)
        if one.surprise is not None and key not in seen:
            seen.add(key)
            role = "group" if one.role == "other" else f"{one.role} group"
            where = cpulist.render(sorted(one.communicator.ranks))
            yield one, f"the {role} of {len(one.communicator.ranks)} (ranks {where}) of {one.label} {one.surprise}"


def group_transports(plan: SweepPlan, cells: Sequence[Cell]) -> tuple[GroupTransports, ...]:
    """A row for each role of each cell, groups that used the same taken together."""
    rows: dict[tuple[object, ...], int] = {}
    for used in used_transports(plan, cells):
        one = used.communicator
        key = (used.label, used.role, len(one.ranks), one.transports, one.rings, used.source)
        rows[key] = rows.get(key, 0) + 1
    names = ("cell", "role", "size", "transports", "rings", "source")
    return tuple(GroupTransports(groups=count, **dict(zip(names, key, strict=True))) for key, count in rows.items())
