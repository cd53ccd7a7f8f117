"""Other machines than the detected one: a part of it, or one that is only described."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from harness.errors import UsageError
from harness.topology import cpulist, hostlist
from harness.topology.links import groups
from harness.topology.model import Device, Link, Nic, Node, Topology

_ITEM = re.compile(r"(?:(?P<host>[^:]+):)?(?P<first>[0-9]{1,6})(?:-(?P<last>[0-9]{1,6}))?")
_MAX_NODES, _MAX_DEVICES = 1 << 17, 1024
_FORM = "write 0-3,5 for every node, or node1:0-3,node2:0,2 for each host"


def use_gpus(topology: Topology, text: str) -> Topology:
    """``topology`` with only the devices that ``text`` names, in the order named; nodes not named are left out.

    Raises:
        UsageError: ``text`` has another form, or names a host or device that is not there.
    """
    wanted = _parse(text)
    nodes = [node for node in topology.nodes if node.devices]
    if None in wanted:
        return _with_nodes(topology, [_take(node, wanted[None]) for node in nodes])
    chosen: dict[str, Node] = {}
    for host, indices in wanted.items():
        node = next((node for node in nodes if same_host(node.host, str(host))), None)
        if node is None:
            hosts = hostlist.compress([node.host for node in nodes])
            raise UsageError(f"--use-gpus names host {host}, which is not here; the hosts with devices are {hosts}")
        chosen[node.host] = _take(node, indices)
    return _with_nodes(topology, [chosen[node.host] for node in nodes if node.host in chosen])


def first_devices(topology: Topology, count: int) -> Topology:
    """The first ``count`` devices in node order.

    Raises:
        UsageError: there are fewer.
    """
    if count > topology.device_count:
        raise UsageError(f"{count} ranks, but the machine has {topology.device_count} devices; give at most these")
    if count == topology.device_count and all(node.devices for node in topology.nodes):
        return topology
    nodes: list[Node] = []
    left = count
    for node in topology.nodes:
        kept = node.devices[:left]
        if kept:
            nodes.append(node if len(kept) == len(node.devices) else _keep(node, kept))
        left -= len(kept)
    return _with_nodes(topology, nodes)


def described(nodes: int, gpus_per_node: int) -> Topology:
    """A cluster of ``nodes`` alike nodes of which nothing else is known.

    Raises:
        UsageError: a number is out of range.
    """
    if not 1 <= nodes <= _MAX_NODES:
        raise UsageError(f"--nodes {nodes}: give a number from 1 to {_MAX_NODES}")
    devices = _unknown_devices(gpus_per_node)
    return Topology(
        nodes=tuple(Node(host=f"node{at}", devices=devices) for at in range(nodes)),
        sources=("described: numbers of nodes and devices",),
    )


def filled(topology: Topology, gpus_per_node: int) -> Topology:
    """``topology`` where every node without a device list, as in topology.conf, gets ``gpus_per_node`` devices."""
    devices = _unknown_devices(gpus_per_node)
    nodes = [node if node.devices else node.model_copy(update={"devices": devices}) for node in topology.nodes]
    return _with_nodes(topology, nodes)


def grouped(topology: Topology) -> Topology:
    """``topology`` with the devices of each node reordered so that those which its links join lie side by side."""
    nodes = []
    for node in topology.nodes:
        by_index = {device.index: device for device in node.devices}
        order = [by_index[index] for group in groups(node) for index in group]
        nodes.append(node if tuple(order) == node.devices else _keep(node, order))
    return _with_nodes(topology, nodes)


def common_devices(topology: Topology) -> tuple[int, ...]:
    """Device indices that every node with devices has."""
    sets = [{device.index for device in node.devices} for node in topology.nodes if node.devices]
    return tuple(sorted(set.intersection(*sets))) if sets else ()


def uneven_remedy(topology: Topology) -> str:
    """How to get nodes of one size out of ``topology``."""
    common = common_devices(topology)
    if not common:
        return "name the devices of each host with --use-gpus"
    return f"take {len(common)} on each node with --use-gpus {cpulist.render(common)}, or fewer"


def counts_text(topology: Topology) -> str:
    """Devices a node as words: ``8``, or ``8 (node0, node1) and 4 (node2)``."""
    hosts: dict[int, list[str]] = {}
    for node in topology.nodes:
        if node.devices:
            hosts.setdefault(len(node.devices), []).append(node.host)
    if len(hosts) <= 1:
        return str(next(iter(hosts), 0))
    return " and ".join(f"{count} ({hostlist.compress(names)})" for count, names in hosts.items())


def same_host(one: str, other: str) -> bool:
    """Whether two names are one host, with or without its domain."""
    if "." in one and "." in other:
        return one == other
    return one.split(".")[0] == other.split(".")[0]


def _parse(text: str) -> dict[str | None, list[int]]:
    wanted: dict[str | None, list[int]] = {}
    hosts: tuple[str | None, ...] = (None,)
    for item in re.split(r",(?![^\[]*\])", text):
        match = _ITEM.fullmatch(item.strip())
        if match is None:
            raise UsageError(f"--use-gpus {text!r}: {item.strip()!r} is no device; {_FORM}")
        if match["host"] is not None:
            hosts = hostlist.expand(match["host"])
        first, last = int(match["first"]), int(match["last"] or match["first"])
        if last < first or last - first >= _MAX_DEVICES:
            raise UsageError(f"--use-gpus {text!r}: range {item.strip()!r} runs backward or is too long; {_FORM}")
        for host in hosts:
            wanted.setdefault(host, []).extend(range(first, last + 1))
    if None in wanted and len(wanted) > 1:
        raise UsageError(f"--use-gpus {text!r} names hosts for some devices only; {_FORM}")
    for host, indices in wanted.items():
        if len(indices) != len(set(indices)):
            raise UsageError(f"--use-gpus {text!r} names a device twice{f' on {host}' if host else ''}; {_FORM}")
    return wanted


def _take(node: Node, indices: Sequence[int]) -> Node:
    by_index = {device.index: device for device in node.devices}
    missing = [index for index in indices if index not in by_index]
    if missing:
        raise UsageError(
            f"--use-gpus: {node.host} has no device {', '.join(map(str, missing))}; "
            f"it has {cpulist.render(by_index)}, and node1:0-3 chooses for one host"
        )
    return _keep(node, [by_index[index] for index in indices])


def _keep(node: Node, devices: Sequence[Device]) -> Node:
    kept = {device.index for device in devices}
    links: tuple[Link, ...] = tuple(link for link in node.links if link.a in kept and link.b in kept)
    nics: tuple[Nic, ...] = tuple(
        nic.model_copy(update={"links": tuple(link for link in nic.links if link.device in kept)}) for nic in node.nics
    )
    return node.model_copy(update={"devices": tuple(devices), "links": links, "nics": nics})


def _unknown_devices(count: int) -> tuple[Device, ...]:
    if not 1 <= count <= _MAX_DEVICES:
        raise UsageError(f"--gpus-per-node {count}: give a number from 1 to {_MAX_DEVICES}")
    return tuple(Device(index=index) for index in range(count))


def _with_nodes(topology: Topology, nodes: Iterable[Node]) -> Topology:
    return topology.model_copy(update={"nodes": tuple(nodes)})
