"""Save, restore and reshard of every layout, with bytes and rates beside the disk's own."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from statistics import median
from time import perf_counter

import pytest
from pytest_benchmark.fixture import BenchmarkFixture

from harness.execute.ranks import RankGroup
from harness.layout import Layout, parse_layout
from harness.spec import Ranks, RunSpec, Settings
from harness.workload import make_workload

HERE = "benchmarks.checkpointing"
ROUNDS = 3
SLOW_BYTES_PER_S = 100e6  # the throttled storage, of all ranks together: a share of a network disk


@pytest.fixture
def session(ranks: RankGroup, spec: RunSpec) -> Iterator[RunSpec]:
    ranks.call(f"{HERE}:open_session", spec)
    yield spec
    ranks.call(f"{HERE}:close_session")


def test_save(benchmark: BenchmarkFixture, ranks: RankGroup, session: RunSpec, tmp_path: Path) -> None:
    benchmark.group = f"save: {session.workload.model.name}"
    saved: list[tuple[str, int]] = []
    benchmark.pedantic(
        lambda: saved.append(ranks.call(f"{HERE}:save_once", tmp_path)[0]), rounds=ROUNDS, warmup_rounds=1
    )
    nbytes = saved[-1][1]
    disk = ranks.call(f"{HERE}:sequential", tmp_path, nbytes)[0]
    _tell(benchmark, session, nbytes, disk["write"])


@pytest.mark.parametrize("way", ["one_group", "each", "stock"])
def test_restore(benchmark: BenchmarkFixture, ranks: RankGroup, session: RunSpec, tmp_path: Path, way: str) -> None:
    """From a cold page cache."""
    benchmark.group = f"restore, cold: {session.workload.model.name}"
    folder = ranks.call(f"{HERE}:save_stock" if way == "stock" else f"{HERE}:save_once", tmp_path)[0]
    folder = folder if way == "stock" else folder[0]
    read: list[tuple[int, int]] = []
    benchmark.pedantic(
        lambda: read.append(ranks.call(f"{HERE}:restore_once", folder, way)[0]),
        setup=lambda: ranks.call(f"{HERE}:forget", folder) and None,
        rounds=ROUNDS,
        warmup_rounds=1,
    )
    nbytes = sum(file.stat().st_size for file in Path(folder).iterdir())
    disk = ranks.call(f"{HERE}:sequential", tmp_path, nbytes)[0]
    _tell(benchmark, session, nbytes, disk["read"])
    benchmark.extra_info.update(way=way, storage_bytes=read[-1][0], device_bytes=read[-1][1])


def test_reshard(benchmark: BenchmarkFixture, ranks: RankGroup, session: RunSpec, tmp_path: Path) -> None:
    """A checkpoint of ``fsdp`` over all ranks restored into each other layout."""
    benchmark.group = f"reshard from fsdp: {session.workload.model.name}"
    ranks.call(f"{HERE}:close_session")
    source = session.model_copy(update={"layout": _layout(f"fsdp:s{ranks.size}")})
    ranks.call(f"{HERE}:open_session", source)
    folder, nbytes = ranks.call(f"{HERE}:save_once", tmp_path)[0]
    ranks.call(f"{HERE}:close_session")
    ranks.call(f"{HERE}:open_session", session)
    read: list[tuple[int, int]] = []
    benchmark.pedantic(
        lambda: read.append(ranks.call(f"{HERE}:restore_once", folder, "one_group")[0]), rounds=ROUNDS, warmup_rounds=1
    )
    _tell(benchmark, session, nbytes, None)
    benchmark.extra_info.update(source=source.layout.text, storage_bytes=read[-1][0])


@pytest.mark.parametrize("text", ["hsdp:r2s2", "ddp:r4"])
def test_one_group_is_faster_where_storage_is_the_limit(
    benchmark: BenchmarkFixture, ranks: RankGroup, tmp_path: Path, text: str
) -> None:
    """Both ways on a storage of 100 MB/s for all ranks together, alternated."""
    if ranks.size != 4:
        pytest.skip("compares layouts of 4 ranks")
    spec = RunSpec(
        layout=_layout(text),
        workload=make_workload("small", 8, 64),
        ranks=Ranks(device="cpu", per_node=(4,)),
        settings=Settings(),
        purpose="verify",
    )
    ranks.call(f"{HERE}:open_session", spec)
    stock = ranks.call(f"{HERE}:save_stock", tmp_path / "stock")[0]
    own = ranks.call(f"{HERE}:save_once", tmp_path / "own")[0][0]
    times: dict[str, list[float]] = {"one_group": [], "stock": []}

    def restore_both() -> None:
        for way, folder in (("one_group", own), ("stock", stock)):
            start = perf_counter()
            ranks.call(f"{HERE}:restore_once", folder, way, SLOW_BYTES_PER_S)
            times[way].append(perf_counter() - start)

    benchmark.group = "restore, throttled storage"
    benchmark.pedantic(restore_both, rounds=ROUNDS, warmup_rounds=1)
    ranks.call(f"{HERE}:close_session")
    ratio = median(b / a for a, b in zip(times["one_group"][1:], times["stock"][1:], strict=True))
    benchmark.extra_info.update(
        layout=text,
        throttled_to_bytes_per_s=SLOW_BYTES_PER_S,
        one_group_s=median(times["one_group"][1:]),
        stock_s=median(times["stock"][1:]),
        times_faster=ratio,
    )
    assert ratio > 1.0


def _layout(text: str) -> Layout:
    request = parse_layout(text)
    assert request.mesh is not None
    return Layout(strategy=request.strategy, mesh=request.mesh, options=request.options)


def _tell(benchmark: BenchmarkFixture, spec: RunSpec, nbytes: int, limit: float | None) -> None:
    benchmark.extra_info.update(layout=spec.layout.text, model=spec.workload.model.name, checkpoint_bytes=nbytes)
    if benchmark.stats is not None:
        rate = nbytes / benchmark.stats.stats.median
        benchmark.extra_info["bytes_per_s"] = rate
        if limit is not None:
            benchmark.extra_info.update(disk_bytes_per_s=limit, fraction_of_disk=rate / limit)
