"""What links imply: islands, balanced groups, the mesh that follows, and the class between any two devices."""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterable, Sequence

from harness.errors import TopologyError
from harness.topology import cpulist
from harness.topology.model import Device, Link, LinkClass, Node, Topology

Groups = tuple[tuple[int, ...], ...]
FAST = frozenset({LinkClass.NVLINK, LinkClass.XGMI})
_FAR = frozenset({LinkClass.OTHER_SOCKET, LinkClass.UNKNOWN})
_MAX_SEARCHED = 64
_MAX_SEARCH_STEPS = 20_000


def islands(node: Node) -> Groups:
    """Devices that NVLink or its kin joins, directly or through others; a device with none is in no island."""
    return tuple(part for part in _components(node, lambda link: link.link_class in FAST) if len(part) > 1)


def fully_connected(node: Node) -> bool:
    """Whether NVLink or its kin joins every two devices directly."""
    return _is_clique(node, [device.index for device in node.devices])


def domains(node: Node) -> Groups | None:
    """Devices by NUMA node, else by NUMA list, else by CPU list; None where the listing cannot tell."""
    for key in (_numa_key, _numa_list_key, _cpu_key):
        parts = _partition(node.devices, key)
        if parts is not None:
            return parts
    return None


def groups(node: Node) -> Groups:
    """The devices of ``node`` in groups of one size that belong together; one group if nothing is balanced.

    NVLink comes first: islands of one size are the groups, an island that is no clique is cut into cliques. Only
    where NVLink joins all or none do NUMA nodes decide, and where these are uneven, PCIe switches.
    """
    everything = (tuple(device.index for device in node.devices),)
    if len(node.devices) < 2:
        return everything if node.devices else ()
    local = domains(node)
    found = islands(node)
    if found:
        chosen = _from_islands(node, found, local)
    elif local is not None:
        chosen = local if _balanced(local) else _by_switch(node)
    else:
        # Nothing but the socket crossings tells; alone in its socket every device would be noise from a VM.
        chosen = _of_size(_components(node, lambda link: link.link_class not in _FAR), minimum=2)
    return chosen or everything


def suggested_mesh(topology: Topology) -> tuple[int, int] | None:
    """(groups, devices a group) over all nodes; None without devices or where nodes have no common size."""
    sizes = [len(group) for node in topology.nodes for group in groups(node)]
    if not sizes:
        return None
    common = math.gcd(*sizes)
    if common == 1 and max(sizes) > 1:
        return None
    return sum(sizes) // common, common


def mesh_reason(topology: Topology) -> str | None:
    """Why the groups of the suggested mesh are not simply the islands; None where they are."""
    reasons = dict.fromkeys(reason for node in topology.nodes if (reason := _group_reason(node)) is not None)
    sizes = sorted({len(group) for node in topology.nodes for group in groups(node)})
    cut = [f"groups of {' and '.join(map(str, sizes))} are cut to a common size"] if len(sizes) > 1 else []
    return "; ".join([*reasons, *cut]) or None


def _group_reason(node: Node) -> str | None:
    chosen, found, local = groups(node), islands(node), domains(node)
    if chosen == found or (len(chosen) <= 1 and not found):
        return None
    if len(chosen) == 1:
        basis = "one group"
    elif chosen == local:
        basis = "by NUMA"
    elif found:
        basis = "groups that are fully linked"
    else:
        basis = "by PCIe switch" if local is not None else "by socket"
    if not found:
        return basis
    if sum(map(len, found)) < len(node.devices):
        return f"{basis}; not every device is in an island"
    return f"{basis}; the island is not fully linked" if len(found) == 1 else f"{basis}; the islands differ in size"


def link_between(topology: Topology, a: tuple[int, int], b: tuple[int, int]) -> LinkClass:
    """The class of the link between two devices, each given as (position of the node, device index)."""
    first, second = _node_of(topology, a), _node_of(topology, b)
    if a == b:
        raise TopologyError(f"device {a[1]} of {first.host} has no link to itself; name two devices")
    if a[0] == b[0]:
        return link_in_node(first, a[1], b[1])
    return between_nodes(first, second)


def link_in_node(node: Node, a: int, b: int) -> LinkClass:
    """The class of the link between two devices of one node."""
    wanted = (min(a, b), max(a, b))
    for link in node.links:
        if (link.a, link.b) == wanted:
            return link.link_class
    kinds = {device.kind for device in node.devices if device.index in wanted}
    return LinkClass.HOST_MEMORY if kinds == {"cpu"} else LinkClass.UNKNOWN


def between_nodes(first: Node, second: Node) -> LinkClass:
    """The class of the link between two nodes, from the switches that are known."""
    if first.switch is not None and first.switch == second.switch:
        return LinkClass.SAME_SWITCH
    if set(first.switch_path) & set(second.switch_path):
        return LinkClass.OTHER_SWITCH
    return LinkClass.NETWORK


def _node_of(topology: Topology, place: tuple[int, int]) -> Node:
    position, index = place
    if not 0 <= position < len(topology.nodes):
        raise TopologyError(f"there is no node {position}; the topology has {len(topology.nodes)}")
    node = topology.nodes[position]
    if all(device.index != index for device in node.devices):
        raise TopologyError(f"{node.host} has no device {index}; choose one that its listing names")
    return node


def _from_islands(node: Node, found: Groups, local: Groups | None) -> Groups | None:
    covered = sum(map(len, found)) == len(node.devices)
    if len(found) == 1 and covered and not fully_connected(node):
        return _cliques(node, local)
    if len(found) > 1 and covered:
        return _balanced(found)
    if local is None or any(_straddles(island, local) for island in found if not covered):
        return None
    return _balanced(local)


def _straddles(island: Sequence[int], local: Groups) -> bool:
    return not any(set(island) <= set(part) for part in local)


def _cliques(node: Node, local: Groups | None) -> Groups | None:
    """A partition into cliques as large as possible, the NUMA domains themselves if they are cliques."""
    if local is not None and len(local) > 1 and _balanced(local) and all(_is_clique(node, part) for part in local):
        return local
    indices = [device.index for device in node.devices]
    if len(indices) > _MAX_SEARCHED:
        return _balanced(local) if local is not None else None
    near = _neighbours(node, lambda link: link.link_class in FAST)
    for size in range(len(indices) // 2, 1, -1):
        if len(indices) % size == 0:
            steps = [_MAX_SEARCH_STEPS]
            parts = _clique_partition(indices, size, near, steps)
            if parts is not None:
                return tuple(parts)
    return _balanced(local) if local is not None else None


def _clique_partition(
    left: list[int], size: int, near: dict[int, set[int]], steps: list[int]
) -> list[tuple[int, ...]] | None:
    if not left:
        return []
    for clique in _grow([left[0]], left[1:], size, near, steps):
        rest = _clique_partition([one for one in left if one not in clique], size, near, steps)
        if rest is not None:
            return [tuple(clique), *rest]
    return None


def _grow(
    clique: list[int], choices: list[int], size: int, near: dict[int, set[int]], steps: list[int]
) -> Iterable[list[int]]:
    """Every clique of ``size`` that extends ``clique`` with some of ``choices``, while steps last."""
    steps[0] -= 1
    if len(clique) == size:
        yield clique
        return
    for position, choice in enumerate(choices):
        if steps[0] <= 0:
            return
        if all(choice in near[member] for member in clique):
            yield from _grow([*clique, choice], choices[position + 1 :], size, near, steps)


def _by_switch(node: Node) -> Groups | None:
    for labels in ({"PIX"}, {"PIX", "PXB", "PSB"}):
        parts = _of_size(_components(node, lambda link: link.label in labels), minimum=2)  # noqa: B023
        if parts is not None:
            return parts
    return None


def _of_size(parts: Groups, minimum: int) -> Groups | None:
    return _balanced(parts) if all(len(part) >= minimum for part in parts) else None


def _balanced(parts: Groups) -> Groups | None:
    return parts if len({len(part) for part in parts}) == 1 else None


def _is_clique(node: Node, members: Sequence[int]) -> bool:
    near = _neighbours(node, lambda link: link.link_class in FAST)
    return all(b in near[a] for position, a in enumerate(members) for b in members[position + 1 :])


def _neighbours(node: Node, wanted: Callable[[Link], bool]) -> dict[int, set[int]]:
    near: dict[int, set[int]] = {device.index: set() for device in node.devices}
    for link in node.links:
        if wanted(link) and link.a in near and link.b in near:
            near[link.a].add(link.b)
            near[link.b].add(link.a)
    return near


def _components(node: Node, wanted: Callable[[Link], bool]) -> Groups:
    near = _neighbours(node, wanted)
    seen: set[int] = set()
    parts: list[tuple[int, ...]] = []
    for device in node.devices:
        if device.index in seen:
            continue
        part, queue = {device.index}, [device.index]
        while queue:
            fresh = near[queue.pop()] - part
            part |= fresh
            queue.extend(fresh)
        seen |= part
        parts.append(tuple(other.index for other in node.devices if other.index in part))
    return tuple(parts)


def _partition(devices: Sequence[Device], key: Callable[[Device], Hashable | None]) -> Groups | None:
    """Devices by ``key`` in order of appearance; None unless every device has one."""
    parts: dict[Hashable, list[int]] = {}
    for device in devices:
        value = key(device)
        if value is None:
            return None
        parts.setdefault(value, []).append(device.index)
    if key is not _numa_key and not _told_apart(list(parts)):
        return None
    return tuple(tuple(part) for part in parts.values())


def _told_apart(keys: Sequence[Hashable]) -> bool:
    """Whether id sets are several and do not overlap; one list for all says only that all are allowed."""
    sets = [key for key in keys if isinstance(key, frozenset)]
    return len(sets) > 1 and sum(map(len, sets)) == len(frozenset().union(*sets))


def _numa_key(device: Device) -> Hashable | None:
    return device.numa_node


def _numa_list_key(device: Device) -> Hashable | None:
    return cpulist.parse(device.numa_affinity)


def _cpu_key(device: Device) -> Hashable | None:
    return cpulist.parse(device.cpus)
