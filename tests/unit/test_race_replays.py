"""Races replayed on recorded step times: the winner of the exhaustive sweep, for a fraction of its steps.

``samples/default_sweep.json`` holds the slowest rank's step times (s) of six rounds of ``meshsweep run --exhaustive``
with default settings on a busy two-core machine: one mapping a round from layout to the times of its 20 cycles. A
replay draws four of the rounds in an order of its own; the exhaustive sweep has the first three of them.
"""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest

from harness.compare import Comparison, compare
from harness.record import RunRecord
from harness.spec import SweepPlan, make_race
from harness.sweep.steps import next_launches
from tests.unit.factories import make_plan, make_time_record, make_verify_record

RECORDED = json.loads((Path(__file__).parent / "samples" / "default_sweep.json").read_text(encoding="utf-8"))
LAYOUTS = ("ddp:r4", "fsdp:s4", "hsdp:r2s2", "tp:t4", "fsdp_tp:s2t2", "ddp_tp:r2t2")
MOST_STEPS = 0.4


def replay(plan: SweepPlan, rounds: list[dict[str, list[float]]]) -> tuple[Comparison, int]:
    """The comparison that a sweep ends with, and its timed steps."""
    records = replayed(plan, rounds)
    return compare(plan, records), sum(len(r.timing.cycles) for r in records if r.timing)


def replayed(plan: SweepPlan, rounds: list[dict[str, list[float]]]) -> list[RunRecord]:
    """The records that a sweep ends with."""
    records: list[RunRecord] = [make_verify_record(plan, text) for text in ("single", *LAYOUTS)]
    while launches := next_launches(plan, records, len(records)):
        for launch in launches:
            for run in launch.runs:
                times = rounds[run.repeat][run.layout.label][: run.timed_steps]
                new = make_time_record(plan, run.layout.text, run.repeat, steps=times, launch_id=launch.launch_id)
                records.append(new)
    return records


@pytest.mark.parametrize("seed", range(20))
def test_a_race_finds_the_winner_of_the_exhaustive_sweep(seed: int) -> None:
    rounds = random.Random(seed).sample(RECORDED, 4)
    plan = make_plan(LAYOUTS)
    exhaustive, all_steps = replay(plan, rounds)
    raced, steps = replay(plan.model_copy(update={"race": make_race(plan.settings)}), rounds)
    assert exhaustive.best is not None
    assert raced.best is not None
    assert exhaustive.best.label in {raced.best.label, *(cell.label for cell in raced.ties)}
    assert steps <= MOST_STEPS * all_steps
    assert raced.race is not None
    assert raced.race.savings is not None
    assert (raced.race.savings.measured_steps, raced.race.savings.exhaustive_steps) == (steps, all_steps)
    assert all_steps == 6 * 3 * 20
