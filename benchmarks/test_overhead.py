"""What the harness adds to a step: against the same model in a bare loop, alternated in one run."""

from __future__ import annotations

from statistics import median

import pytest
from pytest_benchmark.fixture import BenchmarkFixture

from harness.execute.ranks import RankGroup
from harness.layout import parse_layout
from harness.layout.layout import Layout
from harness.spec import Ranks, RunSpec, Settings
from harness.stats import paired_ratio
from harness.workload import make_workload

MOST = 1.02
CYCLES, ROUNDS = 60, 3


@pytest.mark.parametrize("text", ["ddp:r4", "fsdp:s4"])
def test_harness_adds_at_most_two_percent(benchmark: BenchmarkFixture, ranks: RankGroup, text: str) -> None:
    """Fails when the ratio of medians is above 1.02 beyond its own interval."""
    if ranks.size != 4:
        pytest.skip("compares layouts of 4 ranks")
    request = parse_layout(text)
    assert request.mesh is not None
    spec = RunSpec(
        layout=Layout(strategy=request.strategy, mesh=request.mesh),
        workload=make_workload("tiny", 8, 64),
        ranks=Ranks(device="cpu", per_node=(4,)),
        settings=Settings(),
        purpose="time",
    )
    results: list[list[tuple[float, float]]] = []
    benchmark.group = "harness overhead"
    benchmark.pedantic(
        lambda: results.append(ranks.call("benchmarks.beside_bare:alternate", spec, CYCLES)[0]),
        rounds=ROUNDS,
        iterations=1,
    )
    ratio = paired_ratio(results)
    through = median(t for pairs in results for t, _ in pairs)
    without = median(t for pairs in results for _, t in pairs)
    benchmark.extra_info.update(
        layout=text,
        ratio_of_medians=through / without,
        paired_ratio=ratio.ratio,
        paired_ratio_low=ratio.low,
        paired_ratio_high=ratio.high,
        harness_step_time_s=through,
        bare_step_time_s=without,
    )
    print(f"\n{text}: through the harness / bare = {through / without:.4f}, paired {ratio.ratio:.4f}")
    assert min(through / without, ratio.low) <= MOST
