"""Numeric addresses of this host, and which of another host's addresses answers: names need not resolve."""

from __future__ import annotations

import socket
from collections.abc import Mapping, Sequence
from ipaddress import ip_address
from typing import NamedTuple

import psutil

TRY_S = 3.0
# bridges and tunnels that exist on every host with the same address, and reach no other host
_LOCAL_ONLY = ("docker", "br-", "virbr", "veth", "cni", "flannel", "podman", "tun", "tap", "lxc")
_NAMED_BY = ("GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME", "TP_SOCKET_IFNAME")


class Address(NamedTuple):
    """A numeric address and the interface that has it."""

    text: str
    interface: str


def addresses(environ: Mapping[str, str]) -> list[Address]:
    """This host's addresses that other hosts may reach, the likeliest first.

    An interface that the environment names for gloo or NCCL comes first; loopback and link-local ones never come.
    """
    named = [
        name.lstrip("=^") for variable in _NAMED_BY for name in environ.get(variable, "").split(",") if name[:1] != "^"
    ]
    found = []
    for interface, entries in psutil.net_if_addrs().items():
        for entry in entries:
            if entry.family in (socket.AF_INET, socket.AF_INET6) and _reachable(entry.address):
                found.append(Address(entry.address, interface))
    return sorted(found, key=lambda one: (_place(one.interface, named), ":" in one.text))


def _place(interface: str, named: Sequence[str]) -> int:
    if any(name and interface.startswith(name) for name in named):
        return 0
    return 2 if interface.startswith(_LOCAL_ONLY) else 1


def _reachable(text: str) -> bool:
    try:
        address = ip_address(text)
    except ValueError:
        return False
    return not (address.is_loopback or address.is_link_local or address.is_unspecified or address.is_multicast)


def reach(candidates: Sequence[str], port: int) -> Address | None:
    """The first of another host's addresses that takes a connection, with this host's interface towards it."""
    for text in candidates:
        try:
            with socket.create_connection((text, port), timeout=TRY_S) as connection:
                return Address(text, interface_of(connection.getsockname()[0]))
        except OSError:
            continue
    return None


def interface_of(text: str) -> str:
    """The interface of this host that has an address; empty if none has."""
    for interface, entries in psutil.net_if_addrs().items():
        if any(entry.address == text for entry in entries):
            return interface
    return ""
