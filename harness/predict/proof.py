"""Accounted bytes between nodes against what the nodes' network counters moved: the proof of the accounting.

Counters count headers, the accounting does not. The rule that takes them off: a packet of an Ethernet port is as the
counter saw it, one header however many segments the adapter makes of it later (TSO), so that payload = bytes - 66 a
packet: Ethernet 14, IPv4 20, TCP 20 and its timestamps 12. InfiniBand: 24 a packet (LRH 8, BTH 12, invariant CRC 4).
What else uses the port meanwhile (heartbeats of a scheduler, a file system) stays in the measured number.
"""

from __future__ import annotations

from collections.abc import Mapping

from harness.base import Frozen
from harness.predict.wire import WireTraffic
from harness.traffic import Port, PortKind, Traffic

HEADER_BYTES: Mapping[PortKind, int] = {"ethernet": 66, "infiniband": 24, "loopback": 66}
TOLERANCE = 0.02


class WireProof(Frozen):
    """Bytes that nodes sent to other nodes in all counted steps."""

    accounted_bytes: int
    measured_bytes: int
    header_bytes: int  # taken off the counters' bytes to get ``measured_bytes``

    @property
    def ratio(self) -> float:
        """Measured over accounted."""
        return self.measured_bytes / self.accounted_bytes

    @property
    def holds(self) -> bool:
        """Whether they differ by at most the tolerance."""
        return abs(self.ratio - 1) <= TOLERANCE


def prove(traffic: Traffic, wire: WireTraffic) -> WireProof | None:
    """None where no traffic goes between nodes, or where no counter of every node can be told to carry it."""
    ports = data_ports(traffic)
    if not wire.cross_node_bytes or len({port.host for port in ports}) != len(wire.node_sent_bytes):
        return None
    headers = sum(port.sent_packets * HEADER_BYTES[port.kind] for port in ports)
    return WireProof(
        accounted_bytes=wire.cross_node_bytes * traffic.steps,
        measured_bytes=sum(port.sent_bytes for port in ports) - headers,
        header_bytes=headers,
    )


def data_ports(traffic: Traffic) -> tuple[Port, ...]:
    """The ports through which ranks talk: those known to, else all of InfiniBand, else each host's only one."""
    known = [port for port in traffic.ports if port.carries_ranks]
    infiniband = [port for port in traffic.ports if port.kind == "infiniband"]
    ethernet = [port for port in traffic.ports if port.kind == "ethernet"]
    only = ethernet if len({port.host for port in ethernet}) == len(ethernet) else []
    return tuple(known or infiniband or only)
