"""Seconds from the start of a cell to its first step, in processes of its own as every launch has them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from pytest_benchmark.fixture import BenchmarkFixture

from benchmarks.conftest import COLLECTIVE_TIMEOUT_S, WORKER
from harness.execute.ranks import RankGroup
from harness.spec import RunSpec

ROUNDS = 5
FRESH = [sys.executable, "-c", "import harness.train.worker"]  # what each rank would import without the server


def test_first_step(benchmark: BenchmarkFixture, request: pytest.FixtureRequest, spec: RunSpec, tmp_path: Path) -> None:
    """Ranks forked from a process that has imported torch, joined, the layout built, one step trained."""
    count, kind = spec.ranks.world_size, spec.ranks.device
    threads = max(1, len(os.sched_getaffinity(0)) // count)
    env = {"GLOO_SOCKET_IFNAME": "lo"} if kind == "cpu" else {}
    groups: list[RankGroup] = []

    def start() -> None:
        group = RankGroup(count, log_folder=tmp_path, env=env)
        groups.append(group)
        port = group.call_one(0, f"{WORKER}:serve_store")
        group.call(f"{WORKER}:enter", port, count, kind, COLLECTIVE_TIMEOUT_S, threads)
        group.call("benchmarks.first_step:first_step", spec)

    def end() -> None:
        while groups:
            groups.pop().close()

    benchmark.group = f"first step: {spec.workload.model.name}, world size {count}"
    try:
        benchmark.pedantic(start, setup=end, rounds=ROUNDS, warmup_rounds=1)
    finally:
        end()


def test_import_saved(benchmark: BenchmarkFixture) -> None:
    """What the server saves each rank: a fresh interpreter that imports what ranks need."""
    benchmark.group = "first step: import saved"
    benchmark.pedantic(subprocess.run, (FRESH,), {"check": True}, rounds=ROUNDS, warmup_rounds=1)
