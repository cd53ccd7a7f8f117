"""Saved outputs become snapshots: nvidia-smi -q, nvlink --status, topology listings, snapshots themselves."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.doctor import GpuFacts, Snapshot, read_snapshots
from harness.doctor.saved import read_nvlink_status, read_query
from harness.doctor.snapshot import joined
from harness.errors import MeshsweepError, TopologyError

QUERY = """
==============NVSMI LOG==============

Timestamp                                 : Mon Jan  5 08:00:01 2026
Driver Version                            : 550.54.15
CUDA Version                              : 12.4

Attached GPUs                             : 2
GPU 00000000:1A:00.0
    Product Name                          : NVIDIA A100-SXM4-80GB
    GPU UUID                              : GPU-aaaa
    GPU Reset Status
        Reset Required                    : No
        Drain and Reset Recommended       : No
    PCI
        Bus                               : 0x1A
        GPU Link Info
            PCIe Generation
                Max                       : 4
                Current                   : 1
                Device Current            : 1
            Link Width
                Max                       : 16x
                Current                   : 8x
    Performance State                     : P8
    ECC Mode
        Current                           : Enabled
        Pending                           : Enabled
    ECC Errors
        Volatile
            SRAM Correctable              : 3
            SRAM Uncorrectable Parity     : 1
            SRAM Uncorrectable SEC-DED    : 0
            DRAM Correctable              : 177
            DRAM Uncorrectable            : 4
        Aggregate
            DRAM Uncorrectable            : 900
            SRAM Threshold Exceeded       : Yes
    Retired Pages
        Single Bit ECC                    : N/A
        Double Bit ECC                    : N/A
        Pending Page Blacklist            : N/A
    Remapped Rows
        Correctable Error                 : 1
        Uncorrectable Error               : 0
        Pending                           : Yes
        Remapping Failure Occurred        : No
        Bank Remap Availability Histogram
            Max                           : 639 bank(s)
    Processes                             : None

GPU 00000000:2A:00.0
    Product Name                          : NVIDIA A100-SXM4-80GB
    GPU UUID                              : GPU-bbbb
    ECC Errors
        Volatile
            SRAM Uncorrectable            : N/A
    Remapped Rows                         : N/A
"""
OLD_ECC = """==============NVSMI LOG==============
Attached GPUs                             : 1
GPU 0000:03:00.0
    ECC Errors
        Volatile
            Single Bit
                Total                     : 5
            Double Bit
                Device Memory             : 2
                Total                     : 2
    Retired Pages
        Pending Page Blacklist            : Yes
"""
STATUS = """GPU 0: NVIDIA A100-SXM4-80GB (UUID: GPU-aaaa)
\t Link 0: 25 GB/s
\t Link 1: <inactive>
\t Link 2: 25.781 GB/s
GPU 1: NVIDIA A100-SXM4-80GB (UUID: GPU-bbbb)
"""


def test_query_facts() -> None:
    snapshot = read_query(QUERY, "node0")
    assert (snapshot.driver, snapshot.attached, snapshot.taken_at) == ("550.54.15", 2, "Mon Jan  5 08:00:01 2026")
    assert snapshot.gpus[0] == GpuFacts(
        index=0,
        name="NVIDIA A100-SXM4-80GB",
        uuid="GPU-aaaa",
        pci_bus="0000:1a:00.0",
        performance_state=8,
        pcie_generation=1,
        pcie_generation_max=4,
        pcie_width=8,
        pcie_width_max=16,
        ecc_uncorrected=5,
        sram_threshold_exceeded=True,
        remap_pending=True,
        remap_failed=False,
        reset_required=False,
    )
    assert snapshot.gpus[1] == GpuFacts(index=1, name="NVIDIA A100-SXM4-80GB", uuid="GPU-bbbb", pci_bus="0000:2a:00.0")


def test_older_gpus_count_double_bits_and_retire_pages() -> None:
    (gpu,) = read_query(OLD_ECC, "node0").gpus
    assert (gpu.ecc_uncorrected, gpu.remap_pending) == (2, True)


@pytest.mark.parametrize(
    ("line", "index", "bus", "why"),
    [
        (
            "Unable to determine the device handle for GPU 0000:2A:00.0: GPU is lost.",
            None,
            "0000:2a:00.0",
            "GPU is lost.",
        ),
        (
            "Unable to determine the device handle for GPU0000:2A:00.0: Unknown Error",
            None,
            "0000:2a:00.0",
            "Unknown Error",
        ),
        (
            "Unable to determine the device handle for GPU3: 0000:5F:00.0: Unknown Error",
            3,
            "0000:5f:00.0",
            "Unknown Error",
        ),
        ("Unable to determine the device handle for GPU2: Unknown Error", 2, None, "Unknown Error"),
    ],
)
def test_gpus_that_the_driver_cannot_reach(line: str, index: int | None, bus: str | None, why: str) -> None:
    snapshot = read_query(f"{line}\n{QUERY}", "node0")
    assert [(gpu.index, gpu.pci_bus, gpu.lost) for gpu in snapshot.gpus if gpu.lost] == [(index, bus, why)]
    assert snapshot.gpus[0].index is None


def test_nvlink_status_takes_a_speed_for_a_link_that_is_up() -> None:
    snapshot = read_nvlink_status(STATUS, "node0")
    assert [gpu.nvlinks for gpu in snapshot.gpus] == [(True, False, True), None]


def test_files_of_one_host_are_joined(tmp_path: Path) -> None:
    (tmp_path / "node0.q.txt").write_text(QUERY)
    (tmp_path / "node0.nvlink.txt").write_text(STATUS)
    header = "\tGPU0\tGPU1\tCPU Affinity\tNUMA Affinity\n"
    (tmp_path / "node0.topo.txt").write_text(f"{header}GPU0\tX\tNV2\t0-7\t0\nGPU1\tNV2\tX\t0-7\t0\n")
    saved = Snapshot(host="node1", driver="535", gpus=(GpuFacts(index=0),))
    (tmp_path / "node1.json").write_text(saved.model_dump_json())
    first, second = read_snapshots(sorted(tmp_path.iterdir()))
    assert second == saved
    assert first.host == "node0"
    assert [(gpu.uuid, gpu.numa_node, gpu.remap_pending) for gpu in first.gpus] == [
        ("GPU-aaaa", 0, True),
        ("GPU-bbbb", 0, None),
    ]
    assert first.gpus[0].nvlinks == (True, False, True)
    assert first.as_node().links[0].nvlink_count == 2


def test_joining_keeps_the_first_ones_facts() -> None:
    one = Snapshot(host="n", driver="1", gpus=(GpuFacts(index=0, uuid="GPU-a"),))
    two = Snapshot(
        host="n", driver="2", nccl="2.20", gpus=(GpuFacts(index=0, uuid="GPU-b"), GpuFacts(uuid="GPU-a", name="A"))
    )
    both = joined(one, two)
    assert (both.driver, both.nccl) == ("1", "2.20")
    assert [(gpu.uuid, gpu.name) for gpu in both.gpus] == [("GPU-a", "A"), ("GPU-b", None)]


def test_other_files_are_refused(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("all is well\n")
    (tmp_path / "bad.json").write_text("{")
    (tmp_path / "other.json").write_text('{"host": 3}')
    (tmp_path / "newer.json").write_text('{"host": "n", "schema_version": 9}')
    for name in ("notes.txt", "bad.json", "other.json", "newer.json", "none.json"):
        with pytest.raises(TopologyError) as raised:
            read_snapshots([tmp_path / name])
        assert name in str(raised.value)
    with pytest.raises(MeshsweepError, match="meshsweep doctor --save"):
        read_snapshots([])
