"""What ``meshsweep plan`` predicts for: the machine of its options, and a calibration's where they say nothing."""

from __future__ import annotations

from pathlib import Path

from harness.accelerators import ACCELERATORS, accelerator
from harness.calibration import Calibration
from harness.errors import UsageError
from harness.forecast.calibrated import measured_groups, nic_of, read_calibration
from harness.forecast.predict import Machine
from harness.predict.device import CPU, device_of, nominal_nic_gbit
from harness.predict.network import CPU_LINK, ETHERNET, Network, read_curve
from harness.predict.software import TORCH
from harness.topology.model import Topology
from harness.workload import Workload, make_workload


def default_nodes(calibration: Calibration | None, ranks: int | None) -> tuple[int, int]:
    """Nodes and ranks on each, where only a number of ranks or nothing is given: the calibrated ones, or one node.

    Raises:
        UsageError: the calibrated ranks were not spread evenly over their hosts.
    """
    calibrated = _ranks(calibration)
    if calibration is None or calibrated is None or ranks not in (None, calibrated):
        return 1, ranks or 8
    hosts = len(calibration.hosts)
    if calibrated % hosts:
        raise UsageError(f"{calibrated} ranks were calibrated on {hosts} hosts; give --nodes and --gpus-per-node")
    return hosts, calibrated // hosts


def default_workload(
    calibration: Calibration | None, model: str | None, batch: int | None, seq_len: int | None, ranks: int
) -> Workload:
    """The workload of the options; what they leave out is the calibrated one's, with as many samples a rank.

    Raises:
        UsageError: ``model`` is neither a preset nor a usable path.
    """
    timed, calibrated = calibration.workload if calibration else None, _ranks(calibration)
    if timed is None or calibrated is None:
        return make_workload(model or "1b", batch or ranks, seq_len or 2048)
    name = model or timed.model_path or timed.model.name
    return make_workload(name, batch or max(1, timed.global_batch * ranks // calibrated), seq_len or timed.seq_len)


def _ranks(calibration: Calibration | None) -> int | None:
    """Ranks that were calibrated; None where no compute was, as only that names the layouts' meshes."""
    return max((one.layout.mesh.world_size for one in calibration.compute), default=None) if calibration else None


def make_machine(
    topology: Topology,
    gpu: str | None,
    nic_gbit: float | None,
    storage_gb: float | None,
    bandwidth_file: Path | None,
    calibration_file: Path | None,
) -> Machine:
    """The cluster with its numbers: given, measured or nominal.

    Raises:
        UsageError: no accelerator is named, or a file is not what it should be.
    """
    calibration = read_calibration(calibration_file) if calibration_file else None
    groups = measured_groups(calibration) if calibration else ()
    curve = read_curve(bandwidth_file) if bandwidth_file else None
    if calibration is not None and calibration.device == "cpu":
        device, nic = CPU, nic_of(groups) or ETHERNET
        link: float | None = CPU_LINK
    else:
        entry = accelerator(_word(topology, gpu))
        device, nic, link = device_of(entry), nominal_nic_gbit(entry) * 1e9 / 8, entry.link_bandwidth
    source = "given with --nic-gbit-per-s" if nic_gbit else "NICs of the vendor's own nodes"
    network = Network(
        link=link,
        nic=nic_gbit * 1e9 / 8 if nic_gbit else nic,
        curve=curve,
        groups=groups,
        provenance="measured" if curve or groups else "nominal",
        source=str(calibration_file) if groups else curve.source if curve else source,
    )
    return Machine(topology, device, network, TORCH, None if storage_gb is None else storage_gb * 1e9, calibration)


def _word(topology: Topology, gpu: str | None) -> str:
    names = {device.name for node in topology.nodes for device in node.devices if device.name}
    word = gpu or (names.pop() if len(names) == 1 else None)
    if word is None:
        raise UsageError(f"which accelerator? give --gpu, one of: {', '.join(a.key for a in ACCELERATORS)}")
    return word
