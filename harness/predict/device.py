"""What a time prediction needs to know of one device, with where each number comes from."""

from __future__ import annotations

from harness.accelerators import Accelerator
from harness.base import Frozen
from harness.predict.software import Provenance

MEASURED_SHARE = 0.80  # matrix products reach this share of the peak where nobody measured it; median of the catalogue
POWER_EXPONENT = 1 / 3  # power grows with clock times voltage squared, and voltage about with clock
FP8_SHARE = 0.9  # of twice the bf16 rate; fitted as SUSTAINED is
# share of the measured maximum that a device keeps through a step, relative to an A100; fitted to calibration rows by
# benchmarks/fit_software.py
SUSTAINED = {"h100-sxm": 0.76, "b200": 0.57}


class Device(Frozen):
    """Rates of one device: FLOP/s and bytes/s. ``memory_bytes`` None is unknown."""

    name: str
    peak: float
    attention: float
    matmul: float
    matmul_fp8: float
    memory_bandwidth: float
    memory_bytes: int | None
    compute_units: int
    provenance: Provenance = "nominal"
    source: str


# rate of a NIC beside each GPU where nothing states it, Gbit/s: that of the vendor's own nodes (DGX-2, DGX A100, DGX
# H100 and B200, OLCF Frontier)
NODE_NICS_GBIT = {"v100-32gb": 50.0, "a100-40gb": 200.0, "a100-80gb": 200.0, "a100": 200.0, "mi250x": 100.0}
NIC_GBIT = 400.0


def nominal_nic_gbit(entry: Accelerator) -> float:
    """Gbit/s of the network beside each device in the vendor's own nodes."""
    return NODE_NICS_GBIT.get(entry.key, NIC_GBIT)


def device_of(entry: Accelerator, *, power: float = 1.0) -> Device:
    """A catalogue entry as a device. ``power``: this product's power limit over the catalogue's.

    Under its power limit a device lowers its clock; the throughput of matrix products falls with a power of it.
    """
    derate = float(power**POWER_EXPONENT) * SUSTAINED.get(entry.key, 1.0)
    matmul = (entry.matmul_flops or entry.bf16 * MEASURED_SHARE) * derate
    return Device(
        name=entry.name,
        peak=entry.bf16,
        attention=entry.bf16 * derate,
        matmul=matmul,
        matmul_fp8=matmul if entry.fp8 is None else matmul * FP8_SHARE * entry.fp8 / entry.bf16,
        memory_bandwidth=entry.memory_bandwidth or 1e12,
        memory_bytes=entry.memory_bytes,
        compute_units=entry.compute_units or 100,
        source=entry.source if entry.matmul_source is None else f"{entry.source}; {entry.matmul_source}",
    )


# a rank of a CPU: rates that only matter in relation to each other, until a calibration says what they are
CPU = Device(
    name="CPU",
    peak=1e11,
    attention=1e11,
    matmul=5e10,
    matmul_fp8=5e10,
    memory_bandwidth=1e10,
    memory_bytes=None,
    compute_units=1,
    source="no datasheet says how fast one rank of a CPU is",
)


def slowed(device: Device, factor: float) -> Device:
    """The device with all of its rates divided by ``factor``."""
    names = ("attention", "matmul", "matmul_fp8", "memory_bandwidth")
    return device.model_copy(update={name: getattr(device, name) / factor for name in names})
