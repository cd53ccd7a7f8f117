"""How far predictions lay from measurements where they were compared. Nothing is said where nothing was compared."""

from __future__ import annotations

from harness.accelerators import accelerator
from harness.base import Frozen
from harness.predict.device import Device

MEMORY_MARGIN = 0.10  # of a predicted peak; four of five published peaks lie within 9%, nine of ten within 14%
TOLD_APART = 0.10  # layouts whose predicted speeds differ by less are not told apart; 96% of the other pairs were
SEEN_DEVICES = ("a100-40gb", "a100-80gb", "h100-sxm")  # of published runs of this stack or of others on them


class ErrorBand(Frozen):
    """How far predicted tokens/s were off: ``|predicted / measured - 1| <= share`` in what ``basis`` names."""

    share: float
    basis: str

    def of_speed(self, tokens_per_s: float) -> tuple[float, float]:
        """(low, high) of what may be measured where ``tokens_per_s`` is predicted."""
        return tokens_per_s / (1 + self.share), tokens_per_s / (1 - self.share)

    def of_time(self, step_time_s: float) -> tuple[float, float]:
        """(low, high) of the step time, seconds; the same band."""
        return step_time_s * (1 - self.share), step_time_s * (1 + self.share)


SEEN = ErrorBand(
    share=0.173,
    basis="four of five of 26 published FSDP2 runs (torchtitan; A100, H100) by factors that were fitted without them",
)
UNSEEN = ErrorBand(
    share=0.239,
    basis="four of five of 38 published runs on a device, or in an arithmetic, that no other source has (B200; fp8)",
)
CALIBRATED = ErrorBand(
    share=0.15,
    basis="all 15 layouts of three sweeps on 8 CPU ranks of 2 hosts, each predicted from its calibration",
)


def time_band(device: Device, precision: str, *, calibrated: bool, profiled: bool) -> ErrorBand | None:
    """The band of a layout's step time.

    ``calibrated``: whether a calibration scales the device; ``profiled``: whether it has the layout's compute and the
    groups of all of its axes. None for what it only scales, which was never compared with anything.
    """
    if profiled:
        return CALIBRATED
    if calibrated:
        return None
    seen = device.name in {accelerator(key).name for key in SEEN_DEVICES} and precision == "bf16"
    return SEEN if seen else UNSEEN
