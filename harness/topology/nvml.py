"""NVML through ``nvidia-ml-py``: the driver's own answer, without any text in between."""

from __future__ import annotations

import socket
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

from harness.errors import TopologyError
from harness.topology import cpulist, sysfs
from harness.topology.model import Device, Link, LinkClass, MigSlice, Node, Topology

_MAX_LINKS = 36
_MAX_CPU_WORDS = 64
_REMOTE_KINDS = {0: "gpu", 1: "other", 2: "switch"}  # NVML_NVLINK_DEVICE_TYPE_*
_P2P_NVLINK = 2  # NVML_P2P_CAPS_INDEX_NVLINK
SOURCE = "nvml: devices, links, CPU affinity"
# NVML's levels of the common ancestor of two devices.
_LEVELS = {
    0: ("PIX", LinkClass.PCIE_SWITCH),
    10: ("PIX", LinkClass.PCIE_SWITCH),
    20: ("PXB", LinkClass.PCIE_SWITCH),
    30: ("PHB", LinkClass.HOST_BRIDGE),
    40: ("NODE", LinkClass.NUMA_NODE),
    50: ("SYS", LinkClass.OTHER_SOCKET),
}


def read(library: Any = None, sys_root: Path = Path("/sys"), host: str | None = None) -> Topology:
    """This host's GPUs; ``library`` stands in for pynvml in tests."""
    nvml = library if library is not None else _load()
    try:
        nvml.nvmlInit()
    except Exception as error:  # pynvml raises its own classes, and OSError where the library is broken
        raise TopologyError(f"NVML does not start ({_cause(error)}); load the NVIDIA driver") from error
    try:
        return _topology(nvml, sys_root, host or socket.gethostname())
    except nvml.NVMLError as error:
        raise TopologyError(f"NVML failed ({_cause(error)}); check the driver with nvidia-smi") from error
    finally:
        _ask(nvml.nvmlShutdown)


def _load() -> Any:
    try:
        return import_module("pynvml")
    except Exception as error:
        raise TopologyError(f"pynvml cannot be imported ({_cause(error)}); install nvidia-ml-py") from error


def _topology(nvml: Any, sys_root: Path, host: str) -> Topology:
    handles = [nvml.nvmlDeviceGetHandleByIndex(index) for index in range(nvml.nvmlDeviceGetCount())]
    if not handles:
        raise TopologyError("NVML sees no GPU; ask for one in the job, or use the CPU reader")
    devices = tuple(_device(nvml, index, handle, sys_root) for index, handle in enumerate(handles))
    remotes = [_remotes(nvml, handle) for handle in handles]
    links = tuple(
        _link(nvml, (a, b), handles, devices, remotes) for a in range(len(handles)) for b in range(a + 1, len(handles))
    )
    driver = _ask(nvml.nvmlSystemGetDriverVersion)
    source = SOURCE if driver is None else f"{SOURCE}; driver {_text(driver)}"
    node = Node(host=host, devices=devices, links=links)
    return Topology(nodes=(node,), sources=(source, "sysfs: NUMA nodes"))


def _device(nvml: Any, index: int, handle: Any, sys_root: Path) -> Device:
    pci = _ask(nvml.nvmlDeviceGetPciInfo, handle)
    bus = None if pci is None else sysfs.normal_bus(_text(pci.busId))
    memory = _ask(nvml.nvmlDeviceGetMemoryInfo, handle)
    name, uuid = _ask(nvml.nvmlDeviceGetName, handle), _ask(nvml.nvmlDeviceGetUUID, handle)
    memory_numa = _ask(nvml.nvmlDeviceGetNumaNodeId, handle)
    return Device(
        index=index,
        kind="cuda",
        name=None if name is None else _text(name),
        uuid=None if uuid is None else _text(uuid),
        pci_bus=bus,
        numa_node=_numa_node(bus, sys_root),
        memory_numa_node=memory_numa if isinstance(memory_numa, int) and memory_numa >= 0 else None,
        cpus=_cpus(nvml, handle),
        memory_bytes=None if memory is None else int(memory.total),
        mig=_mig(nvml, handle),
    )


def _numa_node(bus: str | None, sys_root: Path) -> int | None:
    if bus is None:
        return None
    try:
        return sysfs.place(bus, sys_root).numa_node
    except TopologyError:
        return None


def _cpus(nvml: Any, handle: Any) -> str | None:
    words = _ask(nvml.nvmlDeviceGetCpuAffinity, handle, _MAX_CPU_WORDS)
    if words is None:
        return None
    bits = sum(int(word) << (64 * place) for place, word in enumerate(words))
    return cpulist.render(cpu for cpu in range(bits.bit_length()) if bits >> cpu & 1) or None


def _mig(nvml: Any, handle: Any) -> tuple[MigSlice, ...]:
    mode = _ask(nvml.nvmlDeviceGetMigMode, handle)
    if not mode or not mode[0]:
        return ()
    found: list[MigSlice] = []
    for place in range(_ask(nvml.nvmlDeviceGetMaxMigDeviceCount, handle) or 0):
        part = _ask(nvml.nvmlDeviceGetMigDeviceHandleByIndex, handle, place)
        if part is None:
            continue
        name, uuid = _ask(nvml.nvmlDeviceGetName, part), _ask(nvml.nvmlDeviceGetUUID, part)
        profile = "unknown" if name is None else _text(name).split("MIG ")[-1]
        found.append(MigSlice(profile=profile, index=place, uuid="" if uuid is None else _text(uuid)))
    return tuple(found)


def _remotes(nvml: Any, handle: Any) -> list[str]:
    """What is at the other end of each active NVLink: a bus id, "switch", "other" (a CPU) or "unknown"."""
    ends: list[str] = []
    for number in range(_MAX_LINKS):
        if not _ask(nvml.nvmlDeviceGetNvLinkState, handle, number):
            continue
        kind = _REMOTE_KINDS.get(_ask(nvml.nvmlDeviceGetNvLinkRemoteDeviceType, handle, number), "unknown")
        remote = None if kind in ("switch", "other") else _ask(nvml.nvmlDeviceGetNvLinkRemotePciInfo, handle, number)
        try:
            ends.append(kind if remote is None else sysfs.normal_bus(_text(remote.busId)))
        except TopologyError:
            ends.append(kind)
    return ends


def _link(
    nvml: Any, pair: tuple[int, int], handles: list[Any], devices: tuple[Device, ...], remotes: list[list[str]]
) -> Link:
    a, b = pair
    count = sum(end == devices[b].pci_bus for end in remotes[a])
    # All that reach a switch reach each other through it.
    count = count or min(remotes[one].count("switch") for one in pair)
    if not count and _ask(nvml.nvmlDeviceGetP2PStatus, handles[a], handles[b], _P2P_NVLINK) == 0:
        count = min(len(remotes[one]) for one in pair)
    if count:
        return Link(a=a, b=b, link_class=LinkClass.NVLINK, nvlink_count=count, label=f"NV{count}")
    level = _ask(nvml.nvmlDeviceGetTopologyCommonAncestor, handles[a], handles[b])
    label, kind = _LEVELS.get(-1 if level is None else int(level), (None, LinkClass.UNKNOWN))
    return Link(a=a, b=b, link_class=kind, label=label)


def _ask(function: Callable[..., Any], *arguments: Any) -> Any:
    """The answer of one NVML call, None where this driver or device has none."""
    try:
        return function(*arguments)
    except Exception:  # every NVML error means "not known"; functions that the driver lacks raise others
        return None


def _text(value: Any) -> str:
    return value.decode(errors="replace") if isinstance(value, bytes) else str(value)


def _cause(error: BaseException) -> str:
    return " ".join(str(error).split())[:80] or type(error).__name__
