"""A snapshot of a machine whose NVML and sysfs are stood in for."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

from harness.doctor import inspect
from harness.doctor.look import look


class NVMLError(Exception):
    """As in pynvml."""


class FakeNvml:
    """Two H100 whose four NVLinks end at a switch; answers are overridden by name."""

    NVMLError = NVMLError

    def __init__(self, lost: int | None = None, **answers: Any) -> None:
        self._lost = lost
        self._answers: dict[str, Any] = {
            "nvmlInit": None,
            "nvmlShutdown": None,
            "nvmlDeviceGetCount": 2,
            "nvmlSystemGetDriverVersion": b"550.54.15",
            "nvmlDeviceGetName": "NVIDIA H100 80GB HBM3",
            "nvmlDeviceGetPerformanceState": 0,
            "nvmlDeviceGetCurrPcieLinkGeneration": 5,
            "nvmlDeviceGetMaxPcieLinkGeneration": 5,
            "nvmlDeviceGetCurrPcieLinkWidth": 16,
            "nvmlDeviceGetMaxPcieLinkWidth": 16,
            "nvmlDeviceGetTotalEccErrors": 0,
            "nvmlDeviceGetRemappedRows": (0, 0, 0, 0),
            "nvmlDeviceGetUUID": lambda handle: f"GPU-{handle}",
            "nvmlDeviceGetPciInfo": lambda handle: SimpleNamespace(busId=f"00000000:{handle}A:00.0".encode()),
            "nvmlDeviceGetNvLinkState": self._link,
            "nvmlDeviceGetNvLinkRemoteDeviceType": 2,  # a switch
            "nvmlDeviceGetHandleByIndex": self._handle,
            **answers,
        }

    def _handle(self, index: int) -> int:
        if index == self._lost:
            raise NVMLError("GPU is lost")
        return index + 1

    def _link(self, _handle: int, number: int) -> int:
        if number >= 4:
            raise NVMLError("Invalid Argument")
        return 1

    def __getattr__(self, name: str) -> Any:
        if not name.startswith("nvml"):
            raise AttributeError(name)
        if name not in self._answers:
            return self._unknown
        answer = self._answers[name]
        return answer if callable(answer) else lambda *_: answer

    @staticmethod
    def _unknown(*_: Any) -> Any:
        raise NVMLError("Not Supported")


def pci(root: Path, *buses: str, config: bytes = b"\xde\x10", **files: str) -> None:
    for bus in buses:
        folder = root / "bus/pci/devices" / bus
        folder.mkdir(parents=True)
        (folder / "config").write_bytes(config)
        facts = {"vendor": "0x10de", "class": "0x030200", "numa_node": "0", "local_cpulist": "0-3", **files}
        for name, value in facts.items():
            (folder / name).write_text(value + "\n")


def test_a_sound_machine(tmp_path: Path) -> None:
    pci(tmp_path, "0000:1a:00.0", "0000:2a:00.0")
    snapshot = look(FakeNvml(), tmp_path, "node0")
    assert snapshot.sources == ("nvml", "sysfs")
    assert (snapshot.driver, snapshot.attached, snapshot.problems) == ("550.54.15", 2, ())
    first = snapshot.gpus[0]
    assert (first.uuid, first.pci_bus, first.numa_node, first.nvlinks) == ("GPU-1", "0000:1a:00.0", 0, (True,) * 4)
    assert (first.pcie_generation, first.pcie_width_max, first.remap_pending) == (5, 16, False)
    assert snapshot.as_node().links[0].nvlink_count == 4
    assert [fault.rule for fault in inspect([snapshot]) if fault.rule != "affinity"] == []


def test_a_lost_gpu_is_found_with_its_place(tmp_path: Path) -> None:
    pci(tmp_path, "0000:1a:00.0", "0000:2a:00.0")
    snapshot = look(FakeNvml(lost=1), tmp_path, "node0")
    lost = snapshot.gpus[1]
    assert (lost.index, lost.lost, lost.pci_bus) == (1, "GPU is lost", "0000:2a:00.0")
    assert [device.index for device in snapshot.as_node().devices] == [0]
    assert "node0 GPU 1: it is lost (GPU is lost); drain the node" in inspect([snapshot])[-1].text


def test_a_device_that_answers_with_ones_is_lost(tmp_path: Path) -> None:
    pci(tmp_path, "0000:1a:00.0")
    pci(tmp_path, "0000:2a:00.0", config=b"\xff\xff")
    snapshot = look(FakeNvml(), tmp_path, "node0")
    assert [gpu.lost for gpu in snapshot.gpus] == [None, "it does not answer on the PCI bus"]


def test_a_container_answers_only_for_its_own_gpus(tmp_path: Path) -> None:
    pci(tmp_path, "0000:1a:00.0", "0000:2a:00.0", "0000:3a:00.0")
    snapshot = look(FakeNvml(), tmp_path, "node0")
    assert len(snapshot.gpus) == 2
    assert len(snapshot.pci_gpus) == 3


def test_without_nvml_the_kernel_shows_links_and_no_driver(tmp_path: Path) -> None:
    pci(
        tmp_path,
        "0000:1a:00.0",
        current_link_speed="8.0 GT/s PCIe",
        max_link_speed="32.0 GT/s PCIe",
        current_link_width="8",
        max_link_width="16",
    )
    broken = FakeNvml(nvmlInit=lambda: FakeNvml._unknown())
    snapshot = look(broken, tmp_path, "node0")
    gpu = snapshot.gpus[0]
    assert (gpu.pcie_generation, gpu.pcie_generation_max, gpu.pcie_width) == (3, 5, 8)
    rules = {fault.rule: fault.text for fault in inspect([snapshot])}
    assert "1 GPU without a driver (NVML does not start: Not Supported)" in rules["driver"]
    assert rules["pcie_width"].startswith("node0 GPU 0: PCIe runs at x8 of x16; reseat")


def test_a_machine_without_gpus_is_no_error(tmp_path: Path) -> None:
    snapshot = look(FakeNvml(nvmlDeviceGetCount=0), tmp_path, "login")
    assert (snapshot.gpus, snapshot.pci_gpus) == ((), ())
