"""Plans and records made by hand, where the answer is known."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from harness.failure import FailureClass
from harness.layout import Layout, Mesh, parse_layout
from harness.record import Checkpoint, Failure, GateSamples, Ground, Memory, RunRecord, Status, Timing
from harness.spec import Design, Pruned, Ranks, RunSpec, Settings, SweepPlan
from harness.store import SweepStore
from harness.topology.model import Device, Link, LinkClass, Node, Topology
from harness.workload import PRESETS, Workload

MIB = 2**20
STEPS = 20
LOSSES = tuple(6.0 - 0.1 * step for step in range(10))
NORMS = tuple(2.0 - 0.05 * step for step in range(10))


def layout(text: str) -> Layout:
    """``hsdp:r2s2+precision=bf16`` as a Layout; without a mesh, one rank."""
    request = parse_layout(text)
    return Layout(strategy=request.strategy, mesh=request.mesh or Mesh(), options=request.options)


def make_ground(**changes: Any) -> Ground:
    values: dict[str, Any] = {
        "hosts": ("node0",),
        "device": "cpu",
        "cpu": "Some CPU",
        "cpu_count": 4,
        "memory_bytes": 8 * 1024 * MIB,
        "platform": "Linux-x86_64",
        "python": "3.12.1",
        "torch": "2.13.0",
        "backend": "gloo",
        "commit": "0123abc",
        "version": "0.1.0",
        "threads_per_rank": 1,
        "load_average": 0.2,
    }
    return Ground(**{**values, **changes})


def make_plan(
    layouts: Sequence[str] = ("ddp:r4", "fsdp:s4", "hsdp:r2s2"),
    *,
    world_size: int = 4,
    reference: str = "single",
    pruned: Sequence[tuple[str, str, str]] = (),
    rounds: int = 3,
    model: str = "tiny",
    global_batch: int = 8,
    seq_len: int = 125,
    **more: Any,
) -> SweepPlan:
    """A plan whose step is 1,000 tokens. ``pruned``: (layout, rule, reason)."""
    device = "cuda" if more.pop("cuda", False) else "cpu"
    node = Node(
        host="node0",
        devices=tuple(Device(index=i, kind=device, name="Some CPU") for i in range(world_size)),
        links=tuple(
            Link(a=a, b=b, link_class=LinkClass.HOST_MEMORY)
            for a in range(world_size)
            for b in range(a + 1, world_size)
        ),
        cpu_count=4,
    )
    return SweepPlan(
        name="sweep",
        created_at="2026-01-02T03:04:05+00:00",
        command="meshsweep run",
        topology=Topology(nodes=(node,), sources=("proc",)),
        workload=Workload(model=PRESETS[model], global_batch=global_batch, seq_len=seq_len),
        ranks=Ranks(device=device, per_node=(world_size,)),
        settings=Settings(rounds=rounds, **more),
        reference=layout(reference),
        layouts=tuple(layout(text) for text in layouts),
        pruned=tuple(Pruned(layout=layout(t), rule=rule, reason=reason) for t, rule, reason in pruned),
    )


def make_time_record(
    plan: SweepPlan,
    text: str,
    repeat: int = 0,
    *,
    steps: Sequence[float] | None = None,
    step_time_s: float = 0.1,
    launch_id: str | None = None,
    design: Design = "alternated",
    cycles: Sequence[int] | None = None,
    steady: bool = True,
    **record: Any,
) -> RunRecord:
    """One round. ``steps`` are the slowest rank's times (s), of which the other ranks take 90%."""
    spec = plan.run(layout(text), "time", repeat)
    times = tuple(steps) if steps is not None else (step_time_s,) * STEPS
    slowest, ranks = spec.ranks.world_size - 1, range(spec.ranks.world_size)
    timing = Timing(
        design=design,
        companions=tuple(x.label for x in plan.layouts),
        warmup_s=(2 * step_time_s, step_time_s, step_time_s),
        steady=steady,
        cycles=tuple(cycles) if cycles is not None else tuple(range(len(times))),
        step_time_s=tuple(tuple(t if rank == slowest else 0.9 * t for t in times) for rank in ranks),
    )
    return _record(spec, launch_id or f"time{repeat}", timing=timing, **record)


def make_verify_record(
    plan: SweepPlan,
    text: str,
    *,
    losses: Sequence[float] = LOSSES,
    grad_norms: Sequence[float] = NORMS,
    peak_bytes: int | None = 100 * MIB,
    checkpoint_bytes: int | None = 50 * MIB,
    save_time_s: float = 0.5,
    restore_time_s: float = 0.25,
    equal: bool = True,
    **record: Any,
) -> RunRecord:
    """A verify run that follows the reference; None leaves memory or checkpoint out."""
    spec = plan.run(layout(text), "verify")
    ranks = spec.ranks.world_size
    values: dict[str, Any] = {"gate": GateSamples(losses=tuple(losses), grad_norms=tuple(grad_norms))}
    if peak_bytes is not None:
        peaks = tuple(peak_bytes - rank for rank in range(ranks))
        values["memory"] = Memory(
            method="live tensor bytes", peak_bytes=peaks, peak_rss_bytes=(3 * peak_bytes,) * ranks
        )
    if checkpoint_bytes is not None:
        values["checkpoint"] = Checkpoint(
            folder=f"checkpoints/{spec.layout.mesh.signature}",
            total_bytes=checkpoint_bytes,
            files=ranks + 1,
            save_time_s=save_time_s,
            restore_time_s=restore_time_s,
            equal=equal,
        )
    return _record(spec, f"verify-{text}", **{**values, **record})


def make_failed_record(
    plan: SweepPlan, text: str, purpose: str = "verify", repeat: int = 0, *, log_tail: str = "", **record: Any
) -> RunRecord:
    """A run that a kill of rank 2 ended."""
    spec = plan.run(layout(text), "verify" if purpose == "verify" else "time", repeat)
    failure = Failure(
        failure_class=FailureClass.CRASH,
        phase="gate" if purpose == "verify" else "timing",
        message="rank 2 ended by signal 9",
        rank=2,
        host="node0",
        log_tail=log_tail,
        log="launches/x/2_log.err",
    )
    return _record(spec, f"{purpose}-{text}-{repeat}", status="failed", failure=failure, **record)


def make_records(plan: SweepPlan, times: dict[str, float], rounds: int | None = None, **timing: Any) -> list[RunRecord]:
    """Verify and time records of layouts with a constant step time (s) each, side by side, and the reference's."""
    records = [make_verify_record(plan, text) for text in dict.fromkeys((plan.reference.text, *times))]
    for text, step_time_s in times.items():
        for repeat in range(plan.settings.rounds if rounds is None else rounds):
            steps = jitter(step_time_s, seed=repeat)
            records.append(make_time_record(plan, text, repeat, steps=steps, **timing))
    return records


def jitter(step_time_s: float, seed: int = 0, size: float = 0.02) -> list[float]:
    """Step times (s) that differ by up to ``size``, alike for all layouts of one round, as alternated steps are."""
    return [step_time_s * (1 + size * ((7 * step + 3 * seed) % 11 / 5 - 1)) for step in range(STEPS)]


def replace_record(records: Iterable[RunRecord], new: RunRecord) -> list[RunRecord]:
    """The records with the one of the same run and attempt replaced."""
    kept = [r for r in records if (r.run_id, r.attempt) != (new.run_id, new.attempt)]
    return [*kept, new]


def _record(spec: RunSpec, launch_id: str, *, status: Status = "measured", attempt: int = 0, **more: Any) -> RunRecord:
    values: dict[str, Any] = {
        "started_at": f"2026-01-02T03:04:{spec.repeat:02d}+00:00",
        "wall_s": 5.0,
        "startup_s": 2.0,
        "ground": make_ground(),
    }
    return RunRecord(
        run_id=spec.run_id,
        cell_id=spec.cell_id,
        attempt=attempt,
        launch_id=launch_id,
        launch_design=more["timing"].design if "timing" in more else "launches",
        spec=spec,
        status=status,
        **{**values, **more},
    )


def make_store(folder: Path) -> SweepStore:
    """A sweep of 4 CPU ranks on one node, in ``folder/results``: ddp is fastest, then hsdp, then fsdp."""
    plan = make_plan()
    store = SweepStore.create(folder / "results", plan)
    for record in make_records(plan, {"ddp:r4": 0.1, "fsdp:s4": 0.2, "hsdp:r2s2": 0.15}):
        store.add(record)
    return store
