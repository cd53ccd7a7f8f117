"""The doctor on the nodes of a cluster."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from harness.doctor import read_snapshots
from harness.execute.probe import look_on_nodes
from harness.slurm.profile import SlurmOptions, read_profile
from tests.e2e.conftest import ROOT
from tests.slurm.cluster import LONG_S, VirtualCluster

pytestmark = [pytest.mark.distributed, pytest.mark.slow]


def test_every_node_of_a_job_is_looked_at(
    cluster: VirtualCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(ROOT)
    monkeypatch.setenv("SLURM_CONF", cluster.env["SLURM_CONF"])
    paths = look_on_nodes(tmp_path / "look", SlurmOptions(profile=read_profile("virtual"), nodes=2))
    assert [snapshot.host for snapshot in read_snapshots(paths)] == list(cluster.nodes)


def test_nodes_without_a_driver_could_not_be_looked_at(cluster: VirtualCluster) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "harness.cli", "doctor", "--profile", "virtual", "--nodes", "2"],
        cwd=ROOT,
        env={**os.environ, "SLURM_CONF": cluster.env["SLURM_CONF"]},
        capture_output=True,
        text=True,
        timeout=LONG_S,
    )
    assert done.returncode == 2
    # what is said of a controller that takes its time is another matter
    (line,) = (line for line in done.stderr.splitlines() if "Slurm" not in line)
    assert "could not look at any GPU" in line
    assert list(ROOT.glob(".doctor-*")) == []
