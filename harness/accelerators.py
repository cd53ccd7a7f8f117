"""Peak dense FLOP/s of known accelerators. A device that is not listed has no peak, so no MFU is printed for it."""

from __future__ import annotations

import re
from typing import Literal

from harness.base import Frozen

Arithmetic = Literal["bf16", "fp32", "tf32"]


class Accelerator(Frozen):
    """One product. Peaks are FLOP/s of one device as torch counts devices, without sparsity, at boost clock.

    ``pattern`` must match the whole device name. ``tf32`` is None where the product has no such mode.
    """

    name: str
    pattern: str
    bf16: float
    fp32: float
    tf32: float | None
    source: str

    def peak(self, arithmetic: Arithmetic) -> float | None:
        """Peak FLOP/s in this arithmetic, None if the device lacks it."""
        peaks: dict[Arithmetic, float | None] = {"bf16": self.bf16, "fp32": self.fp32, "tf32": self.tf32}
        return peaks[arithmetic]


def _entry(name: str, pattern: str, bf16: float, fp32: float, tf32: float | None, source: str) -> Accelerator:
    """Peaks given in TFLOP/s, as datasheets print them."""
    return Accelerator(
        name=name,
        pattern=pattern,
        bf16=bf16 * 1e12,
        fp32=fp32 * 1e12,
        tf32=None if tf32 is None else tf32 * 1e12,
        source=source,
    )


_SPARSE = "printed with sparsity, halved here"

ACCELERATORS: tuple[Accelerator, ...] = (
    _entry(
        "A100",
        r"(NVIDIA )?A100[- ](SXM4|SXM|PCIE|PCIe|80GB PCIe)([- ](40|80)GB)?",
        312.0,
        19.5,
        156.0,
        "NVIDIA A100 Tensor Core GPU datasheet (2021), dense column",
    ),
    _entry(
        "H100 SXM",
        r"(NVIDIA )?H100 80GB HBM3",
        1979 / 2,
        67.0,
        989 / 2,
        f"NVIDIA H100 Tensor Core GPU datasheet, H100 SXM; bf16 and tf32 {_SPARSE}",
    ),
    _entry(
        "H100 PCIe",
        r"(NVIDIA )?H100 PCIe",
        1513 / 2,
        51.0,
        756 / 2,
        f"NVIDIA H100 Tensor Core GPU datasheet (2022-2023), H100 PCIe; bf16 and tf32 {_SPARSE}",
    ),
    _entry(
        "H100 NVL",
        r"(NVIDIA )?H100 NVL",
        1671 / 2,
        60.0,
        835 / 2,
        f"NVIDIA H100 Tensor Core GPU datasheet, H100 NVL; bf16 and tf32 {_SPARSE}",
    ),
    _entry(
        "H200 SXM",
        r"(NVIDIA )?H200",
        1979 / 2,
        67.0,
        989 / 2,
        f"NVIDIA H200 Tensor Core GPU datasheet, H200 SXM; bf16 and tf32 {_SPARSE}",
    ),
    _entry(
        "H200 NVL",
        r"(NVIDIA )?H200 NVL",
        1671 / 2,
        60.0,
        835 / 2,
        f"NVIDIA H200 Tensor Core GPU datasheet, H200 NVL; bf16 and tf32 {_SPARSE}",
    ),
    _entry(
        "B200",
        r"(NVIDIA )?B200",
        4500 / 2,
        75.0,
        2200 / 2,
        f"NVIDIA Blackwell datasheet, HGX B200, individual GPU; bf16 and tf32 {_SPARSE}",
    ),
    _entry(
        "MI250X, one of its two dies",
        r"AMD Instinct MI250X",
        383.0 / 2,
        95.7 / 2,
        None,
        "AMD Instinct MI250X datasheet, bf16 and fp32 matrix; halved, since each die is a device of its own",
    ),
    _entry(
        "MI300X",
        r"AMD Instinct MI300X( OAM)?",
        1307.4,
        163.4,
        653.7,
        "AMD Instinct MI300X datasheet, dense columns",
    ),
)


def find_accelerator(device_name: str) -> Accelerator | None:
    """The catalogue's entry for a device name as the driver or torch gives it, None if there is none."""
    name = " ".join(device_name.split())
    return next((a for a in ACCELERATORS if re.fullmatch(a.pattern, name)), None)


def peak_flops(device_name: str, arithmetic: Arithmetic) -> float | None:
    """Peak dense FLOP/s of one device, None if the device or its peak in this arithmetic is unknown."""
    accelerator = find_accelerator(device_name)
    return accelerator.peak(arithmetic) if accelerator else None
