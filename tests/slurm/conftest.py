"""One virtual cluster for the whole session: 2 nodes of 4 GPUs, 200 Mbit/s between them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.slurm.cluster import VirtualCluster, bring_up, virtual_cluster


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[VirtualCluster]:
    """A cluster that is up. A test that changes it (a rate, a killed node) puts it back."""
    folder = tmp_path_factory.mktemp("cluster")
    try:
        yield bring_up(folder, "--nodes", "2", "--gpus", "4", "--rate", "200mbit")
    finally:
        done = virtual_cluster("down", "--dir", str(folder))
        assert done.returncode in (0, 2), done.stderr


@pytest.fixture(autouse=True)
def no_jobs_left(request: pytest.FixtureRequest) -> Iterator[None]:
    """What a test left running on the session's cluster, by failing for example, does not hinder the next one."""
    yield
    if "cluster" in request.fixturenames:
        cluster: VirtualCluster = request.getfixturevalue("cluster")
        cluster.cancel_all()
