"""Accounted bytes between two hosts against their interface counters; hosts are network namespaces of this machine."""

from __future__ import annotations

import ctypes
import os
import subprocess
from collections.abc import Iterator
from itertools import chain
from pathlib import Path

import pytest

from harness.execute.ranks import RankGroup
from harness.predict.proof import WireProof, prove
from harness.predict.wire import wire_traffic
from harness.spec import RunSpec
from harness.topology.model import Device, Node, Topology
from harness.traffic import Traffic, gathered
from harness.workload import PRESETS, Workload
from tests.contract.specs import make_spec

pytestmark = [
    pytest.mark.distributed,
    pytest.mark.skipif(os.geteuid() != 0, reason="making network namespaces needs root"),
]

CLONE_NEWNET = 0x40000000  # linux/sched.h
INTERFACE = "wire0"
HOSTS = ("wirehost0", "wirehost1")
# 8 heads of keys and values, so that 8 ranks can share them
MODEL = PRESETS["small"].model_copy(update={"n_kv_heads": 8})
WORKLOAD = Workload(model=MODEL, global_batch=8, seq_len=64)
FOUR = ["ddp:r4", "fsdp:s4", "hsdp:r2s2", "fsdp_tp:s2t2", "tp:t4", "fsdp1_hybrid:r2s2"]
EIGHT = ["ddp:r8", "fsdp:s8", "hsdp:r2s4", "fsdp_tp:s2t4", "hsdp_tp:r2s2t2", "tp:t8", "fsdp1_hybrid:r2s4"]


def ip(*argv: str) -> None:
    done = subprocess.run(["ip", *argv], capture_output=True, text=True, timeout=30)
    assert done.returncode == 0, f"ip {' '.join(argv)}: {done.stderr}"


@pytest.fixture(scope="module")
def namespaces() -> Iterator[tuple[Path, ...]]:
    """Two hosts, each with loopback and one interface to the other."""
    names = [f"{host}-{os.getpid()}" for host in HOSTS]
    try:
        for name in names:
            ip("netns", "add", name)
        ip("link", "add", INTERFACE, "netns", names[0], "type", "veth", "peer", "name", INTERFACE, "netns", names[1])
        for at, name in enumerate(names):
            ip("-n", name, "addr", "add", f"10.213.77.{at + 1}/24", "dev", INTERFACE)
            ip("-n", name, "link", "set", "lo", "up")
            ip("-n", name, "link", "set", INTERFACE, "up")
        yield tuple(Path("/run/netns", name) for name in names)
    finally:
        for name in names:
            subprocess.run(["ip", "netns", "del", name], capture_output=True, timeout=30)


def move(paths: tuple[Path, ...], per_node: int) -> None:
    """On a rank: live on its host from now on."""
    node, local_rank = divmod(int(os.environ["RANK"]), per_node)
    with paths[node].open() as file:
        assert ctypes.CDLL(None).setns(file.fileno(), CLONE_NEWNET) == 0
    os.environ.update(SLURMD_NODENAME=HOSTS[node], LOCAL_RANK=str(local_rank), GLOO_SOCKET_IFNAME=INTERFACE)


def on_two_hosts(texts: list[str], per_node: int, paths: tuple[Path, ...], logs: Path) -> dict[str, WireProof | None]:
    """Account every layout on ``per_node`` ranks a host and hold it to the counters."""
    found = {}
    with RankGroup(2 * per_node, log_folder=logs) as group:
        group.call(move, paths, per_node)
        port = group.call_one(0, "harness.train.worker:serve_store")
        group.call("harness.train.worker:enter", port, 2 * per_node, "cpu", 60.0, 1, "10.213.77.1")
        for text in texts:
            spec = make_spec(text, WORKLOAD)
            by_rank = group.call("harness.train.remote:traffic", spec)
            ports = chain.from_iterable(one.ports for one in by_rank)
            traffic = gathered([one.collectives for one in by_rank], ports, by_rank[0][2], by_rank[0][3])
            found[text] = proof(spec, traffic, per_node)
    return found


def proof(spec: RunSpec, traffic: Traffic, per_node: int) -> WireProof | None:
    nodes = [Node(host=host, devices=tuple(Device(index=i, kind="cpu") for i in range(per_node))) for host in HOSTS]
    return prove(traffic, wire_traffic(traffic.collectives, spec.layout, Topology(nodes=tuple(nodes)), "gloo"))


@pytest.mark.parametrize(("texts", "per_node"), [(FOUR, 2), pytest.param(EIGHT, 4, marks=pytest.mark.thorough)])
def test_accounted_bytes_between_hosts_are_what_their_interfaces_moved(
    texts: list[str], per_node: int, namespaces: tuple[Path, ...], tmp_path: Path
) -> None:
    found = on_two_hosts(texts, per_node, namespaces, tmp_path)
    ratios = {text: one and one.ratio for text, one in found.items()}
    print(ratios)
    assert [text for text, one in found.items() if one is None or not one.holds] == [], ratios
