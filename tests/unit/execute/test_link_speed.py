"""Links measured by the probe: what a sender and a receiver agree on, and whose speeds are whose."""

from __future__ import annotations

import json
import socket
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from harness.execute import link_speed, network
from harness.execute.link_speed import NodeSpeeds, from_the_node_before, inside, joined
from harness.execute.tcp_speed import receive, send, token_of
from harness.topology.cpu import host_memory_links
from harness.topology.model import Device, Link, LinkClass, LinkSpeed, Node, Topology
from harness.topology.speed import speed_lines


def test_a_stranger_who_connects_is_not_measured() -> None:
    token = token_of("job", 0)
    with socket.create_server(("127.0.0.1", 0)) as server, ThreadPoolExecutor(1) as pool:
        port = server.getsockname()[1]
        with socket.create_connection(("127.0.0.1", port)) as stranger:
            stranger.sendall(bytes(100))
            sending = pool.submit(send, ("127.0.0.1",), port, token, 0.05)
            found = receive(server, token)
            sending.result()
    assert found.bandwidth_bytes_per_s > 0
    assert found.latency_s > 0


def test_a_sender_that_breaks_off_is_an_error_and_no_speed() -> None:
    token = token_of("job", 0)
    with socket.create_server(("127.0.0.1", 0)) as server:
        streams = [socket.create_connection(server.getsockname()) for _ in range(4)]
        for stream in streams:
            stream.sendall(token)
            stream.close()
        with pytest.raises(OSError):
            receive(server, token)


def test_three_nodes_measure_in_a_ring(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(network, "addresses", lambda environ: [network.Address("127.0.0.1", "lo")])
    with ThreadPoolExecutor(3) as pool:
        found = list(pool.map(lambda node: from_the_node_before(tmp_path, node, 3, "7.0"), range(3)))
    assert all(one.incoming is not None and not one.faults for one in found)
    nodes = [
        Node(host=f"n{at}", switch=switch, switch_path=(switch, "top")) for at, switch in enumerate(("s1", "s1", "s2"))
    ]
    speeds = joined(nodes, found)
    assert [one.hosts for one in speeds] == [("n2", "n0"), ("n0", "n1"), ("n1", "n2")]
    assert [one.link_class for one in speeds] == [
        LinkClass.OTHER_SWITCH,
        LinkClass.SAME_SWITCH,
        LinkClass.OTHER_SWITCH,
    ]


def test_a_node_that_never_comes_is_a_doubt_and_not_the_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(link_speed, "LIMIT_S", 0.2)
    monkeypatch.setattr("harness.execute.tcp_speed.LIMIT_S", 0.2)
    (tmp_path / "meeting.node1.json").write_text('{"attempt": "earlier", "addresses": ["127.0.0.1"], "port": 1}')
    found = from_the_node_before(tmp_path, 0, 2, "7.0")
    assert found.incoming is None
    assert "node 1 of the job said nothing" in found.faults[0]


def test_one_node_has_no_ring(tmp_path: Path) -> None:
    assert from_the_node_before(tmp_path, 0, 1, "7.0") == NodeSpeeds()


def test_a_cpu_host_is_measured_over_loopback() -> None:
    node = Node(
        host="n", devices=(Device(index=0, kind="cpu"), Device(index=1, kind="cpu")), links=host_memory_links(2)
    )
    (speed,) = inside(Topology(nodes=(node,))).inside
    assert (speed.link_class, speed.hosts) == (LinkClass.HOST_MEMORY, ("n",))


def test_of_gpus_one_pair_of_each_class_is_copied_by_their_visible_numbers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    answer = [{"bandwidth_bytes_per_s": value, "latency_s": 1e-5, "method": "copies"} for value in (4e11, 2e10)]
    python = tmp_path / "python"
    python.write_text(f"#!/bin/sh\necho \"$@\" >'{tmp_path}/asked'\necho '{json.dumps(answer)}'\n")
    python.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(python))
    links = [(4, 5, LinkClass.NVLINK), (4, 6, LinkClass.OTHER_SOCKET), (5, 6, LinkClass.OTHER_SOCKET)]
    node = Node(
        host="n",
        devices=tuple(Device(index=index) for index in (4, 5, 6)),
        links=tuple(Link(a=a, b=b, link_class=c) for a, b, c in links),
    )
    found = inside(Topology(nodes=(node,)))
    assert (tmp_path / "asked").read_text() == "-m harness.measure.peer_copy 0-1 0-2\n"
    assert [(x.link_class, x.bandwidth_bytes_per_s) for x in found.inside] == [
        (LinkClass.NVLINK, 4e11),
        (LinkClass.OTHER_SOCKET, 2e10),
    ]
    python.write_text("#!/bin/sh\necho 'RuntimeError: no driver' >&2\nexit 1\n")
    assert inside(Topology(nodes=(node,))).faults == ("links inside n were not measured: RuntimeError: no driver",)


def test_a_line_for_all_links_of_a_class() -> None:
    speeds = [
        LinkSpeed(link_class=LinkClass.NETWORK, hosts=("a", "b"), bandwidth_bytes_per_s=v, latency_s=1e-4, method="TCP")
        for v in (23e6, 25e6, 24e6)
    ]
    fast = LinkSpeed(link_class=LinkClass.NVLINK, hosts=("a",), bandwidth_bytes_per_s=4.2e11, method="copies")
    assert speed_lines([*speeds, fast]) == [
        "network: 24 MB/s (23 MB/s to 25 MB/s, 3 links), latency 100 us, by TCP",
        "nvlink: 420 GB/s, by copies",
    ]
