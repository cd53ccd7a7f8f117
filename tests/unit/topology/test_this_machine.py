"""Readers of the machine itself, against made-up machines: a /sys tree, a pynvml, command-line tools."""

from __future__ import annotations

import subprocess
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from harness.errors import TopologyError, UnknownNameError
from harness.topology import cpu, detect, nvml, sysfs
from harness.topology.links import islands
from harness.topology.model import LinkClass


def pci_device(
    sys_root: Path, path: str, vendor: str, kind: str = "0x030200", numa: int = 0, cpus: str = "0-3"
) -> None:
    folder = sys_root / "devices" / path
    folder.mkdir(parents=True)
    facts = {"vendor": vendor, "class": kind, "numa_node": str(numa), "local_cpulist": cpus}
    for name, value in facts.items():
        (folder / name).write_text(value + "\n")
    link = sys_root / "bus/pci/devices" / folder.name
    link.parent.mkdir(parents=True, exist_ok=True)
    link.symlink_to(folder)


@pytest.fixture
def sys_root(tmp_path: Path) -> Path:
    """Two GPUs below one switch, one at another port of that root complex, one at each of two further ones."""
    switch = "pci0000:00/0000:00:01.0/0000:01:00.0"
    pci_device(tmp_path, f"{switch}/0000:02:08.0/0000:03:00.0", "0x10de")
    pci_device(tmp_path, f"{switch}/0000:02:10.0/0000:04:00.0", "0x10de")
    pci_device(tmp_path, "pci0000:00/0000:00:02.0/0000:05:00.0", "0x10de")
    pci_device(tmp_path, "pci0000:40/0000:40:01.0/0000:41:00.0", "0x10de")
    pci_device(tmp_path, "pci0000:80/0000:80:01.0/0000:81:00.0", "0x10de", numa=1, cpus="4-7")
    pci_device(tmp_path, "pci0000:80/0000:80:02.0/0000:82:00.0", "0x15b3", kind="0x020700", numa=1)
    pci_device(tmp_path, "pci0000:80/0000:80:03.0/0000:83:00.0", "0x10de", kind="0x040300", numa=1)
    online = tmp_path / "devices/system/cpu"
    online.mkdir(parents=True)
    (online / "online").write_text("0-7\n")
    return tmp_path


def test_pci_paths_give_the_link_classes(sys_root: Path) -> None:
    node = sysfs.read(sys_root, host="n").nodes[0]
    assert [device.pci_bus for device in node.devices] == [
        "0000:03:00.0",
        "0000:04:00.0",
        "0000:05:00.0",
        "0000:41:00.0",
        "0000:81:00.0",
    ]
    classes = {(link.a, link.b): link.link_class for link in node.links}
    assert classes[0, 1] is LinkClass.PCIE_SWITCH
    assert classes[0, 2] is LinkClass.HOST_BRIDGE
    assert classes[0, 3] is LinkClass.NUMA_NODE
    assert classes[0, 4] is LinkClass.OTHER_SOCKET
    assert [device.numa_node for device in node.devices] == [0, 0, 0, 0, 1]


def test_place_by_any_spelling_of_the_bus_id(sys_root: Path) -> None:
    place = sysfs.place("00000000:81:00.0", sys_root)
    assert (place.root_complex, place.numa_node) == ("pci0000:80", 1)
    assert (place.local_cpus, place.remote_cpus) == ("4-7", "0-3")
    assert sysfs.link_class(place, sysfs.place("03:00", sys_root)) is LinkClass.OTHER_SOCKET
    for bad in ("0000:99:00.0", "nonsense", "../../etc"):
        with pytest.raises(TopologyError):
            sysfs.place(bad, sys_root)


def test_unknown_numa_node_stays_unknown(tmp_path: Path) -> None:
    pci_device(tmp_path, "pci0000:00/0000:00:05.0", "0x10de", numa=-1)
    pci_device(tmp_path, "pci0001:00/0001:00:05.0", "0x10de", numa=-1)
    node = sysfs.read(tmp_path, host="n").nodes[0]
    assert [device.numa_node for device in node.devices] == [None, None]
    assert node.links[0].link_class is LinkClass.UNKNOWN


def test_amd_devices_of_one_hive(tmp_path: Path) -> None:
    for bus in ("0000:c1:00.0", "0000:c2:00.0", "0000:c3:00.0"):
        pci_device(tmp_path, f"pci0000:c0/{bus}", "0x1002", kind="0x120000")
        hive = tmp_path / "devices/pci0000:c0" / bus / "xgmi_hive_info"
        hive.mkdir()
        (hive / "xgmi_hive_id").write_text("7" if bus != "0000:c3:00.0" else "0")
    node = sysfs.read(tmp_path, host="n").nodes[0]
    assert islands(node) == ((0, 1),) and node.devices[0].kind == "rocm"


def test_no_accelerator_is_said_so(tmp_path: Path) -> None:
    with pytest.raises(TopologyError, match="no NVIDIA or AMD"):
        sysfs.read(tmp_path)


class NvmlError(Exception):
    pass


class FakeNvml:
    """Three GPUs: 0 and 1 with two NVLinks to a switch each, 2 with one link to GPU 0 and PCIe otherwise."""

    NVMLError = NvmlError
    BUSES = (b"00000000:03:00.0", b"00000000:04:00.0", b"00000000:81:00.0")
    LINKS = (
        (b"00000000:F0:00.0", b"00000000:F1:00.0", BUSES[2]),
        (b"00000000:F0:00.0", b"00000000:F1:00.0"),
        (BUSES[0],),
    )

    def nvmlInit(self) -> None: ...

    def nvmlShutdown(self) -> None: ...

    def nvmlSystemGetDriverVersion(self) -> bytes:
        return b"550.1"

    def nvmlDeviceGetCount(self) -> int:
        return 3

    def nvmlDeviceGetHandleByIndex(self, index: int) -> int:
        return index

    def nvmlDeviceGetPciInfo(self, handle: int) -> Any:
        return SimpleNamespace(busId=self.BUSES[handle])

    def nvmlDeviceGetMemoryInfo(self, handle: int) -> Any:
        return SimpleNamespace(total=80 << 30)

    def nvmlDeviceGetName(self, handle: int | str) -> str:
        return "NVIDIA X" if isinstance(handle, int) else "NVIDIA X MIG 1g.5gb"

    def nvmlDeviceGetUUID(self, handle: int | str) -> str:
        return f"GPU-{handle}" if isinstance(handle, int) else "MIG-9"

    def nvmlDeviceGetCpuAffinity(self, handle: int, words: int) -> list[int]:
        return [0b1111, 0b1] + [0] * (words - 2)

    def nvmlDeviceGetMigMode(self, handle: int) -> tuple[int, int]:
        return (int(handle == 2), 0)

    def nvmlDeviceGetMaxMigDeviceCount(self, handle: int) -> int:
        return 2

    def nvmlDeviceGetMigDeviceHandleByIndex(self, handle: int, place: int) -> str:
        if place:
            raise NvmlError("not found")
        return "mig"

    def nvmlDeviceGetNvLinkState(self, handle: int, link: int) -> int:
        if link >= len(self.LINKS[handle]):
            raise NvmlError("invalid argument")
        return 1

    def nvmlDeviceGetNvLinkRemoteDeviceType(self, handle: int, link: int) -> int:
        return 2 if b":F" in self.LINKS[handle][link] else 0

    def nvmlDeviceGetNvLinkRemotePciInfo(self, handle: int, link: int) -> Any:
        return SimpleNamespace(busId=self.LINKS[handle][link])

    def nvmlDeviceGetTopologyCommonAncestor(self, a: int, b: int) -> int:
        return 50

    def __getattr__(self, name: str) -> Any:
        def missing(*arguments: object) -> None:
            raise NvmlError(f"{name}: function not found")

        return missing


def test_nvml_counts_direct_and_switched_links(sys_root: Path) -> None:
    topology = nvml.read(FakeNvml(), sys_root, host="n")
    node = topology.nodes[0]
    links = {(link.a, link.b): (link.link_class, link.nvlink_count) for link in node.links}
    assert links == {
        (0, 1): (LinkClass.NVLINK, 2),
        (0, 2): (LinkClass.NVLINK, 1),
        (1, 2): (LinkClass.OTHER_SOCKET, None),
    }
    assert [device.numa_node for device in node.devices] == [0, 0, 1]
    assert node.devices[0].pci_bus == "0000:03:00.0" and node.devices[0].cpus == "0-3,64"
    assert node.devices[0].memory_numa_node is None and node.devices[0].memory_bytes == 80 << 30
    assert [(part.profile, part.uuid) for part in node.devices[2].mig] == [("1g.5gb", "MIG-9")]
    assert "driver 550.1" in topology.sources[0]


def test_nvml_that_does_not_start_or_breaks(tmp_path: Path) -> None:
    class NoDriver(FakeNvml):
        def nvmlInit(self) -> None:
            raise NvmlError("Driver Not Loaded")

    class Lost(FakeNvml):
        def nvmlDeviceGetHandleByIndex(self, index: int) -> int:
            raise NvmlError("GPU is lost")

    class Empty(FakeNvml):
        def nvmlDeviceGetCount(self) -> int:
            return 0

    for library, cause in ((NoDriver(), "Driver Not Loaded"), (Lost(), "GPU is lost"), (Empty(), "no GPU")):
        with pytest.raises(TopologyError, match=cause):
            nvml.read(library, tmp_path)


def test_cpu_slots_share_out_the_cpus(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(cpu, "_usable_cpus", lambda: (0, 1, 2, 3))
    for number, cpus in enumerate(("0-1", "2-3")):
        folder = tmp_path / f"devices/system/node/node{number}"
        folder.mkdir(parents=True)
        (folder / "cpulist").write_text(cpus)
    node = cpu.read(2, host="n", sys_root=tmp_path).nodes[0]
    assert [(device.cpus, device.numa_node, device.kind) for device in node.devices] == [
        ("0-1", 0, "cpu"),
        ("2-3", 1, "cpu"),
    ]
    assert node.links[0].link_class is LinkClass.HOST_MEMORY
    assert [device.cpus for device in cpu.read(6, host="n", sys_root=tmp_path).nodes[0].devices][:2] == ["0", "0"]
    with pytest.raises(TopologyError, match="from 1 to"):
        cpu.read(0)


def test_auto_takes_the_first_that_works_and_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    def absent() -> Any:
        raise TopologyError("not here")

    readers = {"nvml": absent, "cpu": lambda: cpu.read(2, host="n")}
    monkeypatch.setattr(detect, "_READERS", readers)
    assert "nvml not used: not here" in detect.detect().sources
    monkeypatch.setattr(detect, "_READERS", {"nvml": absent})
    with pytest.raises(TopologyError, match="no source of topology"):
        detect.detect()


def test_unknown_source_is_refused() -> None:
    with pytest.raises(UnknownNameError, match="nvml"):
        detect.detect("lspci")


def test_tool_output_and_list_are_one_node(monkeypatch: pytest.MonkeyPatch) -> None:
    outputs = {
        "topo": b"\tGPU0\tGPU1\tCPU Affinity\tNUMA Affinity\nGPU0\t X \tNV4\t0-3\t0\nGPU1\tNV4\t X \t0-3\t0\n",
        "-L": b"GPU 0: A (UUID: GPU-1)\nGPU 1: A (UUID: GPU-2)\n",
    }

    def run(command: tuple[str, ...], **options: object) -> Any:
        return SimpleNamespace(returncode=0, stdout=outputs[command[1]])

    monkeypatch.setattr(subprocess, "run", run)
    node = detect.detect("nvidia-smi").nodes[0]
    assert [(device.uuid, device.numa_node) for device in node.devices] == [("GPU-1", 0), ("GPU-2", 0)]
    assert len(node.links) == 1
    monkeypatch.setattr(subprocess, "run", lambda *_, **__: SimpleNamespace(returncode=9, stdout=b""))
    with pytest.raises(TopologyError, match="exits with 9"):
        detect.detect("rocm-smi")
