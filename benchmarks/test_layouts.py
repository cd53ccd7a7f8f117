"""One benchmark a layout: real distributed training steps in a persistent group of rank processes."""

from __future__ import annotations

from pytest_benchmark.fixture import BenchmarkFixture

from harness.execute.ranks import RankGroup
from harness.spec import RunSpec

REMOTE = "harness.train.remote"
WARMUP_ROUNDS = 5
ROUNDS = 20


def test_step(benchmark: BenchmarkFixture, ranks: RankGroup, spec: RunSpec) -> None:
    """Time of one optimizer step of the slowest rank, with the call to the ranks (well under a millisecond)."""
    mesh = spec.layout.mesh
    benchmark.group = f"step: {spec.workload.model.name}, world size {mesh.world_size}"
    peaks = ranks.call(f"{REMOTE}:open_session", spec)
    try:
        benchmark.pedantic(ranks.call, (f"{REMOTE}:step",), rounds=ROUNDS, warmup_rounds=WARMUP_ROUNDS)
    finally:
        ranks.call(f"{REMOTE}:close_session")
    checkpoint = ranks.call(f"{REMOTE}:checkpoint", spec)[0]
    benchmark.extra_info.update(
        layout=spec.layout.text,
        mesh_signature=mesh.signature,
        world_size=mesh.world_size,
        model=spec.workload.model.name,
        tokens_per_step=spec.workload.tokens_per_step,
        peak_memory_bytes=max(peaks),
        checkpoint_bytes=checkpoint.total_bytes,
        checkpoint_files=checkpoint.files,
        save_time_s=checkpoint.save_time_s,
        restore_time_s=checkpoint.restore_time_s,
    )
    if benchmark.stats is not None:
        benchmark.extra_info["tokens_per_s"] = spec.workload.tokens_per_step / benchmark.stats.stats.median
    assert checkpoint.equal
