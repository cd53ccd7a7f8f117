"""A mesh and the machine that it is for: axes, their order, hosts with their devices, links inside each axis."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

from pydantic import ConfigDict, Field, model_validator

from harness.base import Frozen, digest
from harness.errors import UsageError
from harness.layout import AXES, Layout, Mesh
from harness.layout.order import slots
from harness.layout.placement import Placer
from harness.topology.links import suggested_mesh
from harness.topology.model import Device, Link, LinkClass, Topology

SCHEMA = 1
ANY_HOST = "*"


class DeviceContract(Frozen):
    """One device as it must be found; a fact that is None is not checked."""

    index: int = Field(ge=0)
    kind: str = "cuda"
    name: str | None = None
    uuid: str | None = None
    pci_bus: str | None = None
    numa_node: int | None = None

    @property
    def text(self) -> str:
        """``GPU 3 (GPU-1a2b...)``, with whatever identifies it best."""
        identity = self.uuid or self.pci_bus
        word = "slot" if self.kind == "cpu" else "GPU"
        return f"{word} {self.index}" + (f" ({identity})" if identity else "")


class HostContract(Frozen):
    """One host and its devices in local rank order. Host ``*`` is any host, a different one for each entry."""

    host: str = Field(min_length=1)
    devices: tuple[DeviceContract, ...] = Field(min_length=1)


class AxisContract(Frozen):
    """One axis: its size and the farthest link that its groups may span (None: not checked).

    ``nvlink_count``: NVLinks that every two members share at least.
    """

    size: int = Field(ge=1)
    link_class: LinkClass | None = None
    nvlink_count: int | None = Field(default=None, ge=1)


class Slot(NamedTuple):
    """A device's place: position of the host, local rank there."""

    host: int
    local_rank: int


class MeshContract(Frozen):
    """The definition that every rank of a job must hold. ``order``: axes, the fastest over devices last."""

    # the file says `schema`; inside other JSON the field keeps its own name
    model_config = ConfigDict(validate_by_name=True)
    schema_version: int = Field(default=SCHEMA, alias="schema")
    name: str = Field(default="default", min_length=1)
    order: tuple[str, ...] = AXES
    axes: dict[str, AxisContract]
    hosts: tuple[HostContract, ...] = Field(min_length=1)

    @model_validator(mode="after")
    def _agrees_with_itself(self) -> MeshContract:
        if self.schema_version != SCHEMA:
            raise ValueError(f"schema is {self.schema_version} and this version reads {SCHEMA}")
        if tuple(self.axes) != AXES:
            raise ValueError(f"axes must be {', '.join(AXES)}, in this order; an axis that is not used has size 1")
        if sorted(self.order) != sorted(AXES):
            raise ValueError(f"order must name each of {', '.join(AXES)} once")
        devices = sum(len(host.devices) for host in self.hosts)
        if devices != self.mesh.world_size:
            sizes = " x ".join(str(size) for size in self.mesh.sizes)
            raise ValueError(f"axes {sizes} need {self.mesh.world_size} devices and the hosts list {devices}")
        twice = [h for h, n in Counter(h.host for h in self.hosts if h.host != ANY_HOST).items() if n > 1]
        if twice:
            raise ValueError(f"host {twice[0]} is listed twice")
        for host in self.hosts:
            if len({device.index for device in host.devices}) != len(host.devices):
                raise ValueError(f"host {host.host} lists a device twice")
        return self

    @property
    def mesh(self) -> Mesh:
        return Mesh(**{axis: contract.size for axis, contract in self.axes.items()})

    @property
    def world_size(self) -> int:
        return self.mesh.world_size

    @property
    def digest(self) -> str:
        """Hex digest of the whole definition; equal on all ranks or the job must not start."""
        return digest(self.model_dump(mode="json"), 16)

    def slots(self) -> tuple[Slot, ...]:
        """The place of each rank, in rank order."""
        places = [Slot(at, local) for at, host in enumerate(self.hosts) for local in range(len(host.devices))]
        return tuple(places[slot] for slot in slots(self.mesh, self.order))

    def device(self, slot: Slot) -> DeviceContract:
        """The device expected at a place."""
        return self.hosts[slot.host].devices[slot.local_rank]

    def used_axes(self) -> tuple[str, ...]:
        """Axes of size 2 or more, in their own order."""
        return tuple(axis for axis, contract in self.axes.items() if contract.size > 1)


def contract_mesh(topology: Topology) -> Mesh:
    """The shape that a machine suggests: replicate over nodes or islands, shard inside them.

    Raises:
        UsageError: nodes have no common size.
    """
    counts = set(topology.devices_per_node) - {0}
    if len(counts) > 1:
        raise UsageError("nodes differ in their number of devices; choose with --use-gpus or give --mesh")
    if not counts:
        raise UsageError("the machine has no devices; there is nothing to make a mesh of")
    (per_node,) = counts
    nodes = topology.device_count // per_node
    groups, size = (nodes, per_node) if nodes > 1 else suggested_mesh(topology) or (1, per_node)
    # groups of one device say that nothing joins any two closer than others
    return Mesh(dp_replicate=groups, dp_shard=size) if size > 1 or nodes > 1 else Mesh(dp_shard=per_node)


def make_contract(
    topology: Topology,
    mesh: Mesh,
    order: Sequence[str] = AXES,
    *,
    name: str = "default",
    any_host: bool = False,
) -> MeshContract:
    """The contract of ``mesh`` on exactly the devices of ``topology``, with every fact that is known of them.

    ``any_host`` leaves out host names and identities of devices, for jobs that land on other nodes each time.

    Raises:
        UsageError: the mesh does not span the devices.
    """
    if mesh.world_size != topology.device_count:
        raise UsageError(
            f"mesh {mesh.short} has {mesh.world_size} ranks and the machine {topology.device_count} devices; "
            "choose devices with --use-gpus or another mesh with --mesh"
        )
    placement = Placer(topology, order).place(Layout(strategy="single", mesh=mesh))
    links = _nvlinks(topology, mesh, order)
    axes = {}
    for axis, size in zip(AXES, mesh.sizes, strict=True):
        one = placement.axis(axis)
        known = one is not None and one.link_class is not LinkClass.UNKNOWN
        axes[axis] = AxisContract(
            size=size,
            link_class=one.link_class if one is not None and known else None,
            nvlink_count=links.get(axis),
        )
    hosts = tuple(
        HostContract(
            host=ANY_HOST if any_host else node.host,
            devices=tuple(_device(device, any_host) for device in node.devices),
        )
        for node in topology.nodes
        if node.devices
    )
    return MeshContract(name=name, order=tuple(order), axes=axes, hosts=hosts)


def _device(device: Device, any_host: bool) -> DeviceContract:
    return DeviceContract(
        index=device.index,
        kind=device.kind,
        name=device.name,
        uuid=None if any_host else device.uuid,
        pci_bus=None if any_host else device.pci_bus,
        numa_node=device.numa_node,
    )


def _nvlinks(topology: Topology, mesh: Mesh, order: Sequence[str]) -> dict[str, int]:
    """For each axis whose groups are joined by NVLink alone, the fewest links between two members."""
    if not any(link.nvlink_count for node in topology.nodes for link in node.links):
        return {}
    devices = [(at, device.index) for at, node in enumerate(topology.nodes) for device in node.devices]
    counts = [{(link.a, link.b): link for link in node.links} for node in topology.nodes]
    at = slots(mesh, order)
    found: dict[str, int] = {}
    for axis, size in zip(AXES, mesh.sizes, strict=True):
        if size == 1:
            continue
        fewest = math.inf
        for group in mesh.groups(axis):
            members = [devices[at[rank]] for rank in group]
            fewest = min(fewest, *(_shared(counts, a, b) for i, a in enumerate(members) for b in members[i + 1 :]))
            if fewest == 0:
                break
        if 0 < fewest < math.inf:
            found[axis] = int(fewest)
    return found


def _shared(counts: Sequence[dict[tuple[int, int], Link]], a: tuple[int, int], b: tuple[int, int]) -> int:
    if a[0] != b[0]:
        return 0
    link = counts[a[0]].get((min(a[1], b[1]), max(a[1], b[1])))
    return link.nvlink_count or 0 if link else 0
