"""What a machine is: nodes, devices, links between devices, switches between nodes. No reader lives here."""

from __future__ import annotations

from enum import StrEnum

from pydantic import Field

from harness.base import Frozen


class LinkClass(StrEnum):
    """How two devices are joined, from closest to farthest."""

    NVLINK = "nvlink"  # NVLink or NVSwitch
    XGMI = "xgmi"  # AMD's kin of NVLink
    PCIE_SWITCH = "pcie_switch"  # same PCIe switch (PIX, PXB)
    HOST_BRIDGE = "host_bridge"  # same host bridge (PHB)
    NUMA_NODE = "numa_node"  # same NUMA node, other host bridge (NODE)
    OTHER_SOCKET = "other_socket"  # across the socket interconnect (SYS, SOC)
    HOST_MEMORY = "host_memory"  # ranks of one CPU-only host
    SAME_SWITCH = "same_switch"  # other node, same leaf switch or block
    OTHER_SWITCH = "other_switch"  # other node, farther away
    NETWORK = "network"  # other node, distance unknown
    UNKNOWN = "unknown"

    @property
    def crosses_nodes(self) -> bool:
        return self in (LinkClass.SAME_SWITCH, LinkClass.OTHER_SWITCH, LinkClass.NETWORK)


class MigSlice(Frozen):
    """One MIG compute instance of a device, as CUDA names it."""

    profile: str
    index: int = Field(ge=0)
    uuid: str


class Device(Frozen):
    """One accelerator, or one CPU rank slot on a CPU-only host. Facts that are unknown are None."""

    index: int = Field(ge=0)
    kind: str = "cuda"  # "cuda", "rocm" or "cpu"
    name: str | None = None
    uuid: str | None = None
    pci_bus: str | None = None
    numa_node: int | None = None
    numa_affinity: str | None = None  # the list as printed, where it names several NUMA nodes
    memory_numa_node: int | None = None  # NUMA node of the device's own memory (GH200, GB200)
    cpus: str | None = None  # CPU list of the device's affinity, such as "0-19,40-59"
    memory_bytes: int | None = None
    mig: tuple[MigSlice, ...] = ()


class Link(Frozen):
    """A link between devices ``a`` < ``b`` (device indices) of one node."""

    a: int
    b: int
    link_class: LinkClass
    nvlink_count: int | None = None
    label: str | None = None  # the source's own word, such as PIX or PXB, where classes merge some


class NicLink(Frozen):
    """How one device reaches one NIC."""

    device: int
    link_class: LinkClass


class Nic(Frozen):
    """A network port: its column name in the listing and, where a legend says so, its real name."""

    name: str
    device_name: str | None = None
    links: tuple[NicLink, ...] = ()


class Node(Frozen):
    """One host with its devices and the links between them. ``switch_path`` is leaf first, root last."""

    host: str
    devices: tuple[Device, ...] = ()
    links: tuple[Link, ...] = ()
    nics: tuple[Nic, ...] = ()
    switch: str | None = None
    switch_path: tuple[str, ...] = ()
    cpu_count: int | None = None
    memory_bytes: int | None = None


class LinkSpeed(Frozen):
    """How one link carried bytes when it was measured, in one direction.

    ``hosts``: the host that it lies in, or where it goes from and to. ``latency_s``: of a message without content.
    """

    link_class: LinkClass
    hosts: tuple[str, ...] = Field(min_length=1, max_length=2)
    bandwidth_bytes_per_s: float = Field(gt=0)
    latency_s: float | None = Field(default=None, ge=0)
    method: str


class Topology(Frozen):
    """Nodes in rank order. ``sources`` says which reader gave which facts; ``measured``: links that were timed."""

    nodes: tuple[Node, ...]
    sources: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    measured: tuple[LinkSpeed, ...] = ()

    @property
    def device_count(self) -> int:
        return sum(len(node.devices) for node in self.nodes)

    @property
    def devices_per_node(self) -> tuple[int, ...]:
        return tuple(len(node.devices) for node in self.nodes)
