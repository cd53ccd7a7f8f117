"""How long an answer takes before a GPU is spent: candidates, a whole plan, a trace. Alone on a quiet machine."""

from __future__ import annotations

import subprocess
import sys

import pytest
from pytest_benchmark.fixture import BenchmarkFixture

from harness.layout.candidates import candidates
from harness.layout.subset import described
from harness.workload import PRESETS, Workload

CLUSTER = ("--gpus-per-node", "8", "--gpu", "h100-sxm", "--json")
TRACES = (
    ("8b", 16, "fsdp:s128"),
    ("70b", 16, "hsdp_tp:r2s8t8"),
    ("70b", 128, "hsdp:r16s64"),
    ("405b", 16, "hsdp_tp:r2s8t8"),
    ("405b", 2048, "fsdp_tp:s2048t8"),
)


def median_s(benchmark: BenchmarkFixture) -> float:
    assert benchmark.stats is not None
    return float(benchmark.stats.stats.median)


def answer(*arguments: str) -> None:
    """One ``meshsweep plan``, from the start of its process."""
    subprocess.run([sys.executable, "-m", "harness.cli", "plan", *arguments, *CLUSTER], check=True, capture_output=True)


def test_candidates_of_sixteen_thousand_gpus(benchmark: BenchmarkFixture) -> None:
    workload = Workload(model=PRESETS["405b"], global_batch=16384, seq_len=8192)
    benchmark.pedantic(candidates, ((), workload, 16384, described(2048, 8)), rounds=5)
    assert median_s(benchmark) < 1


@pytest.mark.parametrize(("model", "nodes"), [("70b", 16), ("405b", 2048)])
def test_a_plan(model: str, nodes: int, benchmark: BenchmarkFixture) -> None:
    benchmark.pedantic(answer, ("--model", model, "--nodes", str(nodes)), rounds=3)
    assert median_s(benchmark) < 2


@pytest.mark.xfail(reason="takes 5.4 to 8.2 s on two idle cores, of which importing torch is 2.5")
@pytest.mark.parametrize(("model", "nodes", "text"), TRACES)
def test_a_trace(model: str, nodes: int, text: str, benchmark: BenchmarkFixture) -> None:
    benchmark.pedantic(answer, ("--model", model, "--nodes", str(nodes), "--layouts", text, "--trace"), rounds=2)
    assert median_s(benchmark) < 5
