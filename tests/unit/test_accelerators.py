"""The catalogue of peaks."""

from __future__ import annotations

import pytest

from harness.accelerators import ACCELERATORS, find_accelerator, peak_flops


@pytest.mark.parametrize(
    ("name", "bf16", "fp32"),
    [
        ("NVIDIA A100-SXM4-40GB", 312e12, 19.5e12),
        ("NVIDIA A100-SXM4-80GB", 312e12, 19.5e12),
        ("NVIDIA A100-PCIE-40GB", 312e12, 19.5e12),
        ("NVIDIA A100 80GB PCIe", 312e12, 19.5e12),
        ("NVIDIA H100 80GB HBM3", 989.5e12, 67e12),
        ("NVIDIA H100 PCIe", 756.5e12, 51e12),
        ("NVIDIA H100 NVL", 835.5e12, 60e12),
        ("NVIDIA H200", 989.5e12, 67e12),
        ("NVIDIA H200 NVL", 835.5e12, 60e12),
        ("NVIDIA B200", 2250e12, 75e12),
        ("AMD Instinct MI250X", 191.5e12, 47.85e12),
        ("AMD Instinct MI300X", 1307.4e12, 163.4e12),
    ],
)
def test_known_names_have_their_datasheet_peak(name: str, bf16: float, fp32: float) -> None:
    assert peak_flops(name, "bf16") == pytest.approx(bf16)
    assert peak_flops(name, "fp32") == pytest.approx(fp32)


@pytest.mark.parametrize(
    "name", ["", "cpu", "NVIDIA H100", "NVIDIA H200X", "NVIDIA GB200", "Tesla V100-SXM2-16GB", "A100 of my own"]
)
def test_unknown_names_have_none(name: str) -> None:
    assert find_accelerator(name) is None
    assert peak_flops(name, "bf16") is None


def test_a_mode_that_the_device_lacks_has_none() -> None:
    assert peak_flops("AMD Instinct MI250X", "tf32") is None
    assert peak_flops("AMD Instinct MI300X", "tf32") == pytest.approx(653.7e12)


def test_every_entry_names_its_vendors_datasheet() -> None:
    for accelerator in ACCELERATORS:
        assert "datasheet" in accelerator.source
        assert accelerator.source.startswith(("NVIDIA", "AMD"))
        assert accelerator.fp32 < accelerator.bf16
