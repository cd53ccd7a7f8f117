"""Nights of a suite made up for measuring how a long history is read: records as a sweep writes them."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np

from harness.layout import Layout
from harness.layout.candidates import candidates, default_requests
from harness.record import Checkpoint, GateSamples, Ground, Memory, RunRecord, Timing
from harness.spec import Design, Ranks, Settings, SweepPlan
from harness.topology.model import Device, Node, Topology
from harness.workload import PRESETS, Workload

FIRST = datetime(2026, 1, 1, 3, tzinfo=UTC)
RANKS = 4
STEPS = 20
DESIGN: Design = "alternated"


def write_nights(root: Path, nights: int, rounds: int = 5, seed: int = 0) -> int:
    """Write ``nights`` sweeps under ``root``; the count of records. In the last tenth fsdp is 10% slower."""
    rng = np.random.default_rng(seed)
    written = 0
    for night in range(nights):
        moment = FIRST + timedelta(days=night)
        plan = make_plan(f"nightly-{moment:%Y%m%d-%H%M%S}", moment, rounds)
        folder = root / plan.name / "records"
        folder.mkdir(parents=True)
        (folder.parent / "sweep.json").write_text(plan.model_dump_json(indent=1))
        machine = 1 + 0.03 * rng.standard_normal()
        for place, layout in enumerate(plan.layouts):
            slow = 1.1 if layout.strategy == "fsdp" and night >= 0.9 * nights else 1.0
            level = 0.1 * (1 + 0.1 * place) * machine * slow
            for record in _records(plan, layout, level, moment, rng):
                (folder / f"{record.run_id}.a0.json").write_text(record.model_dump_json(indent=1))
                written += 1
    return written


def make_plan(name: str, moment: datetime, rounds: int) -> SweepPlan:
    """The plan of one night: every legal layout of ``tiny`` on four CPU ranks, and fsdp1's."""
    node = Node(host="node0", devices=tuple(Device(index=i, kind="cpu", name="CPU") for i in range(RANKS)), cpu_count=4)
    topology = Topology(nodes=(node,), sources=("proc",))
    workload = Workload(model=PRESETS["tiny"], global_batch=8, seq_len=64)
    layouts = candidates(default_requests(RANKS), workload, RANKS, topology).layouts
    return SweepPlan(
        name=name,
        created_at=moment.isoformat(),
        command="meshsweep nightly",
        topology=topology,
        workload=workload,
        ranks=Ranks(device="cpu", per_node=(RANKS,)),
        settings=Settings(rounds=rounds, timed_steps=STEPS),
        reference=layouts[0],
        layouts=layouts,
    )


def _records(
    plan: SweepPlan, layout: Layout, level: float, moment: datetime, rng: np.random.Generator
) -> Sequence[RunRecord]:
    found = [_record(plan, layout, "verify", 0, moment, gate=_GATE, memory=_MEMORY, checkpoint=_CHECKPOINT)]
    for repeat in range(plan.settings.rounds):
        times = level * np.exp(0.03 * rng.standard_normal() + 0.1 * rng.standard_normal((RANKS, STEPS)))
        timing = Timing(
            design=DESIGN,
            companions=tuple(other.label for other in plan.layouts),
            warmup_s=tuple(float(t) for t in times[0, :8]),
            steady=True,
            cycles=tuple(range(STEPS)),
            step_time_s=tuple(tuple(float(t) for t in row) for row in times),
        )
        found.append(_record(plan, layout, "time", repeat, moment, timing=timing))
    return found


def _record(
    plan: SweepPlan,
    layout: Layout,
    purpose: str,
    repeat: int,
    moment: datetime,
    *,
    timing: Timing | None = None,
    gate: GateSamples | None = None,
    memory: Memory | None = None,
    checkpoint: Checkpoint | None = None,
) -> RunRecord:
    spec = plan.run(layout, "verify" if purpose == "verify" else "time", repeat)
    return RunRecord(
        run_id=spec.run_id,
        cell_id=spec.cell_id,
        attempt=0,
        launch_id=f"{purpose}-{repeat}",
        launch_design=DESIGN,
        spec=spec,
        status="measured",
        started_at=(moment + timedelta(minutes=repeat)).isoformat(),
        wall_s=12.0,
        startup_s=3.0,
        ground=_GROUND,
        timing=timing,
        gate=gate,
        memory=memory,
        checkpoint=checkpoint,
    )


_GATE = GateSamples(
    losses=tuple(6.0 - 0.1 * step for step in range(10)),
    grad_norms=tuple(2.0 - 0.05 * step for step in range(10)),
    first_grad_norm_by_parameter={f"blocks.{block}.{name}": 0.1 for block in range(2) for name in ("wq", "wk", "wv")},
)
_MEMORY = Memory(method="live tensor bytes", peak_bytes=(5_000_000,) * RANKS, peak_rss_bytes=(400_000_000,) * RANKS)
_CHECKPOINT = Checkpoint(
    folder="checkpoints/x", total_bytes=2_000_000, files=5, save_time_s=0.1, restore_time_s=0.2, equal=True
)
_GROUND = Ground(
    hosts=("node0",),
    device="cpu",
    device_names=("cpu",),
    cpu="Some CPU",
    cpu_count=4,
    memory_bytes=2**33,
    platform="Linux-x86_64",
    python="3.12.1",
    torch="2.13.0",
    backend="gloo",
    commit="0123abc",
    version="0.1.0",
    threads_per_rank=1,
    load_average=0.2,
)
