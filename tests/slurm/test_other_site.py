"""A sweep on a cluster as some sites are: no accounting, nodes with different GPU counts, names that do not resolve."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from harness.failure import FailureClass
from tests.slurm.cluster import VirtualCluster, bring_up, virtual_cluster
from tests.slurm.sweep import SHORT, SLURM, SMALL, Sweep, outcomes

pytestmark = [pytest.mark.distributed, pytest.mark.cluster_sweep, pytest.mark.timeout(1200)]

PROFILE = 'partition = "main"\nexclusive = true\ngpus = 3\n[environment]\nGLOO_SOCKET_IFNAME = "eth0"\n'


@pytest.fixture
def site(tmp_path: Path) -> Iterator[VirtualCluster]:
    folder = tmp_path / "site"
    try:
        yield bring_up(folder, "--gpus", "2,1", "--rate", "none", "--no-accounting", "--no-names")
    finally:
        assert virtual_cluster("down", "--dir", str(folder)).returncode in (0, 2)


def test_a_sweep_on_uneven_nodes_without_names_and_accounting(site: VirtualCluster, tmp_path: Path) -> None:
    with pytest.raises(OSError):
        socket.getaddrinfo(site.nodes[0], 1)
    profile = tmp_path / "site.toml"
    profile.write_text(PROFILE)
    sweep = Sweep(site, tmp_path / "results")
    cancelled = "ddp:r3+activation_checkpointing=full"
    model = ("--model", "tests.e2e.faulty:model", *SMALL, "--batch", "6", "--collective-timeout", "20")
    try:
        process = sweep.start(
            *("run", *SLURM, "--profile", str(profile), "--nodes", "2", *model, *SHORT),
            *("--layouts", f"{cancelled},ddp:r3,fsdp:s3", "--name", "s", "--json"),
            FAULTS=f"fsdp:s3=kill@2,{cancelled}=everywhere@2",
        )
        sweep.cluster.run("scancel", sweep.wait(lambda: sweep.job_of("activation")))
        stdout, stderr = process.communicate(timeout=500)
    finally:
        sweep.end()
    assert process.returncode == 1, stderr
    assert outcomes(stdout)["ddp r3"] == "measured"
    assert sweep.last("ddp:r3", "time").spec.ranks.per_node == (2, 1)
    found = {text: sweep.last(text).failure for text in (cancelled, "fsdp:s3")}
    assert {text: one and one.failure_class for text, one in found.items()} == {
        cancelled: FailureClass.CANCELLED,
        "fsdp:s3": FailureClass.CRASH,
    }
