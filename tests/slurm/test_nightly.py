"""A night on a cluster."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from harness.store import SweepStore
from tests.slurm.cluster import VirtualCluster
from tests.slurm.sweep import Sweep

pytestmark = [pytest.mark.distributed, pytest.mark.timeout(900)]

SUITE = """
model = "tests.e2e.faulty:model"
device = "cpu"
ranks = 2
batch = 4
seq_len = 16
layouts = ["ddp:r2"]
rounds = 2
steps = 4
# this machine is shared: only a change that is no noise counts
slower = 0.9
"""


@pytest.fixture
def night(cluster: VirtualCluster, tmp_path: Path) -> Iterator[Sweep]:
    made = Sweep(cluster, tmp_path / "results")
    yield made
    made.end()


def test_a_suite_runs_as_jobs_and_is_summed_up(night: Sweep, tmp_path: Path) -> None:
    suite = tmp_path / "small.toml"
    suite.write_text(SUITE)
    done = night.run("nightly", str(suite), "--profile", "virtual", "--json")
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert told["verdicts"] == []
    store = SweepStore(night.command.results / told["sweep"])
    assert store.plan().slurm is not None
    assert all((folder / "job.json").exists() for folder in store.launches())
    assert {r.status for r in store.records()} == {"measured"}
    assert "ddp r2" in done.stderr
