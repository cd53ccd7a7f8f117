"""What contradicts the contract: from the facts that every rank gathered, or from a machine's topology. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from functools import lru_cache

from harness.base import Frozen
from harness.errors import MeshsweepError
from harness.layout.mesh import strided_groups
from harness.layout.order import strides
from harness.layout.placement import CLOSENESS
from harness.layout.subset import same_host
from harness.mesh.contract import ANY_HOST, DeviceContract, HostContract, MeshContract, Slot
from harness.topology.cuda_visible import visible_devices
from harness.topology.links import link_in_node
from harness.topology.model import Device, LinkClass, Node, Topology

_SHOWN = 8
# a host may have more devices than its contract lists
_SPARE_INDICES = 64


class RankFacts(Frozen):
    """What one rank says of itself. ``device`` is the index by which the process calls its device; None on CPUs.

    ``uuid`` and ``pci_bus`` are those of that device, where torch knows them.
    """

    rank: int
    host: str
    local_rank: int
    world_size: int
    mesh: str
    digest: str
    visible: str | None = None
    device: int | None = None
    uuid: str | None = None
    pci_bus: str | None = None


class Finding(Frozen):
    """One contradiction. ``rank`` is None where no rank was asked."""

    rule: str
    host: str
    rank: int | None = None
    expected: str
    found: str

    @property
    def text(self) -> str:
        who = f"rank {self.rank} on {self.host}" if self.rank is not None else self.host
        return f"{who}: {self.rule}: expected {self.expected}, found {self.found}"


class MeshContractError(MeshsweepError):
    """The job does not have the mesh that its contract says; every rank raises the same."""

    def __init__(self, findings: Sequence[Finding]) -> None:
        self.findings = tuple(findings)
        shown = "; ".join(finding.text for finding in self.findings[:_SHOWN])
        more = f"; and {len(self.findings) - _SHOWN} more" if len(self.findings) > _SHOWN else ""
        super().__init__(f"mesh contract broken: {shown}{more}; start the ranks as the contract says, or change it")


def check_ranks(contract: MeshContract, facts: Sequence[RankFacts]) -> tuple[Finding, ...]:
    """Compare what all ranks say with the contract.

    Which contract is right cannot be told where ranks hold different ones, so then nothing else is compared; nor is
    a place expected of ranks in a world of another size.
    """
    facts = sorted(facts, key=lambda one: one.rank)
    common = Counter(one.digest for one in facts).most_common(1)[0][0] if facts else ""
    differing = [one for one in facts if one.digest != common]
    if differing:
        return tuple(_finding("definition", one, f"digest {common}", f"digest {one.digest}") for one in differing)
    wrong_size = [one for one in facts if one.world_size != contract.world_size]
    if wrong_size:
        return tuple(_finding("world size", one, str(contract.world_size), str(one.world_size)) for one in wrong_size)
    found: list[Finding] = []
    for one in facts:
        if one.mesh != contract.mesh.signature:
            found.append(_finding("mesh", one, contract.mesh.signature, one.mesh))
    hosts = _actual_hosts(contract, facts)
    places = contract.slots()
    for one in facts:
        slot = places[one.rank]
        found.extend(_misplaced(one, slot, contract.hosts[slot.host], hosts))
        found.extend(_wrong_device(one, contract.device(slot), contract.hosts[slot.host]))
    found.extend(_axes_across_hosts(contract, facts))
    return tuple(found)


def check_machine(
    contract: MeshContract,
    topology: Topology,
    visible: str | None = None,
    whole: bool = False,
) -> tuple[Finding, ...]:
    """Compare a machine with the contract, before any rank runs.

    ``visible`` is CUDA_VISIBLE_DEVICES there. ``whole`` says that ``topology`` is meant to hold every host of the
    contract, as when all were saved; else those that it holds are compared.
    """
    found: list[Finding] = []
    taken: set[int] = set()
    for host in contract.hosts:
        at = next(
            (
                at
                for at, node in enumerate(topology.nodes)
                if at not in taken and (host.host == ANY_HOST or same_host(host.host, node.host))
            ),
            None,
        )
        if at is None:
            if whole:
                found.append(Finding(rule="host", host=host.host, expected="a listing of it", found="none"))
            continue
        taken.add(at)
        found.extend(_host_differences(contract, host, topology.nodes[at], visible))
    if not taken:
        hosts = ", ".join(node.host for node in topology.nodes[:_SHOWN]) or "no node"
        expected = ", ".join(host.host for host in contract.hosts[:_SHOWN])
        found.append(Finding(rule="host", host=hosts, expected=f"one of {expected}", found=hosts))
    return tuple(found)


def device_differences(host: str, wanted: DeviceContract, device: Device | None) -> list[Finding]:
    """How the device found at an index differs from the one expected there."""
    if device is None:
        return [Finding(rule="device", host=host, expected=wanted.text, found="no such device")]
    if device.kind != wanted.kind:
        return [Finding(rule="device", host=host, expected=f"{wanted.text}, {wanted.kind}", found=device.kind)]
    found = []
    for fact in ("uuid", "pci_bus", "name", "numa_node"):
        expected, actual = getattr(wanted, fact), getattr(device, fact)
        if expected is not None and actual is not None and expected != actual:
            rule = f"device {wanted.index} {fact.replace('_', ' ')}"
            found.append(Finding(rule=rule, host=host, expected=str(expected), found=str(actual)))
    return found


def _host_differences(contract: MeshContract, host: HostContract, node: Node, visible: str | None) -> list[Finding]:
    by_index = {device.index: device for device in node.devices}
    found = [
        finding
        for wanted in host.devices
        for finding in device_differences(node.host, wanted, by_index.get(wanted.index))
    ]
    wanted_order = [device.index for device in host.devices]
    if visible is not None and all(device.kind != "cpu" for device in host.devices):
        seen = [one.index for one in visible_devices(visible, node.devices)]
        if seen[: len(wanted_order)] != wanted_order:
            text = f"{','.join(map(str, seen)) or 'none'} by CUDA_VISIBLE_DEVICES={visible}"
            expected = ",".join(map(str, wanted_order))
            found.append(Finding(rule="device order", host=node.host, expected=expected, found=text))
    if all(index in by_index for index in wanted_order):
        found.extend(link_differences(contract, host, node))
    return found


def link_differences(contract: MeshContract, host: HostContract, node: Node) -> list[Finding]:
    """Axes that stay inside ``host`` by the contract and have a farther or narrower link there. Unknown is no fault."""
    found = []
    step = strides(contract.mesh, contract.order)
    before = sum(len(one.devices) for one in contract.hosts[: contract.hosts.index(host)])
    counts = {(link.a, link.b): link.nvlink_count for link in node.links}
    for axis, wanted in contract.axes.items():
        if wanted.size == 1 or wanted.link_class is None or wanted.link_class.crosses_nodes:
            continue
        for group in strided_groups(contract.world_size, wanted.size, step[axis]):
            if group[0] < before or group[-1] >= before + len(host.devices):
                continue
            devices = [host.devices[slot - before].index for slot in group]
            pairs = [(a, b) for at, a in enumerate(devices) for b in devices[at + 1 :]]
            classes = {pair: link_in_node(node, *pair) for pair in pairs}
            farther = [pair for pair in pairs if _farther(classes[pair], wanted.link_class)]
            if farther:
                found.append(_link_finding(axis, node.host, farther[0], wanted.link_class, classes[farther[0]].value))
                continue
            for a, b in pairs:
                count = counts.get((min(a, b), max(a, b)))
                if wanted.nvlink_count and count is not None and count < wanted.nvlink_count:
                    expected = f"{wanted.nvlink_count} NVLinks"
                    found.append(_link_finding(axis, node.host, (a, b), expected, f"{count}"))
                    break
    return found


def _farther(found: LinkClass, wanted: LinkClass) -> bool:
    return found is not LinkClass.UNKNOWN and CLOSENESS[found] > CLOSENESS[wanted]


def _link_finding(axis: str, host: str, pair: tuple[int, int], expected: str, found: str) -> Finding:
    rule = f"{axis} link between devices {pair[0]} and {pair[1]}"
    return Finding(rule=rule, host=host, expected=str(expected), found=found)


def _finding(rule: str, one: RankFacts, expected: str, found: str) -> Finding:
    return Finding(rule=rule, host=one.host, rank=one.rank, expected=expected, found=found)


def _actual_hosts(contract: MeshContract, facts: Sequence[RankFacts]) -> list[str]:
    """The host that stands for each entry; for ``*`` the one on which its first rank runs."""
    hosts = [host.host for host in contract.hosts]
    places = contract.slots()
    for one in facts:
        at = places[one.rank].host
        if hosts[at] == ANY_HOST:
            hosts[at] = one.host
    return hosts


def _misplaced(one: RankFacts, slot: Slot, host: HostContract, hosts: Sequence[str]) -> Iterable[Finding]:
    expected = hosts[slot.host]
    if not same_host(one.host, expected):
        yield _finding("host", one, expected, one.host)
    elif host.host == ANY_HOST and any(same_host(one.host, other) for other in hosts[: slot.host]):
        yield _finding("host", one, "a host of its own for this part of the mesh", one.host)
    elif one.local_rank != slot.local_rank:
        yield _finding("local rank", one, str(slot.local_rank), str(one.local_rank))


def _wrong_device(one: RankFacts, wanted: DeviceContract, host: HostContract) -> Iterable[Finding]:
    if one.device is None:
        if wanted.kind != "cpu":
            yield _finding("device", one, wanted.text, "the CPU")
        return
    shown = f" (CUDA_VISIBLE_DEVICES={one.visible})" if one.visible is not None else ""
    for fact in ("uuid", "pci_bus"):
        expected, actual = getattr(wanted, fact), getattr(one, fact)
        if expected is not None and actual is not None:
            if expected != actual:
                yield _finding("device", one, wanted.text, f"{actual}{shown}")
            return
    # a name says nothing of indices where the contract does not know the names of its devices
    named = one.visible is not None and one.visible.strip().startswith("GPU-")
    if one.visible is not None and ("MIG-" in one.visible or (named and wanted.uuid is None)):
        return
    seen = _seen(one.visible, host)
    physical = seen[one.device] if one.device < len(seen) else None
    expected_index = _given(wanted.index, host, seen)
    if physical != expected_index:
        found = f"GPU {physical}" if physical is not None else "none"
        expected = wanted.text if expected_index == wanted.index else f"GPU {expected_index}, in place of {wanted.text}"
        yield _finding("device", one, expected, f"{found}{shown}")


def _given(index: int, host: HostContract, seen: Sequence[int]) -> int:
    """The device that stands for the contract's.

    A job on any host may be given other devices of it than the contract lists; then the first that it sees stands
    for the first that is listed, and so on.
    """
    listed = sorted(device.index for device in host.devices)
    if host.host != ANY_HOST or set(listed) <= set(seen) or len(seen) < len(listed):
        return index
    return sorted(seen)[listed.index(index)]


@lru_cache(maxsize=64)
def _seen(visible: str | None, host: HostContract) -> tuple[int, ...]:
    """Indices of the devices that CUDA_VISIBLE_DEVICES leaves, in its order, as far as the contract tells."""
    known = {device.index: device.uuid for device in host.devices}
    devices = [Device(index=index, uuid=known.get(index)) for index in range(max(known) + _SPARE_INDICES)]
    return tuple(one.index for one in visible_devices(visible, devices))


def _axes_across_hosts(contract: MeshContract, facts: Sequence[RankFacts]) -> Iterable[Finding]:
    """Groups that lie on more hosts than the contract puts them on."""
    by_rank = {one.rank: one for one in facts}
    places = contract.slots()
    for axis in contract.used_axes():
        for group in contract.mesh.groups(axis):
            wanted = len({places[rank].host for rank in group})
            hosts = list(dict.fromkeys(by_rank[rank].host for rank in group if rank in by_rank))
            if len(hosts) > wanted:
                ranks = ", ".join(map(str, group[:_SHOWN])) + (", ..." if len(group) > _SHOWN else "")
                expected = f"{wanted} host{'s' if wanted > 1 else ''}"
                rule = f"{axis} group of ranks {ranks}"
                yield _finding(rule, by_rank[group[0]], expected, " and ".join(hosts[:_SHOWN]))
