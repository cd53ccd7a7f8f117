"""Known accelerators: peak dense FLOP/s, memory, links. What is not listed is unknown, and nothing is guessed."""

from __future__ import annotations

import re
from typing import Literal

from harness.base import Frozen
from harness.errors import UnknownNameError

Arithmetic = Literal["bf16", "fp32", "tf32"]


class Accelerator(Frozen):
    """One product, as torch counts devices. Peaks are FLOP/s without sparsity at boost clock; None is unknown.

    Attributes:
        key: what ``--gpu`` takes.
        pattern: must match the whole device name that driver or torch gives.
        tf32, fp8: None where the product has no such mode.
        memory_bytes, memory_bandwidth: of one device; bandwidth in bytes/s.
        link_bandwidth: to the other devices of its node, bytes/s in one direction.
        compute_units: streaming multiprocessors, or compute units of AMD.
        matmul_flops: the most that a bf16 matrix product was measured to reach, FLOP/s, by ``matmul_source``.
        source: of all numbers but ``matmul_flops``.
    """

    name: str
    key: str
    pattern: str
    bf16: float
    fp32: float
    tf32: float | None
    fp8: float | None
    memory_bytes: int | None
    memory_bandwidth: float | None
    link_bandwidth: float | None
    compute_units: int | None
    matmul_flops: float | None
    matmul_source: str | None
    source: str

    def peak(self, arithmetic: Arithmetic) -> float | None:
        """Peak FLOP/s in this arithmetic, None if the device lacks it."""
        peaks: dict[Arithmetic, float | None] = {"bf16": self.bf16, "fp32": self.fp32, "tf32": self.tf32}
        return peaks[arithmetic]


def _entry(
    name: str,
    key: str,
    pattern: str,
    tflops: tuple[float, float, float | None, float | None],
    source: str,
    *,
    gib: float | None = None,
    tb_s: float | None = None,
    link_gb_s: float | None = None,
    units: int | None = None,
    matmul: float | None = None,
) -> Accelerator:
    """Numbers as datasheets print them. ``tflops``: bf16, fp32, tf32, fp8; what they call GB of memory is GiB."""
    bf16, fp32, tf32, fp8 = tflops
    return Accelerator(
        name=name,
        key=key,
        pattern=pattern,
        bf16=bf16 * 1e12,
        fp32=fp32 * 1e12,
        tf32=None if tf32 is None else tf32 * 1e12,
        fp8=None if fp8 is None else fp8 * 1e12,
        memory_bytes=None if gib is None else int(gib * 2**30),
        memory_bandwidth=None if tb_s is None else tb_s * 1e12,
        link_bandwidth=None if link_gb_s is None else link_gb_s * 1e9,
        compute_units=units,
        matmul_flops=None if matmul is None else matmul * 1e12,
        matmul_source=None if matmul is None else _MATMUL_SOURCE,
        source=source,
    )


_SPARSE = "bf16, tf32 and fp8 printed with sparsity, halved here"
_MATMUL_SOURCE = "S. Bekman, Machine Learning Engineering Open Book, maximum achievable matmul FLOPS, bf16 (2025)"
_A100_SOURCE = "NVIDIA A100 Tensor Core GPU datasheet (2021), dense column; NVLink 600 GB/s, both directions together"
_H100_SOURCE = "NVIDIA H100 Tensor Core GPU datasheet"
_H200_SOURCE = "NVIDIA H200 Tensor Core GPU datasheet"
_A100 = (312.0, 19.5, 156.0, None)
_HOPPER_SXM = (1979 / 2, 67.0, 989 / 2, 3958 / 2)
_HOPPER_NVL = (1671 / 2, 60.0, 835 / 2, 3341 / 2)

ACCELERATORS: tuple[Accelerator, ...] = (
    _entry(
        "V100 SXM 32 GB",
        "v100-32gb",
        r"(Tesla )?V100-SXM[23]-32GB(-LS)?",
        (125.0, 15.7, None, None),
        "NVIDIA V100 Tensor Core GPU datasheet (2020), SXM2; fp16 in the place of bf16, which it lacks",
        gib=32,
        tb_s=0.9,
        link_gb_s=150,
        units=80,
    ),
    _entry(
        "A100 SXM 40 GB",
        "a100-40gb",
        r"(NVIDIA )?A100[- ]SXM4?[- ]40GB",
        _A100,
        _A100_SOURCE,
        gib=40,
        tb_s=1.555,
        link_gb_s=300,
        units=108,
        matmul=271.2,
    ),
    _entry(
        "A100 SXM 80 GB",
        "a100-80gb",
        r"(NVIDIA )?A100[- ]SXM4?[- ]80GB",
        _A100,
        _A100_SOURCE,
        gib=80,
        tb_s=2.039,
        link_gb_s=300,
        units=108,
        matmul=271.2,
    ),
    _entry(
        "A100 SXM",
        "a100",
        r"(NVIDIA )?A100[- ]SXM4?",
        _A100,
        f"{_A100_SOURCE}; a name that leaves the size of its memory open",
        link_gb_s=300,
        units=108,
        matmul=271.2,
    ),
    _entry(
        "A100 PCIe",
        "a100-pcie",
        r"(NVIDIA )?A100[- ](PCIE|PCIe|80GB PCIe)([- ](40|80)GB)?",
        _A100,
        "NVIDIA A100 Tensor Core GPU datasheet (2021), dense column; memory differs and is left unknown",
        units=108,
        matmul=252.9,
    ),
    _entry(
        "H100 SXM",
        "h100-sxm",
        r"(NVIDIA )?H100 80GB HBM3",
        _HOPPER_SXM,
        f"{_H100_SOURCE}, H100 SXM; {_SPARSE}; NVLink 900 GB/s, both directions together",
        gib=80,
        tb_s=3.35,
        link_gb_s=450,
        units=132,
        matmul=794.5,
    ),
    _entry(
        "H100 PCIe",
        "h100-pcie",
        r"(NVIDIA )?H100 PCIe",
        (1513 / 2, 51.0, 756 / 2, 3026 / 2),
        f"{_H100_SOURCE} (2022-2023), H100 PCIe; {_SPARSE}; PCIe 5.0 128 GB/s, both directions together",
        gib=80,
        tb_s=2.0,
        link_gb_s=64,
        units=114,
    ),
    _entry(
        "H100 NVL",
        "h100-nvl",
        r"(NVIDIA )?H100 NVL",
        _HOPPER_NVL,
        f"{_H100_SOURCE}, H100 NVL; {_SPARSE}; links differ by pair and are left unknown",
        gib=94,
        tb_s=3.9,
        units=132,
    ),
    _entry(
        "H200 SXM",
        "h200-sxm",
        r"(NVIDIA )?H200",
        _HOPPER_SXM,
        f"{_H200_SOURCE}, H200 SXM; {_SPARSE}; NVLink 900 GB/s, both directions together",
        gib=141,
        tb_s=4.8,
        link_gb_s=450,
        units=132,
    ),
    _entry(
        "H200 NVL",
        "h200-nvl",
        r"(NVIDIA )?H200 NVL",
        _HOPPER_NVL,
        f"{_H200_SOURCE}, H200 NVL; {_SPARSE}; links differ by bridge and are left unknown",
        gib=141,
        tb_s=4.8,
        units=132,
    ),
    _entry(
        "GH200",
        "gh200",
        r"(NVIDIA )?GH200 (480|120)GB",
        _HOPPER_SXM,
        f"NVIDIA GH200 Grace Hopper Superchip datasheet, HBM3 model; {_SPARSE}; its network is its link",
        gib=96,
        tb_s=4.0,
        units=132,
        matmul=828.6,
    ),
    _entry(
        "B200",
        "b200",
        r"(NVIDIA )?B200",
        (4500 / 2, 75.0, 2200 / 2, 9000 / 2),
        f"NVIDIA Blackwell datasheet, HGX B200, individual GPU; {_SPARSE}; NVLink 1.8 TB/s, both directions together",
        gib=180,
        tb_s=8.0,
        link_gb_s=900,
        units=148,
        matmul=1745.0,
    ),
    _entry(
        "MI250X, one of its two dies",
        "mi250x",
        r"AMD Instinct MI250X",
        (383.0 / 2, 95.7 / 2, None, None),
        "AMD Instinct MI250X datasheet, bf16 and fp32 matrix; halved, since each die is a device of its own",
        gib=64,
        tb_s=1.6384,
        units=110,
        matmul=147.0,
    ),
    _entry(
        "MI300X",
        "mi300x",
        r"AMD Instinct MI300X( OAM)?",
        (1307.4, 163.4, 653.7, 2614.9),
        "AMD Instinct MI300X datasheet, dense columns; 7 links of 64 GB/s in one direction",
        gib=192,
        tb_s=5.3,
        link_gb_s=448,
        units=304,
        matmul=668.4,
    ),
)


def find_accelerator(device_name: str) -> Accelerator | None:
    """The catalogue's entry for a device name as the driver or torch gives it, None if there is none."""
    name = " ".join(device_name.split())
    return next((a for a in ACCELERATORS if re.fullmatch(a.pattern, name)), None)


def accelerator(key: str) -> Accelerator:
    """The entry for a ``--gpu`` word, or for a device name.

    Raises:
        UnknownNameError: the catalogue has neither.
    """
    found = next((a for a in ACCELERATORS if a.key == key.lower()), None) or find_accelerator(key)
    if found is None:
        raise UnknownNameError("GPU", key, [a.key for a in ACCELERATORS])
    return found


def peak_flops(device_name: str, arithmetic: Arithmetic) -> float | None:
    """Peak dense FLOP/s of one device, None if the device or its peak in this arithmetic is unknown."""
    found = find_accelerator(device_name)
    return found.peak(arithmetic) if found else None
