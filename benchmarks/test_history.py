"""How a long history is read: cold from its records, through its cache, and with one night that is new."""

from __future__ import annotations

from pathlib import Path

import pytest
from pytest_benchmark.fixture import BenchmarkFixture

from benchmarks.synthetic import write_nights
from harness.history.cache import FOLDER, read_tables
from harness.history.nights import history
from harness.store import sweeps

ROUNDS = 13


@pytest.fixture(scope="module")
def root(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """``--nights`` nights; 84 records each (1,200 nights have 100,800)."""
    folder = tmp_path_factory.mktemp("nights")
    write_nights(folder, request.config.getoption("nights"), ROUNDS)
    return folder


def _forget(root: Path) -> None:
    for path in (root / FOLDER).glob("*"):
        path.unlink()


def test_cold(benchmark: BenchmarkFixture, root: Path) -> None:
    """Every record read, the cache written."""
    tables = benchmark.pedantic(read_tables, (root,), setup=lambda: _forget(root), rounds=1)
    benchmark.extra_info["records"] = len(tables.runs)


def test_cached(benchmark: BenchmarkFixture, root: Path) -> None:
    """Signatures of all files, cells from the cache, change points of every cell."""
    read_tables(root)
    benchmark.pedantic(lambda: history(read_tables(root, columns=("sweep",)).cells), rounds=3)


def test_a_new_night(benchmark: BenchmarkFixture, root: Path) -> None:
    """What every night costs beside: signatures, one sweep from its records, the cache written anew."""
    read_tables(root)
    record = next((sweeps(root)[-1] / "records").iterdir())
    benchmark.pedantic(read_tables, (root, ("sweep",)), setup=lambda: _written_again(record), rounds=3)


def _written_again(path: Path) -> None:
    path.write_bytes(path.read_bytes())
