"""Devices as the kernel sees them on PCI: switch, root complex, NUMA node and CPUs by bus id."""

from __future__ import annotations

import re
import socket
from dataclasses import dataclass
from pathlib import Path

from harness.errors import TopologyError
from harness.topology import cpulist
from harness.topology.model import Device, Link, LinkClass, Node, Topology
from harness.topology.plain import small_int

_BUS = re.compile(r"[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]\Z")
_KINDS = {"0x10de": ("cuda", ("0x0300", "0x0302")), "0x1002": ("rocm", ("0x0380", "0x1200", "0x0302"))}
SOURCE = "sysfs: PCI switches, root complexes, NUMA nodes, CPUs"


@dataclass(frozen=True)
class PciPlace:
    """Where a PCI device hangs: ``path`` from the root complex through every bridge to the device itself."""

    bus: str
    path: tuple[str, ...]
    numa_node: int | None
    local_cpus: str | None
    remote_cpus: str | None

    @property
    def root_complex(self) -> str:
        return self.path[0]


def read(root: Path = Path("/sys"), host: str | None = None) -> Topology:
    """The accelerators under ``root`` in order of bus id, which is CUDA's order with PCI_BUS_ID."""
    found = accelerators(root)
    if not found:
        raise TopologyError("no NVIDIA or AMD accelerator on the PCI bus; use the CPU reader on such a host")
    places = [place(bus, root) for bus, _ in found]
    hives = [_read(root / "bus/pci/devices" / bus / "xgmi_hive_info/xgmi_hive_id") for bus, _ in found]
    devices = tuple(
        Device(
            index=index,
            kind=kind,
            name=_read(root / "bus/pci/devices" / bus / "product_name") or None,
            pci_bus=bus,
            numa_node=places[index].numa_node,
            cpus=places[index].local_cpus,
        )
        for index, (bus, kind) in enumerate(found)
    )
    links = tuple(
        Link(a=a, b=b, link_class=_class(places[a], places[b], (hives[a], hives[b])))
        for a in range(len(places))
        for b in range(a + 1, len(places))
    )
    warnings = []
    if any(kind == "cuda" for _, kind in found) and len(found) > 1:
        warnings.append("sysfs does not show NVLink; save `nvidia-smi topo -m` where a driver runs")
    node = Node(host=host or socket.gethostname(), devices=devices, links=links)
    return Topology(nodes=(node,), sources=(SOURCE,), warnings=tuple(warnings))


def accelerators(root: Path = Path("/sys")) -> list[tuple[str, str]]:
    """Bus id and kind of every NVIDIA and AMD compute device, by bus id."""
    found: list[tuple[str, str]] = []
    for folder in sorted((root / "bus/pci/devices").glob("*:*:*.*")):
        kind, classes = _KINDS.get(_read(folder / "vendor"), ("", ()))
        if kind and _read(folder / "class").startswith(classes) and _BUS.match(folder.name):
            found.append((folder.name, kind))
    return found


def place(bus: str, root: Path = Path("/sys")) -> PciPlace:
    """Where the device ``bus`` (any of the spellings of a bus id) hangs."""
    name = normal_bus(bus)
    folder = root / "bus/pci/devices" / name
    try:
        real = folder.resolve(strict=True)
    except (OSError, RuntimeError) as error:
        raise TopologyError(f"there is no PCI device {name} here; check the bus id with lspci") from error
    parts = real.parts
    start = next((at for at, part in enumerate(parts) if part.startswith("pci")), len(parts) - 1)
    numa = _read(folder / "numa_node")
    local = _read(folder / "local_cpulist") or None
    return PciPlace(
        bus=name,
        path=parts[start:],
        numa_node=small_int(numa),
        local_cpus=local,
        remote_cpus=_remote(local, _read(root / "devices/system/cpu/online")),
    )


def normal_bus(bus: str) -> str:
    """The kernel's spelling of a bus id: ``00000000:1A:00.0`` and ``1a:00.0`` are ``0000:1a:00.0``."""
    match = re.fullmatch(r"(?:([0-9a-f]{1,8}):)?([0-9a-f]{1,2}):([0-9a-f]{1,2})(?:\.([0-7]))?", bus.strip().lower())
    if match is None:
        raise TopologyError(f"{bus[:40]!r} is no PCI bus id; expected the form 0000:1a:00.0")
    domain, number, device, function = match.groups()
    return f"{int(domain or '0', 16):04x}:{number:0>2}:{device:0>2}.{function or 0}"


def link_class(a: PciPlace, b: PciPlace) -> LinkClass:
    """How PCI joins two devices."""
    return _class(a, b, ("", ""))


def _class(a: PciPlace, b: PciPlace, hives: tuple[str, str]) -> LinkClass:
    if hives[0] not in ("", "0") and hives[0] == hives[1]:
        return LinkClass.XGMI
    shared = next(
        (at for at, (one, other) in enumerate(zip(a.path, b.path, strict=False)) if one != other),
        min(len(a.path), len(b.path)),
    )
    # The root complex comes first and a root port second; only a bridge below these is a switch of both.
    if shared > 2:
        return LinkClass.PCIE_SWITCH
    if shared >= 1:
        return LinkClass.HOST_BRIDGE
    if a.numa_node is None or b.numa_node is None:
        return LinkClass.UNKNOWN
    return LinkClass.NUMA_NODE if a.numa_node == b.numa_node else LinkClass.OTHER_SOCKET


def _remote(local: str | None, online: str) -> str | None:
    mine, all_cpus = cpulist.parse(local), cpulist.parse(online)
    if mine is None or all_cpus is None:
        return None
    return cpulist.render(all_cpus - mine)


def _read(path: Path) -> str:
    try:
        return path.read_text(errors="replace").strip()
    except OSError:
        return ""
