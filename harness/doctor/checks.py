"""What is wrong with machines: pure comparison of snapshots with a contract, with each other and with sound values."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TypeVar

from harness.base import Frozen
from harness.doctor.snapshot import GpuFacts, Snapshot, topology_of
from harness.mesh.check import Finding, check_machine
from harness.mesh.contract import MeshContract
from harness.topology import cpulist

_BUSY_STATE = 2
_GONE = "drain the node, look for Xid 79 in dmesg, power-cycle it, then reseat the GPU"
_REMEDIES = (
    ("device order", "set CUDA_VISIBLE_DEVICES as the contract says"),
    ("device", _GONE),
    ("host", "save a snapshot there with 'meshsweep doctor --save FILE', or correct the contract"),
)


T = TypeVar("T")


class Fault(Frozen):
    """One thing that is wrong, on one line. ``device`` is such as ``GPU 3``; None for the whole host."""

    rule: str
    host: str
    device: str | None = None
    message: str
    remedy: str

    @property
    def text(self) -> str:
        where = f"{self.host} {self.device}" if self.device else self.host
        return f"{where}: {self.message}; {self.remedy}"


def inspect(
    snapshots: Sequence[Snapshot], contract: MeshContract | None = None, whole: bool = False
) -> tuple[Fault, ...]:
    """Every fault. ``whole`` says that the snapshots are meant to be of every host of the contract."""
    faults: list[Fault] = []
    for snapshot in snapshots:
        faults.extend(_driver(snapshot))
        for gpu in snapshot.gpus:
            if gpu.lost is not None:
                faults.append(_fault("gpu_lost", snapshot, gpu, f"it is lost ({gpu.lost})", _GONE))
                continue
            for check in (_pcie_width, _ecc, _affinity):
                faults.extend(check(snapshot, gpu))
        faults.extend(_pcie_speed(snapshot, snapshots))
        faults.extend(_numa(snapshot))
        faults.extend(_nvlinks(snapshot, snapshots))
    faults.extend(_versions(snapshots))
    faults.extend(_counts(snapshots) if contract is None else _contract(snapshots, contract, whole))
    return tuple(dict.fromkeys(faults))


def _fault(rule: str, snapshot: Snapshot, gpu: GpuFacts | None, message: str, remedy: str) -> Fault:
    return Fault(
        rule=rule, host=snapshot.host, device=gpu.text if gpu is not None else None, message=message, remedy=remedy
    )


def _driver(snapshot: Snapshot) -> Iterator[Fault]:
    if snapshot.pci_gpus and snapshot.driver is None:
        for problem in snapshot.problems:
            remedy = "load the NVIDIA driver (modprobe nvidia) and look in dmesg"
            message = f"{counted(len(snapshot.pci_gpus), 'GPU')} without a driver ({problem})"
            yield _fault("driver", snapshot, None, message, remedy)
    if snapshot.blind:
        message = f"its GPUs could not be looked at ({'; '.join(snapshot.problems)})"
        yield _fault("driver", snapshot, None, message, "save its snapshot again where the NVIDIA driver is loaded")
    listed = len(snapshot.gpus)
    if snapshot.attached is not None and snapshot.attached > listed > 0:
        message = f"the driver counts {counted(snapshot.attached, 'GPU')} and lists {listed}"
        yield _fault("gpu_lost", snapshot, None, message, _GONE)


def _pcie_width(snapshot: Snapshot, gpu: GpuFacts) -> Iterator[Fault]:
    if gpu.pcie_width is not None and gpu.pcie_width_max is not None and gpu.pcie_width < gpu.pcie_width_max:
        message = f"PCIe runs at x{gpu.pcie_width} of x{gpu.pcie_width_max}"
        yield _fault("pcie_width", snapshot, gpu, message, "reseat the GPU or its riser and check the slot")


def _pcie_speed(snapshot: Snapshot, snapshots: Sequence[Snapshot]) -> Iterator[Fault]:
    """Generations below the most, but for GPUs that save power: an idle one lowers its link by itself."""
    for gpu in snapshot.gpus:
        now, most = gpu.pcie_generation, gpu.pcie_generation_max
        if now is None or most is None or now >= most or gpu.lost is not None:
            continue
        busy = gpu.performance_state is not None and gpu.performance_state <= _BUSY_STATE
        peers = [other.pcie_generation or 0 for one in snapshots for other in one.gpus if other.name == gpu.name]
        if busy or (gpu.performance_state is None and max(peers, default=0) >= most):
            remedy = "look again under load, then check the slot's speed in the BIOS and reseat the GPU"
            yield _fault("pcie_speed", snapshot, gpu, f"PCIe runs at generation {now} of {most}", remedy)


def _ecc(snapshot: Snapshot, gpu: GpuFacts) -> Iterator[Fault]:
    reset = "drain the node and reset the GPU (nvidia-smi --gpu-reset) or reboot"
    if gpu.ecc_uncorrected:
        message = f"{counted(gpu.ecc_uncorrected, 'uncorrected ECC error')} since the driver was loaded"
        yield _fault("ecc", snapshot, gpu, message, f"{reset}; replace it if they come back")
    if gpu.remap_pending:
        yield _fault("row_remap", snapshot, gpu, "a memory row or page waits to be remapped", reset)
    if gpu.reset_required:
        yield _fault("reset", snapshot, gpu, "the driver asks for a reset of it", reset)
    if gpu.repair_pending:
        yield _fault("row_remap", snapshot, gpu, "a channel or TPC repair is pending", reset)
    if gpu.remap_failed:
        yield _fault("row_remap", snapshot, gpu, "remapping a memory row failed", "drain the node and replace the GPU")
    if gpu.sram_threshold_exceeded:
        yield _fault("ecc", snapshot, gpu, "too many uncorrected SRAM errors", "drain the node and replace the GPU")


def _affinity(snapshot: Snapshot, gpu: GpuFacts) -> Iterator[Fault]:
    allowed, local = cpulist.parse(snapshot.allowed_cpus), cpulist.parse(gpu.cpus)
    if allowed and local and not allowed & local:
        message = f"the CPUs allowed here ({snapshot.allowed_cpus}) hold none of its own ({gpu.cpus})"
        yield _fault("affinity", snapshot, gpu, message, "bind ranks beside their GPU (srun --gpu-bind=closest)")


def _numa(snapshot: Snapshot) -> Iterator[Fault]:
    """A GPU without NUMA node among others that have one; where none has one it is a virtual machine's way."""
    alive = [gpu for gpu in snapshot.gpus if gpu.lost is None]
    if (snapshot.numa_nodes or 1) > 1 and any(gpu.numa_node is not None for gpu in alive):
        for gpu in alive:
            if gpu.numa_node is None:
                message = f"it names no NUMA node on a machine of {snapshot.numa_nodes}"
                yield _fault("numa", snapshot, gpu, message, "update the BIOS, or bind its ranks by hand")


def _nvlinks(snapshot: Snapshot, snapshots: Sequence[Snapshot]) -> Iterator[Fault]:
    """Links down where others of the GPU are up, else fewer than most GPUs of its name have up."""
    remedy = (
        "look at 'nvidia-smi nvlink --errorcounters' and dmesg, reset the GPU, then check fabric manager and cables"
    )
    for gpu in snapshot.gpus:
        if gpu.nvlinks is None or gpu.lost is not None:
            continue
        up = sum(gpu.nvlinks)
        usual = _most_common(
            sum(other.nvlinks)
            for one in snapshots
            for other in one.gpus
            if other.name == gpu.name and other.nvlinks is not None
        )
        down = [str(number) for number, active in enumerate(gpu.nvlinks) if not active]
        if usual is not None and up < usual:
            which = f" (down: {', '.join(down)})" if down else ""
            message = f"{counted(up, 'NVLink')} up where most GPUs have {usual}{which}"
            yield _fault("nvlink", snapshot, gpu, message, remedy)


def _versions(snapshots: Sequence[Snapshot]) -> Iterator[Fault]:
    facts: tuple[tuple[str, Callable[[Snapshot], str | None]], ...] = (
        ("driver", lambda one: one.driver),
        ("NCCL", lambda one: one.nccl),
    )
    for word, get in facts:
        usual = _most_common(value for one in snapshots if (value := get(one)) is not None)
        for one in snapshots:
            value = get(one)
            if value is not None and value != usual:
                message = f"{word} {value} where most nodes have {usual}"
                yield _fault("versions", one, None, message, f"install the same {word} on all nodes")


def _counts(snapshots: Sequence[Snapshot]) -> Iterator[Fault]:
    seeing = [one for one in snapshots if not one.blind]
    counts = [sum(gpu.lost is None for gpu in one.gpus) for one in seeing]
    usual = _most_common(counts)
    for one, count in zip(seeing, counts, strict=True):
        if usual is not None and count < usual:
            yield _fault("gpu_missing", one, None, f"{counted(count, 'GPU')} where most nodes have {usual}", _GONE)


def _contract(snapshots: Sequence[Snapshot], contract: MeshContract, whole: bool) -> Iterator[Fault]:
    blind = {one.host for one in snapshots if one.blind}
    for finding in check_machine(contract, topology_of(tuple(snapshots)), whole=whole):
        if finding.host in blind and finding.rule == "device":
            continue
        yield Fault(
            rule=_rule(finding),
            host=finding.host,
            message=f"{finding.rule}: expected {finding.expected}, found {finding.found}",
            remedy=_contract_remedy(finding),
        )


def _rule(finding: Finding) -> str:
    if finding.found == "no such device":
        return "gpu_missing"
    if " link " in finding.rule:
        return "nvlink"
    return "numa" if finding.rule.endswith("numa node") else "contract"


def _contract_remedy(finding: Finding) -> str:
    if " link " in finding.rule:
        return "look at 'nvidia-smi nvlink --status', and choose devices that are joined with 'meshsweep mesh init'"
    if finding.rule.startswith("device ") and finding.rule != "device order":
        return "if the hardware was changed write the contract anew with 'meshsweep mesh init'"
    return next(remedy for start, remedy in _REMEDIES if finding.rule.startswith(start))


def counted(count: int, word: str) -> str:
    """``1 GPU``, ``2 GPUs``."""
    return f"{count} {word}{'s' * (count != 1)}"


def _most_common(values: Iterable[T]) -> T | None:
    counts = Counter(values).most_common(1)
    return counts[0][0] if counts else None
