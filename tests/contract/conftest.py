"""Rank processes that many tests share: one group a world size, in one process group."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from harness.execute.ranks import RankGroup

WORKER = "harness.train.worker"
TIMEOUT_S = 60.0

GetGroup = Callable[[int], RankGroup]


@pytest.fixture(scope="package")
def rank_group(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GetGroup]:
    """``rank_group(world_size)``: a joined gloo group, started when first asked for; a failed call ends it."""
    groups: dict[int, RankGroup] = {}

    def get(world_size: int) -> RankGroup:
        if world_size not in groups or not groups[world_size].usable:
            groups[world_size] = start(world_size, tmp_path_factory.mktemp(f"ranks{world_size}"))
        return groups[world_size]

    yield get
    for group in groups.values():
        group.close()


def start(world_size: int, logs: Path) -> RankGroup:
    """Start ranks and let them join."""
    group = RankGroup(world_size, log_folder=logs, env={"GLOO_SOCKET_IFNAME": "lo"})
    threads = max(1, len(os.sched_getaffinity(0)) // world_size)
    port = group.call_one(0, f"{WORKER}:serve_store")
    group.call(f"{WORKER}:enter", port, world_size, "cpu", TIMEOUT_S, threads)
    return group
