"""The links of a job's nodes, measured by the probe's tasks: inside each node, and from each to the next."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from harness.base import Frozen
from harness.errors import StoreError
from harness.execute import network
from harness.execute.here import device_kind
from harness.execute.tcp_speed import LIMIT_S, METHOD, TcpSpeed, loopback_speed, receive, send, token_of
from harness.launch.folder import Rendezvous
from harness.store import read_model, write_atomic
from harness.topology.links import between_nodes
from harness.topology.model import LinkClass, LinkSpeed, Node, Topology

PEERS_LIMIT_S = 90.0
POLL_S = 0.05


class NodeSpeeds(Frozen):
    """What one node measured: its own links, and the one from the node before it. ``faults``: what could not be."""

    inside: tuple[LinkSpeed, ...] = ()
    incoming: TcpSpeed | None = None
    faults: tuple[str, ...] = ()


def inside(topology: Topology) -> NodeSpeeds:
    """Links of one node: between GPUs one pair of each class by copies, on a CPU host the loopback interface."""
    (node,) = topology.nodes
    try:
        if device_kind(topology) == "cuda":
            return NodeSpeeds(inside=_peers(node))
        speed = loopback_speed()
    except (OSError, ValueError, subprocess.SubprocessError) as error:
        return NodeSpeeds(faults=(f"links inside {node.host} were not measured: {_line(error)}",))
    found = LinkSpeed(
        link_class=LinkClass.HOST_MEMORY, hosts=(node.host,), method=f"{METHOD} over loopback", **speed.model_dump()
    )
    return NodeSpeeds(inside=(found,))


def _peers(node: Node) -> tuple[LinkSpeed, ...]:
    """One pair of each class. Devices count here as CUDA shows them, which is the order of the node's list."""
    place = {device.index: at for at, device in enumerate(node.devices)}
    pairs: dict[LinkClass, str] = {}
    for link in node.links:
        if link.a in place and link.b in place:
            pairs.setdefault(link.link_class, f"{place[link.a]}-{place[link.b]}")
    if not pairs:
        return ()
    done = subprocess.run(
        [sys.executable, "-m", "harness.measure.peer_copy", *pairs.values()],
        capture_output=True,
        text=True,
        timeout=PEERS_LIMIT_S,
        check=False,
        env={**os.environ, "CUDA_DEVICE_ORDER": "PCI_BUS_ID"},
    )
    if done.returncode:
        raise ValueError((done.stderr.strip() or "no message").splitlines()[-1])
    speeds = json.loads(done.stdout.splitlines()[-1])
    return tuple(
        LinkSpeed(link_class=link_class, hosts=(node.host,), **speed)
        for link_class, speed in zip(pairs, speeds, strict=True)
    )


def from_the_node_before(folder: Path, node: int, nodes: int, attempt: str) -> NodeSpeeds:
    """Let all nodes of a job send to the next one at the same time, in a ring; what came in here."""
    if nodes < 2:
        return NodeSpeeds()
    after = (node + 1) % nodes
    own = tuple(one.text for one in network.addresses(os.environ))
    try:
        with socket.create_server(("", 0)) as server, ThreadPoolExecutor(1) as pool:
            port = int(server.getsockname()[1])
            meeting = Rendezvous(attempt=attempt, addresses=own, port=port)
            write_atomic(_meeting_path(folder, node), meeting.model_dump_json())
            incoming = pool.submit(receive, server, token_of(attempt, node))
            there = _meet(folder, after, attempt)
            send(there.addresses, there.port, token_of(attempt, after))
            return NodeSpeeds(incoming=incoming.result())
    except (OSError, StoreError) as error:
        return NodeSpeeds(faults=(f"the links between nodes {node} and {after} were not measured: {_line(error)}",))


def _meet(folder: Path, node: int, attempt: str) -> Rendezvous:
    """Where another node listens."""
    path = _meeting_path(folder, node)
    deadline = time.monotonic() + LIMIT_S
    while time.monotonic() < deadline:
        found = read_model(path, Rendezvous) if path.exists() else None
        if found is not None and found.attempt == attempt:
            return found
        time.sleep(POLL_S)
    raise TimeoutError(f"node {node} of the job said nothing within {LIMIT_S:.0f} s")


def _meeting_path(folder: Path, node: int) -> Path:
    return folder / f"meeting.node{node}.json"


def joined(nodes: Sequence[Node], found: Sequence[NodeSpeeds]) -> tuple[LinkSpeed, ...]:
    """What all nodes of a job measured, in their order: links inside nodes, then those from node to node."""
    between = [
        LinkSpeed(
            link_class=between_nodes(nodes[at - 1], node),
            hosts=(nodes[at - 1].host, node.host),
            method=METHOD,
            **speeds.incoming.model_dump(),
        )
        for at, (node, speeds) in enumerate(zip(nodes, found, strict=True))
        if speeds.incoming is not None
    ]
    return (*(one for speeds in found for one in speeds.inside), *between)


def _line(error: Exception) -> str:
    return " ".join(str(error).split()) or type(error).__name__
