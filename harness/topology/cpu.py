"""A CPU-only host as ``n`` rank slots, so that every layout can be tried where there is no accelerator."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import psutil

from harness.errors import TopologyError
from harness.topology import cpulist
from harness.topology.model import Device, Link, LinkClass, Node, Topology

_MAX_SLOTS = 4096
_MAX_LINKED_SLOTS = 256  # beyond this the all-to-all list of links says nothing that the kind does not


def read(slots: int | None = None, host: str | None = None, sys_root: Path = Path("/sys")) -> Topology:
    """This host as CPU rank slots: ``slots`` of them, by default one a physical core that may be used."""
    cpus = _usable_cpus()
    count = slots if slots is not None else min(len(cpus), psutil.cpu_count(logical=False) or len(cpus))
    if not 1 <= count <= _MAX_SLOTS:
        raise TopologyError(f"{count} CPU rank slots asked for; give a number from 1 to {_MAX_SLOTS}")
    numa_of = numa_by_cpu(sys_root)
    devices = tuple(_slot(index, count, cpus, numa_of) for index in range(count))
    node = Node(
        host=host or socket.gethostname(),
        devices=devices,
        links=host_memory_links(count),
        cpu_count=len(cpus),
        memory_bytes=psutil.virtual_memory().total,
    )
    return Topology(nodes=(node,), sources=("cpu: rank slots, NUMA nodes, memory",))


def numa_by_cpu(sys_root: Path = Path("/sys")) -> dict[int, int]:
    """NUMA node of every CPU; empty where the kernel does not say."""
    found: dict[int, int] = {}
    for folder in sys_root.glob("devices/system/node/node[0-9]*"):
        try:
            ids = cpulist.parse((folder / "cpulist").read_text().strip())
            node = int(folder.name.removeprefix("node"))
        except (OSError, ValueError):
            continue
        found.update(dict.fromkeys(ids or (), node))
    return found


def host_memory_links(count: int) -> tuple[Link, ...]:
    """Links of every two of ``count`` rank slots on one host."""
    if count > _MAX_LINKED_SLOTS:
        return ()
    return tuple(Link(a=a, b=b, link_class=LinkClass.HOST_MEMORY) for a in range(count) for b in range(a + 1, count))


def _usable_cpus() -> tuple[int, ...]:
    if hasattr(os, "sched_getaffinity"):
        return tuple(sorted(os.sched_getaffinity(0)))
    return tuple(range(os.cpu_count() or 1))


def _slot(index: int, count: int, cpus: tuple[int, ...], numa_of: dict[int, int]) -> Device:
    # Slots are spread in contiguous blocks; more slots than CPUs share CPUs in turn.
    share = cpus[index * len(cpus) // count : (index + 1) * len(cpus) // count]
    share = share or (cpus[index % len(cpus)],)
    numa = {numa_of.get(cpu) for cpu in share}
    return Device(
        index=index,
        kind="cpu",
        name="CPU rank slot",
        numa_node=numa.pop() if len(numa) == 1 else None,
        cpus=cpulist.render(share),
    )
