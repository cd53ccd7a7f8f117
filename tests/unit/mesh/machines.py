"""Machines whose answers are known."""

from __future__ import annotations

from harness.topology.model import Device, Link, LinkClass, Node, Topology


def pairs(host: str) -> Node:
    """Four GPUs: four NVLinks join 0-1 and 2-3, the socket interconnect all else."""
    return Node(
        host=host,
        devices=tuple(
            Device(index=i, name="A100", uuid=f"GPU-{host}-{i}", pci_bus=f"0000:{i:02x}:00.0", numa_node=i // 2)
            for i in range(4)
        ),
        links=tuple(
            Link(a=a, b=b, link_class=LinkClass.NVLINK, nvlink_count=4)
            if a // 2 == b // 2
            else Link(a=a, b=b, link_class=LinkClass.OTHER_SOCKET)
            for a in range(4)
            for b in range(a + 1, 4)
        ),
    )


def two_by_four() -> Topology:
    """Two such hosts."""
    return Topology(nodes=(pairs("node0"), pairs("node1")))
