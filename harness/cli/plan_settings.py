"""The choices that decide a forecast, and which of them the user made."""

from __future__ import annotations

from collections.abc import Container, Iterator, Sequence

from harness.forecast.models import Setting
from harness.forecast.predict import Machine
from harness.layout import LayoutRequest
from harness.workload import Workload

_CALIBRATED = "of the calibration"


def settings_of(
    given: Container[str],
    workload: Workload,
    requests: Sequence[LayoutRequest],
    checkpointing: str,
    machine: Machine,
) -> Iterator[Setting]:
    """Each choice with its option. ``given``: the parameters that the command line names.

    Precision and compilation are those of all layouts together, as a layout's own text may name others.
    """
    measured = machine.calibration
    timed = measured is not None and measured.workload is not None
    rest = _CALIBRATED if timed else "default"

    def one(name: str, parameter: str, value: str, origin: str = "default") -> Setting:
        option = "--" + parameter.replace("_", "-").removesuffix("-file").replace("compiled", "compile")
        return Setting(name=name, option=option, value=value, given=parameter in given, origin=origin)

    yield one("model", "model", workload.model.name, rest)
    yield one("batch", "batch", f"{workload.global_batch:,} samples a step", rest)
    yield one("sequence", "seq_len", f"{workload.seq_len:,} tokens", rest)
    precisions = dict.fromkeys(request.options.precision for request in requests)
    yield one("precision", "precision", " and ".join(precisions))
    auto = "auto (the cheapest that fits)" if checkpointing == "auto" else checkpointing
    yield one("activation checkpointing", "activation_checkpointing", auto)
    compiled = dict.fromkeys("yes" if request.options.compile else "no" for request in requests)
    yield one("compiled blocks", "compiled", " and ".join(compiled))
    yield _network(given, machine, one("network", "nic_gbit_per_s", _rate(machine)))
    storage = machine.storage_bytes_per_s
    rate = "unknown, so no save and restore times" if storage is None else f"{storage / 1e9:,.4g} GB/s"
    yield one("storage", "storage_gb_per_s", rate)


def _rate(machine: Machine) -> str:
    nic = machine.network.nic
    return "unknown" if nic is None else f"{nic * 8 / 1e9:,.4g} Gbit/s a device"


def _network(given: Container[str], machine: Machine, nominal: Setting) -> Setting:
    """A curve or measured groups come before a rate."""
    if machine.network.curve is not None:
        return nominal.model_copy(update={"option": "--bandwidth", "value": "a measured curve", "given": True})
    if machine.network.groups and not nominal.given:
        return nominal.model_copy(update={"value": "measured groups", "origin": _CALIBRATED})
    return nominal
