"""What the kernel and InfiniBand adapters say that each port of this host has moved so far."""

from __future__ import annotations

import os
from pathlib import Path
from typing import NamedTuple

from harness.traffic import Port, PortKind

NET_DEV = Path("/proc/net/dev")
INFINIBAND = Path("/sys/class/infiniband")
IB_WORD_BYTES = 4  # port_xmit_data and port_rcv_data count words of 4 bytes (kernel: sysfs-class-infiniband)


class Moved(NamedTuple):
    """Counters since the port came up; they wrap or are reset with the driver."""

    sent_bytes: int
    received_bytes: int
    sent_packets: int
    received_packets: int


Ports = dict[tuple[PortKind, str], Moved]


def read_ports(net_dev: Path = NET_DEV, infiniband: Path = INFINIBAND) -> Ports:
    """Every port of this network namespace by kind and name; what cannot be read is left out."""
    return {**_net_ports(net_dev), **_infiniband_ports(infiniband)}


def moved_between(host: str, before: Ports, after: Ports) -> tuple[Port, ...]:
    """What each port moved from one reading to the next; ports that moved nothing or were reset are left out."""
    found = []
    for (kind, name), then in before.items():
        now = after.get((kind, name), then)
        difference = [b - a for a, b in zip(then, now, strict=True)]
        if any(difference) and min(difference) >= 0:
            sent, received, sent_packets, received_packets = difference
            found.append(
                Port(
                    host=host,
                    name=name,
                    kind=kind,
                    carries_ranks=_carries_ranks(kind, name),
                    sent_bytes=sent,
                    received_bytes=received,
                    sent_packets=sent_packets,
                    received_packets=received_packets,
                )
            )
    return tuple(found)


def _carries_ranks(kind: PortKind, name: str) -> bool | None:
    """Whether ranks of different hosts talk through it; None where nothing says so."""
    if kind == "infiniband":
        return None
    named = os.environ.get("GLOO_SOCKET_IFNAME", "")
    return name == named if named else None


def _net_ports(path: Path) -> Ports:
    try:
        lines = path.read_text().splitlines()
    except OSError:
        return {}
    found: Ports = {}
    for line in lines:
        name, colon, rest = line.partition(":")
        fields = rest.split()
        if colon and len(fields) >= 10:
            kind: PortKind = "loopback" if name.strip() == "lo" else "ethernet"
            received, received_packets, sent, sent_packets = (int(fields[at]) for at in (0, 1, 8, 9))
            found[kind, name.strip()] = Moved(sent, received, sent_packets, received_packets)
    return found


def _infiniband_ports(root: Path) -> Ports:
    found: Ports = {}
    for counters in sorted(root.glob("*/ports/*/counters")):
        try:
            sent, received, sent_packets, received_packets = (
                int((counters / name).read_text())
                for name in ("port_xmit_data", "port_rcv_data", "port_xmit_packets", "port_rcv_packets")
            )
        except (OSError, ValueError):
            continue
        name = f"{counters.parts[-4]}:{counters.parts[-2]}"
        found["infiniband", name] = Moved(
            sent * IB_WORD_BYTES, received * IB_WORD_BYTES, sent_packets, received_packets
        )
    return found
