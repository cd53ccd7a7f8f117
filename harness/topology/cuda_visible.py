"""``CUDA_VISIBLE_DEVICES`` as CUDA reads it, and the way from a global rank to a physical device."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from harness.base import Frozen
from harness.errors import TopologyError
from harness.topology.model import Device, Node, Topology
from harness.topology.plain import one_line

_NUMBER = re.compile(r"[+-]?[0-9]{1,9}")


class VisibleDevice(Frozen):
    """A device as a process sees it: its physical ``index``, and the MIG device if it is only that."""

    index: int
    mig_uuid: str | None = None


class RankPlace(Frozen):
    """Where one rank runs. ``visible_index`` is what the process calls its device, ``device`` the physical one."""

    rank: int
    node: int
    host: str
    local_rank: int
    visible_index: int
    device: int
    mig_uuid: str | None = None


def visible_devices(value: str | None, devices: Sequence[Device]) -> tuple[VisibleDevice, ...]:
    """The devices that ``value`` leaves visible, in its order; None (not set) leaves all.

    As in CUDA: numbers are places in the driver's order; names may be cut to a prefix that is unique; the first
    entry that names nothing ends the list (``0,-1,1`` is 0 alone); a device named twice leaves none.
    """
    if value is None:
        return tuple(VisibleDevice(index=device.index) for device in devices)
    entries = [entry.strip() for entry in value.split(",")]
    prefix = next((word for word in ("GPU-", "MIG-") if entries[0].startswith(word)), None)
    found: list[VisibleDevice] = []
    for entry in entries:
        one = _by_number(entry, devices) if prefix is None else _by_name(entry, prefix, devices)
        if one is None:
            break
        if one in found:
            return ()
        found.append(one)
    return tuple(found)


def rank_places(
    topology: Topology,
    visible: Mapping[str, str | Sequence[str]] | str | None = None,
    tasks_per_node: Sequence[int] | None = None,
) -> tuple[RankPlace, ...]:
    """Every global rank with its node, local rank and physical device; nodes may differ in their counts.

    ``visible`` is the value of CUDA_VISIBLE_DEVICES on all nodes, or by host; a sequence gives one value a local
    rank, as Slurm sets it when it binds one GPU to each task. By default a node runs one task a visible device.
    """
    if tasks_per_node is not None and len(tasks_per_node) != len(topology.nodes):
        raise TopologyError(
            f"tasks are given for {len(tasks_per_node)} nodes and the topology has {len(topology.nodes)}; "
            "give one count a node"
        )
    places: list[RankPlace] = []
    for position, node in enumerate(topology.nodes):
        value = visible.get(node.host) if isinstance(visible, Mapping) else visible
        tasks = None if tasks_per_node is None else tasks_per_node[position]
        for local_rank, (shown, one) in enumerate(_node_places(node, value, tasks)):
            places.append(
                RankPlace(
                    rank=len(places),
                    node=position,
                    host=node.host,
                    local_rank=local_rank,
                    visible_index=shown,
                    device=one.index,
                    mig_uuid=one.mig_uuid,
                )
            )
    return tuple(places)


def _node_places(node: Node, value: str | Sequence[str] | None, tasks: int | None) -> list[tuple[int, VisibleDevice]]:
    """For each local rank what it calls its device, and which one that is."""
    if value is None or isinstance(value, str):
        seen = list(enumerate(visible_devices(value, node.devices)))
        return _enough(node, seen, tasks)
    seen = []
    for local_rank, own in enumerate(value):
        shown = visible_devices(own, node.devices)
        if not shown:
            raise TopologyError(
                f"local rank {local_rank} on {node.host} sees no device with CUDA_VISIBLE_DEVICES="
                f"{one_line(own)!r}; give each task a GPU"
            )
        # With one GPU a task it is device 0 to it; with several each rank takes its own place.
        at = 0 if len(shown) == 1 else local_rank
        if at >= len(shown):
            raise TopologyError(
                f"local rank {local_rank} on {node.host} sees {len(shown)} devices only; bind one GPU to each task"
            )
        seen.append((at, shown[at]))
    return _enough(node, seen, tasks)


def _enough(node: Node, seen: list[tuple[int, VisibleDevice]], tasks: int | None) -> list[tuple[int, VisibleDevice]]:
    if tasks is None:
        return seen
    if tasks > len(seen):
        raise TopologyError(
            f"{node.host} runs {tasks} tasks and {len(seen)} devices are visible there; run one task a device"
        )
    return seen[:tasks]


def _by_number(entry: str, devices: Sequence[Device]) -> VisibleDevice | None:
    match = _NUMBER.match(entry)
    place = int(match.group()) if match else -1
    return VisibleDevice(index=devices[place].index) if 0 <= place < len(devices) else None


def _by_name(entry: str, prefix: str, devices: Sequence[Device]) -> VisibleDevice | None:
    if not entry.startswith(prefix):
        return None
    if prefix == "GPU-":
        named = [device for device in devices if device.uuid and device.uuid.startswith(entry)]
        return VisibleDevice(index=named[0].index) if len(named) == 1 else None
    slices = [(device, part) for device in devices for part in device.mig if part.uuid == entry]
    slices = slices or [(d, part) for d in devices for part in d.mig if part.uuid.startswith(entry)]
    if len(slices) != 1:
        return None
    device, part = slices[0]
    return VisibleDevice(index=device.index, mig_uuid=part.uuid)
