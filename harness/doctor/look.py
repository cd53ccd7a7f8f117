"""A snapshot of this machine: NVML where it loads, and what the kernel shows of the PCI bus without any driver."""

from __future__ import annotations

import os
import re
import socket
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime
from importlib import import_module, metadata
from pathlib import Path
from typing import Any

from harness.doctor.snapshot import GpuFacts, Snapshot, joined
from harness.errors import TopologyError
from harness.topology import cpulist, nvml, sysfs
from harness.topology.model import Device, Node

_NVIDIA, _UNCORRECTED, _VOLATILE, _MAX_LINKS = "cuda", 1, 0, 36
# gigatransfers a second on one lane, by PCIe generation
_SPEEDS = {"2.5": 1, "5": 2, "5.0": 2, "8.0": 3, "8": 3, "16.0": 4, "16": 4, "32.0": 5, "32": 5, "64.0": 6, "64": 6}


def look(library: Any = None, sys_root: Path = Path("/sys"), host: str | None = None) -> Snapshot:
    """What can be seen of this machine; ``library`` stands in for pynvml in tests.

    What cannot be asked is said in ``problems``, it raises nothing.
    """
    kernel = _kernel(sys_root, host or socket.gethostname())
    try:
        driver = _driver(library if library is not None else import_module("pynvml"), kernel, sys_root)
    except Exception as error:  # pynvml raises its own classes; without the library it is ImportError or OSError
        return kernel.model_copy(update={"problems": (f"NVML does not start: {_cause(error)}",)})
    # a container may see every GPU on the bus and be given a few: those that the driver does not list are not its own
    listed = {gpu.pci_bus for gpu in driver.gpus}
    own = tuple(g for g in kernel.gpus if g.lost or g.pci_bus in listed or g.pci_bus not in kernel.pci_gpus)
    return joined(driver, kernel.model_copy(update={"gpus": own}))


def _kernel(sys_root: Path, host: str) -> Snapshot:
    gpus, node = [], None
    with suppress(TopologyError):
        node = sysfs.read(sys_root, host).nodes[0]
    for device in node.devices if node is not None else ():
        gpus.append(_pci_facts(device, sys_root))
    nvidia = [device.pci_bus for device in (node.devices if node else ()) if device.kind == _NVIDIA and device.pci_bus]
    return Snapshot(
        host=host,
        taken_at=datetime.now(UTC).isoformat(timespec="seconds"),
        sources=("sysfs",),
        nccl=_nccl(),
        pci_gpus=tuple(nvidia),
        numa_nodes=len(list((sys_root / "devices/system/node").glob("node[0-9]*"))) or None,
        allowed_cpus=cpulist.render(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else None,
        gpus=tuple(gpus),
        # without the driver NVLink cannot be seen, so links between NVIDIA GPUs would look farther than they are
        node=None if nvidia else node,
    )


def _pci_facts(device: Device, sys_root: Path) -> GpuFacts:
    folder = sys_root / "bus/pci/devices" / (device.pci_bus or "")
    try:
        # a device that has fallen off the bus answers every read with ones
        gone = (folder / "config").read_bytes()[:2] == b"\xff\xff"
    except OSError:
        gone = False
    return GpuFacts(
        index=device.index,
        kind=device.kind,
        name=device.name,
        pci_bus=device.pci_bus,
        numa_node=device.numa_node,
        cpus=device.cpus,
        lost="it does not answer on the PCI bus" if gone else None,
        pcie_generation=_generation(folder / "current_link_speed"),
        pcie_generation_max=_generation(folder / "max_link_speed"),
        pcie_width=_number(folder / "current_link_width"),
        pcie_width_max=_number(folder / "max_link_width"),
    )


def _driver(library: Any, kernel: Snapshot, sys_root: Path) -> Snapshot:
    library.nvmlInit()
    try:
        count = int(library.nvmlDeviceGetCount())
        gpus = [_gpu(library, index) for index in range(count)]
        version = _ask(library.nvmlSystemGetDriverVersion)
        node, problems = _node(library, kernel, sys_root)
    finally:
        _ask(library.nvmlShutdown)
    known = {gpu.pci_bus for gpu in gpus}
    unnamed = [bus for bus in kernel.pci_gpus if bus not in known]
    # one that is lost cannot say where it is; if only one place is left it is there
    if len(unnamed) == 1 and sum(gpu.lost is not None for gpu in gpus) == 1:
        gpus = [gpu if gpu.lost is None else gpu.model_copy(update={"pci_bus": unnamed[0]}) for gpu in gpus]
    facts = {device.index: device for device in node.devices} if node is not None else {}
    return Snapshot(
        host=kernel.host,
        taken_at=kernel.taken_at,
        sources=("nvml",),
        driver=None if version is None else _text(version),
        attached=count,
        gpus=tuple(_placed(gpu, facts.get(gpu.index or 0)) for gpu in gpus),
        node=node,
        problems=problems,
    )


def _node(library: Any, kernel: Snapshot, sys_root: Path) -> tuple[Node | None, tuple[str, ...]]:
    try:
        return nvml.read(library, sys_root, kernel.host).nodes[0], ()
    except TopologyError as error:
        return None, (str(error),)


def _placed(gpu: GpuFacts, device: Device | None) -> GpuFacts:
    if device is None or gpu.lost is not None:
        return gpu
    return gpu.model_copy(update={"numa_node": device.numa_node, "cpus": device.cpus})


def _gpu(library: Any, index: int) -> GpuFacts:
    try:
        handle = library.nvmlDeviceGetHandleByIndex(index)
    except Exception as error:  # NVML's own class, of which tests have no part
        return GpuFacts(index=index, lost=_cause(error))
    pci = _ask(library.nvmlDeviceGetPciInfo, handle)
    uuid, name = _ask(library.nvmlDeviceGetUUID, handle), _ask(library.nvmlDeviceGetName, handle)
    remapped = _ask(library.nvmlDeviceGetRemappedRows, handle)
    pages = _ask(library.nvmlDeviceGetRetiredPagesPendingStatus, handle)
    state = _ask(library.nvmlDeviceGetPerformanceState, handle)
    return GpuFacts(
        index=index,
        name=None if name is None else _text(name),
        uuid=None if uuid is None else _text(uuid),
        pci_bus=None if pci is None else sysfs.normal_bus(_text(pci.busId)),
        performance_state=state if isinstance(state, int) and 0 <= state <= 15 else None,
        pcie_generation=_ask(library.nvmlDeviceGetCurrPcieLinkGeneration, handle),
        pcie_generation_max=_ask(library.nvmlDeviceGetMaxPcieLinkGeneration, handle),
        pcie_width=_ask(library.nvmlDeviceGetCurrPcieLinkWidth, handle),
        pcie_width_max=_ask(library.nvmlDeviceGetMaxPcieLinkWidth, handle),
        nvlinks=_nvlinks(library, handle),
        ecc_uncorrected=_ask(library.nvmlDeviceGetTotalEccErrors, handle, _UNCORRECTED, _VOLATILE),
        remap_pending=_either(remapped[2] if remapped else None, pages),
        remap_failed=bool(remapped[3]) if remapped else None,
    )


def _nvlinks(library: Any, handle: Any) -> tuple[bool, ...] | None:
    states = []
    for link in range(_MAX_LINKS):
        state = _ask(library.nvmlDeviceGetNvLinkState, handle, link)
        if state is None:
            break
        states.append(bool(state))
    return tuple(states) or None


def _either(*values: int | None) -> bool | None:
    known = [bool(value) for value in values if value is not None]
    return any(known) if known else None


def _nccl() -> str | None:
    """Version of the NCCL wheel that torch loads; None where torch brings its own or there is none."""
    for name in ("nvidia-nccl-cu13", "nvidia-nccl-cu12", "nvidia-nccl-cu11"):
        with suppress(metadata.PackageNotFoundError):
            return metadata.version(name)
    return None


def _generation(path: Path) -> int | None:
    match = re.match(r"([0-9.]+) GT/s", _read(path))
    return _SPEEDS.get(match.group(1)) if match else None


def _number(path: Path) -> int | None:
    text = _read(path)
    return int(text) if text.isdecimal() and 0 < int(text) < 255 else None


def _read(path: Path) -> str:
    try:
        return path.read_text(errors="replace").strip()
    except OSError:
        return ""


def _ask(function: Callable[..., Any], *arguments: Any) -> Any:
    """The answer of one NVML call, None where this driver or device has none."""
    try:
        return function(*arguments)
    except Exception:
        return None


def _text(value: Any) -> str:
    return value.decode(errors="replace") if isinstance(value, bytes) else str(value)


def _cause(error: BaseException) -> str:
    return " ".join(str(error).split())[:80] or type(error).__name__
