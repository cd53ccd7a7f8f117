"""A persistent group of rank processes, and what every benchmark of a layout needs."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from harness.execute.ranks import RankGroup
from harness.layout import Layout, LayoutRequest, parse_layout
from harness.layout.candidates import candidates
from harness.spec import DeviceKind, Ranks, RunSpec, Settings
from harness.workload import Workload, make_workload

WORKER = "harness.train.worker"
COLLECTIVE_TIMEOUT_S = 60.0


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("meshsweep")
    group.addoption("--nights", type=int, default=20, help="nights of the history that is read")
    group.addoption("--ranks", type=int, default=4, help="ranks of the benchmarked layouts")
    group.addoption("--model", default="tiny", help="preset or package.module:function")
    group.addoption("--batch", type=int, default=8, help="global batch, samples a step")
    group.addoption("--seq-len", type=int, default=64, help="tokens a sample")
    group.addoption("--layouts", default="", help="comma-separated layouts; default every legal one")
    group.addoption("--ranks-device", default="cpu", choices=["cpu", "cuda"], help="where ranks run")


def workload(config: pytest.Config) -> Workload:
    return make_workload(config.getoption("model"), config.getoption("batch"), config.getoption("seq_len"))


def requested(config: pytest.Config) -> tuple[Layout, ...]:
    texts = [t for t in config.getoption("layouts").split(",") if t]
    requests: list[LayoutRequest] = [parse_layout(text) for text in texts]
    return candidates(requests, workload(config), config.getoption("ranks")).layouts


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "layout" in metafunc.fixturenames:
        layouts = requested(metafunc.config)
        metafunc.parametrize("layout", layouts, ids=[layout.text for layout in layouts])


@pytest.fixture
def spec(request: pytest.FixtureRequest, layout: Layout) -> RunSpec:
    """The run that a layout's benchmark trains."""
    kind: DeviceKind = request.config.getoption("ranks_device")
    return RunSpec(
        layout=layout,
        workload=workload(request.config),
        ranks=Ranks(device=kind, per_node=(layout.mesh.world_size,)),
        settings=Settings(),
        purpose="time",
    )


@pytest.fixture(scope="session")
def ranks(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RankGroup]:
    """The persistent group: ranks start once and stay for all benchmarks."""
    count = request.config.getoption("ranks")
    kind = request.config.getoption("ranks_device")
    logs: Path = tmp_path_factory.mktemp("ranks")
    env = {"GLOO_SOCKET_IFNAME": "lo"} if kind == "cpu" else {}
    threads = max(1, len(os.sched_getaffinity(0)) // count)
    with RankGroup(count, log_folder=logs, env=env) as group:
        port = group.call_one(0, f"{WORKER}:serve_store")
        group.call(f"{WORKER}:enter", port, count, kind, COLLECTIVE_TIMEOUT_S, threads)
        yield group
