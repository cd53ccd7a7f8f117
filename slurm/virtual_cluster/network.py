"""Namespaces, links between them, their rate, and the names of hosts.

Whatever is made outside the cluster's folder carries the folder's path (the bridge as its alias, the lines in the hosts
file as their mark), so that a cluster never removes what belongs to another.
"""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

from virtual_cluster.model import SLOTS, Cluster, Host
from virtual_cluster.system import HOSTS_FILE, ClusterError, run

LINKS = Path("/sys/class/net")
# What a link that was idle may send at once, beyond its rate: little, or short messages would seem to cost nothing.
BURST = "32kb"
# A congestion control that follows losses only. One that paces by its own guess of the rate (BBR, some kernels'
# default) guesses wrong between the bursts of training steps: time would not follow from bytes and rate.
TCP = {"tcp_congestion_control": "reno", "tcp_slow_start_after_idle": "0"}


def on_free_slot(wanted: Cluster) -> Cluster:
    """The wanted cluster, with the first names and addresses that nobody uses."""
    for slot in range(SLOTS):
        cluster = replace(wanted, slot=slot)
        routes = run("ip", "-4", "route", "show", "to", "match", cluster.gateway).splitlines()
        routed = any(not route.startswith("default") for route in routes)
        if not routed and not (LINKS / cluster.name).exists():
            return cluster
    raise ClusterError(f"all {SLOTS} address ranges for virtual clusters are in use; see 'ip -4 route'")


def create(cluster: Cluster) -> None:
    """The bridge, one namespace a host with one link to it, and the names of all hosts."""
    bridge = cluster.name
    run("ip", "link", "add", bridge, "type", "bridge")
    run("ip", "link", "set", bridge, "alias", str(cluster.folder))
    run("ip", "link", "set", bridge, "addrgenmode", "none")
    run("ip", "addr", "add", f"{cluster.gateway}/24", "dev", bridge)
    run("ip", "link", "set", bridge, "up")
    cluster.namespaces.mkdir()
    for host in cluster.hosts:
        create_host(host, bridge)
    for host in cluster.compute:
        shape(host, cluster.rate)
    if cluster.names:
        add_names(cluster)


def create_host(host: Host, bridge: str) -> None:
    """A namespace held by a file, so that it lives without processes, joined to the bridge by its ``eth0``."""
    host.net.touch()
    host.uts.touch()
    run("unshare", f"--net={host.net}", f"--uts={host.uts}", "hostname", host.name)
    run("ip", "link", "add", host.name, "type", "veth", "peer", "name", "eth0", "netns", str(host.net))
    run("ip", "link", "set", host.name, "addrgenmode", "none", "master", bridge, "up")
    run(*host.enter("ip", "link", "set", "lo", "up"))
    run(*host.enter("ip", "addr", "add", f"{host.address}/24", "dev", "eth0"))
    run(*host.enter("ip", "link", "set", "eth0", "addrgenmode", "none", "up"))
    for name, value in TCP.items():
        run(*host.enter("sh", "-c", f"echo {value} >/proc/sys/net/ipv4/{name}"))


def shape(host: Host, rate: str) -> None:
    """Limit what leaves a node. Traffic inside it goes over loopback and is not limited."""
    if rate == "none":
        run(*host.enter("tc", "qdisc", "del", "dev", "eth0", "root"), check=False)
    else:
        tbf = ("tbf", "rate", rate, "burst", BURST, "latency", "100ms")
        run(*host.enter("tc", "qdisc", "replace", "dev", "eth0", "root", *tbf))


def complete(cluster: Cluster) -> bool:
    """Whether all that `create` makes is there."""
    inside = cluster.folder.stat().st_dev
    files = [file for host in cluster.hosts for file in (host.net, host.uts)]
    held = all(file.exists() and file.stat().st_dev != inside for file in files)
    linked = all((LINKS / host.name).exists() for host in cluster.hosts)
    named = not cluster.names or names(cluster) in HOSTS_FILE.read_text()
    return held and linked and owns_bridge(cluster) and named


def owns_bridge(cluster: Cluster) -> bool:
    alias = LINKS / cluster.name / "ifalias"
    return alias.exists() and alias.read_text().strip() == str(cluster.folder)


def remove(cluster: Cluster) -> None:
    """Undo `create`, or as much of it as there is. The links go with their namespaces."""
    remove_names(cluster)
    if owns_bridge(cluster):
        for link in (LINKS / cluster.name / "brif").iterdir():
            run("ip", "link", "del", link.name, check=False)
        run("ip", "link", "del", cluster.name)
    if cluster.namespaces.is_dir():
        for file in cluster.namespaces.iterdir():
            run("umount", str(file), check=False)
            file.unlink()


def counters(host: Host) -> dict[str, int]:
    """Bytes that left and reached a node so far. What the machine's end of a link receives, a node sent."""
    statistics = LINKS / host.name / "statistics"
    return {
        "sent_bytes": int((statistics / "rx_bytes").read_text()),
        "received_bytes": int((statistics / "tx_bytes").read_text()),
    }


def marks(cluster: Cluster) -> tuple[str, str]:
    return (f"# begin: virtual cluster in {cluster.folder}\n", f"# end: virtual cluster in {cluster.folder}\n")


def names(cluster: Cluster) -> str:
    """The lines for the hosts file."""
    begin, end = marks(cluster)
    return begin + "".join(f"{host.address} {host.name}\n" for host in cluster.hosts) + end


def add_names(cluster: Cluster) -> None:
    """Put the block first, so that taking it out restores the file byte for byte. Written in place: in a container the
    hosts file is often a mount of its own, which cannot be replaced."""
    HOSTS_FILE.write_text(names(cluster) + HOSTS_FILE.read_text())


def remove_names(cluster: Cluster) -> None:
    begin, end = (re.escape(mark) for mark in marks(cluster))
    text = HOSTS_FILE.read_text()
    without = re.sub(f"{begin}.*?{end}", "", text, flags=re.DOTALL)
    if without != text:
        HOSTS_FILE.write_text(without)
