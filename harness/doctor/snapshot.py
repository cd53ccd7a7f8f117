"""What one machine said of itself at one time. A fact that no source gave is None."""

from __future__ import annotations

from typing import Any

from pydantic import Field

from harness.base import Frozen
from harness.topology.model import Device, Node, Topology


class GpuFacts(Frozen):
    """One GPU. ``lost``: why the driver cannot talk to it. ``nvlinks``: whether each link is active, by its number.

    Generations and widths (lanes) are those of its PCIe link, now and at most. ``performance_state`` is 0 (full) to 15
    (idle). ``ecc_uncorrected`` counts errors since the driver was loaded.
    """

    index: int | None = None
    kind: str = "cuda"
    name: str | None = None
    uuid: str | None = None
    pci_bus: str | None = None
    numa_node: int | None = None
    cpus: str | None = None
    lost: str | None = None
    performance_state: int | None = None
    pcie_generation: int | None = None
    pcie_generation_max: int | None = None
    pcie_width: int | None = None
    pcie_width_max: int | None = None
    nvlinks: tuple[bool, ...] | None = None
    ecc_uncorrected: int | None = None
    sram_threshold_exceeded: bool | None = None
    remap_pending: bool | None = None
    remap_failed: bool | None = None
    repair_pending: bool | None = None
    reset_required: bool | None = None

    @property
    def text(self) -> str:
        """``GPU 3``, or its bus id where no number is known."""
        return f"GPU {self.index if self.index is not None else self.pci_bus or self.uuid or '?'}"


class Snapshot(Frozen):
    """One machine. ``attached`` is the number of GPUs by the driver; ``pci_gpus`` those on the PCI bus.

    ``allowed_cpus`` are those of the process that looked. ``problems`` are what a source said instead of facts.
    """

    schema_version: int = 1
    host: str
    taken_at: str | None = None
    sources: tuple[str, ...] = ()
    driver: str | None = None
    nccl: str | None = None
    attached: int | None = Field(default=None, ge=0)
    pci_gpus: tuple[str, ...] = ()
    numa_nodes: int | None = None
    allowed_cpus: str | None = None
    gpus: tuple[GpuFacts, ...] = ()
    node: Node | None = None
    problems: tuple[str, ...] = ()

    @property
    def blind(self) -> bool:
        """Whether nothing could be asked: no GPU is seen and no driver answers, so that none is known to be missing."""
        return bool(self.problems) and self.driver is None and not self.gpus and not self.pci_gpus

    def as_node(self) -> Node:
        """The machine as a topology's node: the GPUs that answer, with the links that a reader gave."""
        devices = tuple(
            Device(
                index=position if gpu.index is None else gpu.index,
                kind=gpu.kind,
                name=gpu.name,
                uuid=gpu.uuid,
                pci_bus=gpu.pci_bus,
                numa_node=gpu.numa_node,
                cpus=gpu.cpus,
            )
            for position, gpu in enumerate(self.gpus)
            if gpu.lost is None
        )
        present = {device.index for device in devices}
        links = self.node.links if self.node is not None else ()
        return Node(
            host=self.host,
            devices=devices,
            links=tuple(link for link in links if link.a in present and link.b in present),
        )


def topology_of(snapshots: tuple[Snapshot, ...]) -> Topology:
    """All machines as one topology."""
    return Topology(nodes=tuple(snapshot.as_node() for snapshot in snapshots), sources=("snapshots",))


def joined(first: Snapshot, second: Snapshot) -> Snapshot:
    """Two snapshots of one machine as one; where both know a fact the first one's stands."""
    gpus = list(first.gpus)
    for gpu in second.gpus:
        at = next((at for at, other in enumerate(gpus) if _same(gpu, other)), None)
        if at is None:
            gpus.append(gpu)
        else:
            gpus[at] = gpus[at].model_copy(update=_missing(gpus[at], gpu))
    several = {
        "sources": (*first.sources, *second.sources),
        "problems": (*first.problems, *second.problems),
        "pci_gpus": first.pci_gpus or second.pci_gpus,
        "gpus": tuple(gpus),
    }
    return first.model_copy(update={**_missing(first, second), **several})


def _missing(first: Frozen, second: Frozen) -> dict[str, Any]:
    return {name: value for name, value in second if value is not None and getattr(first, name) is None}


def _same(one: GpuFacts, other: GpuFacts) -> bool:
    for fact in ("uuid", "pci_bus", "index"):
        mine, theirs = getattr(one, fact), getattr(other, fact)
        if mine is not None and theirs is not None:
            return bool(mine == theirs)
    return False
