"""What memory rules out: by prediction with its margin, and by an earlier out-of-memory."""

from __future__ import annotations

from typing import Any

import pytest

from harness.errors import UsageError
from harness.failure import FailureClass
from harness.layout import parse_layout
from harness.predict.error import MEMORY_MARGIN as MARGIN
from harness.predict.memory import predict_memory
from harness.record import RunRecord
from harness.spec import Ranks, Settings
from harness.store import SweepStore
from harness.sweep.plan import make_plan
from harness.sweep.prune import earlier_failures, prune
from harness.topology.model import Device, Node, Topology
from harness.workload import PRESETS, Workload
from tests.unit import factories
from tests.unit.factories import layout, make_failed_record, make_ground

WORK = Workload(model=PRESETS["8b"], global_batch=8, seq_len=2048)
FSDP, DDP = layout("fsdp:s8"), layout("ddp:r8")


def machine(memory_bytes: int | None, name: str = "Some GPU") -> Topology:
    devices = tuple(Device(index=i, name=name, memory_bytes=memory_bytes) for i in range(8))
    return Topology(nodes=(Node(host="node0", devices=devices),))


GPUS = Ranks(device="cuda", per_node=(8,))


def test_what_cannot_fit_is_pruned_with_its_numbers() -> None:
    kept, pruned = prune([DDP, FSDP], WORK, GPUS, machine(80 * 2**30))
    # 16 bytes a parameter of 8.03 billion are 120 GiB on each rank of DDP, 15 GiB on each of 8 shards
    assert kept == (FSDP,)
    assert [(p.layout, p.rule) for p in pruned] == [(DDP, "predicted_memory")]
    assert "80.0 GiB of Some GPU on node0" in pruned[0].reason
    assert "margin of 10%" in pruned[0].reason


def test_the_margin_is_given_to_the_layout() -> None:
    need = predict_memory(DDP, WORK, kernels="cuda").peak_bytes
    within, beyond = int(need / (1 + MARGIN)) + 1, int(need / (1 + MARGIN)) - 1
    assert prune([DDP], WORK, GPUS, machine(within))[0] == (DDP,)
    assert prune([DDP], WORK, GPUS, machine(beyond))[0] == ()


def test_unknown_memory_prunes_nothing() -> None:
    assert prune([DDP, FSDP], WORK, GPUS, machine(None)) == ((DDP, FSDP), ())


def test_a_users_own_model_is_not_predicted() -> None:
    own = WORK.model_copy(update={"model_path": "some.module:build"})
    assert prune([DDP], own, GPUS, machine(2**30))[0] == (DDP,)


def test_ranks_of_a_cpu_share_the_hosts_memory() -> None:
    need = predict_memory(DDP, WORK, kernels="cpu").peak_bytes
    ranks = Ranks(device="cpu", per_node=(8,))

    def host(memory_bytes: int) -> Topology:
        devices = tuple(Device(index=i, kind="cpu") for i in range(8))
        return Topology(nodes=(Node(host="node0", devices=devices, memory_bytes=memory_bytes),))

    assert prune([DDP], WORK, ranks, host(8 * need))[0] == (DDP,)
    _, pruned = prune([DDP], WORK, ranks, host(4 * need))
    assert "8 ranks' peaks of together" in pruned[0].reason


def ran_out(text: str, workload: Workload, **ground: Any) -> RunRecord:
    plan = factories.make_plan((text,), world_size=8, cuda=True).model_copy(update={"workload": workload})
    record = make_failed_record(plan, text)
    assert record.failure is not None
    failure = record.failure.model_copy(update={"failure_class": FailureClass.DEVICE_OOM})
    here = make_ground(
        **{"device": "cuda", "device_names": ("Some GPU",) * 8, "device_memory_bytes": 1 << 40, **ground}
    )
    return record.model_copy(update={"failure": failure, "ground": here})


def batch(size: int) -> Workload:
    return WORK.model_copy(update={"global_batch": size})


@pytest.mark.parametrize(
    ("earlier", "now", "skipped"),
    [
        (("fsdp:s8", 32), ("fsdp:s8", 64), True),  # micro-batch 4 ran out, skip 8
        (("fsdp:s8", 64), ("fsdp:s8", 32), False),
        (("fsdp:s8", 32), ("hsdp:r2s4", 64), False),
        (("fsdp:s8+activation_checkpointing=full", 32), ("fsdp:s8", 32), True),
        (("fsdp:s8", 32), ("fsdp:s8+activation_checkpointing=full", 64), False),
        (("fsdp:s8+precision=bf16", 32), ("fsdp:s8", 32), False),  # which needs more is not known
    ],
)
def test_an_earlier_out_of_memory_rules_out_what_needs_no_less(
    earlier: tuple[str, int], now: tuple[str, int], skipped: bool
) -> None:
    record = ran_out(earlier[0], batch(earlier[1]))
    kept, pruned = prune([layout(now[0])], batch(now[1]), GPUS, machine(1 << 40), [record])
    assert [p.rule for p in pruned] == ["earlier_out_of_memory"] * skipped
    assert bool(kept) is not skipped
    if skipped and now[1] == 64:
        assert "micro-batch 4" in pruned[0].reason
        assert "micro-batch 8" in pruned[0].reason


@pytest.mark.parametrize("other", [{"device_names": ("Other GPU",) * 8}, {"device_memory_bytes": 1 << 39}])
def test_an_out_of_memory_on_other_devices_says_nothing(other: dict[str, Any]) -> None:
    record = ran_out("fsdp:s8", batch(32), **other)
    assert prune([FSDP], batch(64), GPUS, machine(1 << 40), [record])[0] == (FSDP,)


def test_earlier_sweeps_are_read_and_broken_ones_let_pass(tmp_path: Any) -> None:
    record = ran_out("fsdp:s8", batch(32))
    store = SweepStore.create(tmp_path, factories.make_plan(("fsdp:s8",)))
    store.add(record)
    store.add(make_failed_record(factories.make_plan(("ddp:r4",)), "ddp:r4"))
    broken = tmp_path / "broken"
    (broken / "records").mkdir(parents=True)
    (broken / "sweep.json").write_text("{}")
    (broken / "records" / "x.a0.json").write_text("no record")
    assert [r.run_id for r in earlier_failures(tmp_path)] == [record.run_id]


def test_a_plan_shows_what_was_pruned_and_needs_one_layout_that_fits() -> None:
    requests = [parse_layout("fsdp:s8"), parse_layout("ddp:r8")]

    def plan(memory_bytes: int, memory_prune: bool) -> list[str]:
        made = make_plan(
            topology=machine(memory_bytes),
            ranks=GPUS,
            workload=WORK,
            requests=requests,
            settings=Settings(),
            memory_prune=memory_prune,
        )
        return [x.text for x in made.layouts]

    assert plan(80 * 2**30, memory_prune=True) == ["fsdp:s8"]
    assert plan(80 * 2**30, memory_prune=False) == ["fsdp:s8", "ddp:r8"]
    with pytest.raises(UsageError, match=r"no layout fits: fsdp:s8: predicted .* --no-prune"):
        plan(2**30, memory_prune=True)
