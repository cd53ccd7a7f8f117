"""The devices of the machine that this process runs on."""

from __future__ import annotations

import os

from harness.errors import UsageError
from harness.layout.subset import use_gpus
from harness.spec import DeviceKind
from harness.topology.model import Topology

CPU_RANKS = 4


def this_machine(device: str, ranks: int | None) -> Topology:
    """The devices of this machine that CUDA_VISIBLE_DEVICES leaves visible, or CPU rank slots.

    Raises:
        UsageError: a GPU is asked for and there is none.
    """
    from harness.topology import cpu
    from harness.topology.detect import detect

    if device != "cpu":
        topology = detect()
        if device_kind(topology) == "cuda":
            return _visible(topology)
        if device == "cuda":
            raise UsageError("--device cuda, but no GPU was found; see 'meshsweep topology', or use --device cpu")
    return cpu.read(slots=ranks or CPU_RANKS)


def _visible(topology: Topology) -> Topology:
    from harness.topology.cuda_visible import visible_devices

    value = os.environ.get("CUDA_VISIBLE_DEVICES")
    if value is None:
        return topology
    devices = [device for node in topology.nodes for device in node.devices]
    indices = [str(one.index) for one in visible_devices(value, devices)]
    if not indices:
        raise UsageError(f"CUDA_VISIBLE_DEVICES={value!r} leaves no GPU; unset it, or use --device cpu")
    return use_gpus(topology, ",".join(indices))


def device_kind(topology: Topology) -> DeviceKind:
    """What torch calls the devices: ``cpu`` if all are CPU rank slots, else ``cuda``."""
    kinds = {device.kind for node in topology.nodes for device in node.devices}
    return "cpu" if kinds == {"cpu"} else "cuda"
