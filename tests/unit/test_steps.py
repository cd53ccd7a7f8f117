"""What a sweep does next, from its plan and records alone."""

from __future__ import annotations

from typing import Any

import pytest

from harness.failure import FailureClass
from harness.record import Failure, RunRecord
from harness.spec import SweepPlan
from harness.sweep.steps import choose_design, next_launches, rankable
from tests.unit.factories import (
    NORMS,
    layout,
    make_failed_record,
    make_ground,
    make_plan,
    make_time_record,
    make_verify_record,
)

LAYOUTS = ("ddp:r4", "fsdp:s4", "hsdp:r2s2")


def verified(plan: SweepPlan, **changes: Any) -> list[RunRecord]:
    return [make_verify_record(plan, text, **changes.get(text, {})) for text in ("single", *LAYOUTS)]


def described(plan: SweepPlan, records: list[RunRecord]) -> list[tuple[str, list[str]]]:
    return [(launch.launch_id, [run.layout.text for run in launch.runs]) for launch in next_launches(plan, records, 0)]


def test_every_layout_is_verified_by_itself_the_reference_first() -> None:
    assert described(make_plan(LAYOUTS), []) == [
        ("001-verify-single-r1", ["single:r1"]),
        ("002-verify-ddp-r4", ["ddp:r4"]),
        ("003-verify-fsdp-s4", ["fsdp:s4"]),
        ("004-verify-hsdp-r2s2", ["hsdp:r2s2"]),
    ]


def test_each_launch_carries_the_contract_of_its_mesh() -> None:
    launches = next_launches(make_plan(LAYOUTS), [], 0)
    assert [launch.contracts[0].mesh for launch in launches] == [launch.runs[0].layout.mesh for launch in launches]


def test_after_the_gate_all_layouts_share_a_launch_a_round() -> None:
    plan = make_plan(LAYOUTS, rounds=2)
    assert described(plan, verified(plan)) == [
        ("001-time-round0", list(LAYOUTS)),
        ("002-time-round1", list(LAYOUTS)),
    ]


def test_a_complete_sweep_has_nothing_left() -> None:
    plan = make_plan(LAYOUTS, rounds=2)
    timed = [make_time_record(plan, text, repeat) for text in LAYOUTS for repeat in (0, 1)]
    assert next_launches(plan, [*verified(plan), *timed], 9) == ()


def test_only_what_is_missing_runs_again() -> None:
    plan = make_plan(LAYOUTS, rounds=2)
    timed = [make_time_record(plan, text, repeat) for text in LAYOUTS for repeat in (0, 1)]
    missing = [r for r in timed if not (r.spec.layout == layout("fsdp:s4") and r.spec.repeat == 1)]
    assert described(plan, [*verified(plan), *missing]) == [("001-time-round1-fsdp-s4", ["fsdp:s4"])]


def test_a_diverged_layout_is_not_timed() -> None:
    plan = make_plan(LAYOUTS, rounds=1)
    records = verified(plan, **{"fsdp:s4": {"grad_norms": tuple(4 * norm for norm in NORMS)}})
    assert [x.text for x in rankable(plan, records)] == ["ddp:r4", "hsdp:r2s2"]
    assert described(plan, records) == [("001-time-round0", ["ddp:r4", "hsdp:r2s2"])]


def test_a_layout_that_failed_to_verify_is_neither_tried_again_nor_timed() -> None:
    plan = make_plan(LAYOUTS, rounds=1)
    records = [r for r in verified(plan) if r.spec.layout != layout("fsdp:s4")]
    records.append(make_failed_record(plan, "fsdp:s4", "verify"))
    assert described(plan, records) == [("001-time-round0", ["ddp:r4", "hsdp:r2s2"])]


def test_a_layout_that_failed_in_a_round_leaves_the_others_to_finish() -> None:
    plan = make_plan(LAYOUTS, rounds=2)
    records = [*verified(plan), make_failed_record(plan, "fsdp:s4", "time", 0)]
    assert described(plan, records) == [
        ("001-time-round0", ["ddp:r4", "hsdp:r2s2"]),
        ("002-time-round1", ["ddp:r4", "hsdp:r2s2"]),
    ]


@pytest.mark.parametrize(("times", "left"), [(1, True), (2, False)])
def test_a_failure_that_says_nothing_about_the_layout_is_tried_again_once(times: int, left: bool) -> None:
    plan = make_plan(LAYOUTS, rounds=1)
    lost = make_failed_record(plan, "fsdp:s4", "verify")
    assert lost.failure is not None
    lost = lost.model_copy(
        update={"failure": lost.failure.model_copy(update={"failure_class": FailureClass.NODE_FAILURE})}
    )
    attempts = [lost.model_copy(update={"attempt": attempt}) for attempt in range(times)]
    records = [r for r in verified(plan) if r.spec.layout != layout("fsdp:s4")]
    again = any("verify-fsdp" in launch_id for launch_id, _ in described(plan, [*records, *attempts]))
    assert again is left


def out_of_memory(record: RunRecord) -> RunRecord:
    failure = Failure(failure_class=FailureClass.DEVICE_OOM, phase="build", message="CUDA out of memory")
    return record.model_copy(update={"status": "interrupted", "failure": failure, "timing": None})


def test_out_of_memory_in_company_goes_on_with_less_company() -> None:
    plan = make_plan(LAYOUTS, rounds=1)
    records = verified(plan)
    assert choose_design(plan, records, plan.layouts) == "alternated"
    first = out_of_memory(make_time_record(plan, "fsdp:s4"))
    assert choose_design(plan, [*records, first], plan.layouts) == "blocks"
    second = first.model_copy(update={"launch_design": "blocks", "attempt": 1})
    assert choose_design(plan, [*records, first, second], plan.layouts) == "launches"
    assert described(plan, [*records, first, second]) == [
        ("001-time-round0-ddp-r4", ["ddp:r4"]),
        ("002-time-round0-fsdp-s4", ["fsdp:s4"]),
        ("003-time-round0-hsdp-r2s2", ["hsdp:r2s2"]),
    ]


def test_models_that_do_not_fit_together_are_timed_in_blocks() -> None:
    plan = make_plan(LAYOUTS, rounds=1)
    small = make_ground(memory_bytes=1)
    records = [r.model_copy(update={"ground": small}) for r in verified(plan)]
    assert choose_design(plan, records, plan.layouts) == "blocks"


def test_a_design_that_is_asked_for_is_used() -> None:
    plan = make_plan(LAYOUTS).model_copy(update={"design": "launches"})
    assert choose_design(plan, verified(plan), plan.layouts) == "launches"


def test_links_are_timed_before_all_else_and_alone_where_asked() -> None:
    plan = make_plan(LAYOUTS).model_copy(update={"calibrate": "first"})
    (launch,) = next_launches(plan, [], 0)
    assert (launch.launch_id, launch.runs[0].purpose) == ("001-calibrate", "calibrate")
    assert launch.layouts == plan.layouts
    done = make_verify_record(plan, "ddp:r4").model_copy(
        update={"spec": launch.runs[0], "run_id": launch.runs[0].run_id}
    )
    assert [one.runs[0].purpose for one in next_launches(plan, [done], 1)] == ["verify"] * 4
    assert next_launches(plan.model_copy(update={"calibrate": "only"}), [done], 1) == ()
    assert described(make_plan(LAYOUTS), [])[0][0] == "001-verify-single-r1"
