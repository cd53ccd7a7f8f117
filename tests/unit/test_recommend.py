"""Recommendations on records made by hand, where the answer is known."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from harness.errors import UsageError
from harness.recommend import Limits, Recommendation, make_objective, recommend
from harness.recommend.cautions import cautions
from harness.recommend.console import render
from harness.recommend.quantities import parse_share, parse_size, parse_time
from harness.record import RunRecord
from harness.spec import SweepPlan
from tests.unit.factories import (
    MIB,
    make_failed_record,
    make_ground,
    make_plan,
    make_records,
    make_time_record,
    make_verify_record,
    replace_record,
)

TIMES = {"ddp:r4": 0.1, "hsdp:r2s2": 0.11, "fsdp:s4": 0.125}  # 10,000, 9,091 and 8,000 tokens/s
PEAKS = {"ddp:r4": 400, "hsdp:r2s2": 200, "fsdp:s4": 100}
RESTORES = {"ddp:r4": 4.0, "hsdp:r2s2": 1.0, "fsdp:s4": 2.0}
GIB = 1024 * MIB
SPEED = make_objective("speed")


def sweep(**plan: Any) -> tuple[SweepPlan, list[RunRecord]]:
    made = make_plan(list(TIMES), **plan)
    records = make_records(made, TIMES)
    for text in TIMES:
        verify = make_verify_record(made, text, peak_bytes=PEAKS[text] * MIB, restore_time_s=RESTORES[text])
        records = replace_record(records, verify)
    return made, records


def labels(found: Recommendation) -> list[str]:
    return [choice.label for choice in found.choices]


def test_without_constraints_the_fastest_wins_with_its_lead() -> None:
    found = recommend(*sweep(), SPEED)
    assert labels(found) == ["ddp r4", "hsdp r2s2", "fsdp s4"]
    assert found.certainty == "decided" and found.ties == ()
    leads = [c.advantage.ratio for c in found.choices[1:] if c.advantage]
    assert leads == pytest.approx([1.1, 1.25], rel=1e-6)
    assert found.sentence.startswith("Train with ddp r4: 10,000 tokens/s [")
    assert found.sentence.endswith("10.0% [10.0, 10.0] ahead of hsdp r2s2.")
    assert "3 rounds, timed side by side" in found.sureness[0]


def test_a_memory_limit_excludes_with_its_numbers_and_says_what_it_costs() -> None:
    found = recommend(*sweep(), SPEED, Limits(max_memory_bytes=256 * MIB))
    assert labels(found) == ["hsdp r2s2", "fsdp s4"]
    (excluded,) = found.excluded
    assert excluded.label == "ddp r4"
    assert excluded.reason == "its memory of 400 MiB breaks --max-memory 256 MiB"
    (cost,) = found.constraints
    assert (cost.constraint, cost.excluded, cost.label) == ("max-memory", 1, "ddp r4")
    assert cost.advantage is not None and cost.advantage.ratio == pytest.approx(1.1, rel=1e-6)
    assert "without it ddp r4 would win, 10.0% [10.0, 10.0] ahead of hsdp r2s2" in render(found, width=1000)


def test_each_constraint_is_lifted_alone() -> None:
    found = recommend(*sweep(), SPEED, Limits(max_memory_bytes=256 * MIB, max_restore_s=1.5))
    assert labels(found) == ["hsdp r2s2"]
    assert found.certainty == "unopposed"
    memory, restore = found.constraints
    assert (memory.label, memory.excluded) == (None, 1)  # ddp breaks --max-restore as well
    assert (restore.label, restore.excluded) == (None, 2)  # fsdp would be admitted, but is slower
    both = recommend(*sweep(), SPEED, Limits(max_memory_bytes=150 * MIB, max_restore_s=3))
    assert labels(both) == ["fsdp s4"]
    assert [c.label for c in both.constraints] == ["hsdp r2s2", None]


def test_headroom_needs_the_devices_memory() -> None:
    plan, records = sweep()
    unknown = recommend(plan, records, SPEED, Limits(min_headroom=0.1))
    assert unknown.winner is None and unknown.certainty == "none"
    assert "its headroom was not measured" in unknown.sentence
    ground = make_ground(device_memory_bytes=440 * MIB)
    known = [r.model_copy(update={"ground": ground}) for r in records]
    found = recommend(plan, known, SPEED, Limits(min_headroom=0.1))
    assert labels(found) == ["hsdp r2s2", "fsdp s4"]  # ddp leaves 40 of 440 MiB, 9.1%
    assert found.excluded[0].reason == "its headroom of 9.1% breaks --min-headroom 10.0%"
    assert found.choices[0].headroom == pytest.approx(240 / 440)


def test_reserved_memory_counts_where_it_was_recorded() -> None:
    plan, records = sweep()
    verify = next(r for r in records if r.spec.purpose == "verify" and r.spec.layout.label == "hsdp r2s2")
    assert verify.memory is not None
    reserved = verify.memory.model_copy(update={"peak_reserved_bytes": (300 * MIB,) * 4})
    records = replace_record(records, verify.model_copy(update={"memory": reserved}))
    assert labels(recommend(plan, records, SPEED, Limits(max_memory_bytes=256 * MIB))) == ["fsdp s4"]


def test_ties_are_named_and_one_round_decides_nothing() -> None:
    plan = make_plan(["ddp:r4", "fsdp:s4"])
    records = [make_verify_record(plan, text) for text in ("single", "ddp:r4", "fsdp:s4")]
    for repeat, (a, b) in enumerate(((0.100, 0.104), (0.104, 0.101), (0.101, 0.103))):
        records.append(make_time_record(plan, "ddp:r4", repeat, steps=[a] * 20))
        records.append(make_time_record(plan, "fsdp:s4", repeat, steps=[b] * 20))
    found = recommend(plan, records, SPEED)
    assert found.certainty == "tie" and [c.label for c in found.ties] == ["fsdp s4"]
    assert found.sentence.endswith(" ahead of fsdp s4, which cannot be told from it.")
    one = make_plan(["ddp:r4", "fsdp:s4"], rounds=1)
    found = recommend(one, make_records(one, {"ddp:r4": 0.1, "fsdp:s4": 0.2}), SPEED)
    assert found.certainty == "undecided"
    assert "one round cannot tell it from fsdp s4" in found.sentence
    assert found.sureness[0].startswith("One round cannot tell layouts apart")


def test_a_failed_best_cell_and_missing_metrics_never_win() -> None:
    plan, records = sweep()
    records = [r for r in records if not (r.spec.layout.label == "ddp r4" and r.spec.purpose == "time")]
    records.append(make_failed_record(plan, "ddp:r4", purpose="time", repeat=0))
    records = replace_record(records, make_verify_record(plan, "hsdp:r2s2", peak_bytes=None))
    found = recommend(plan, records, SPEED, Limits(max_memory_bytes=GIB))
    assert labels(found) == ["fsdp s4"]
    assert found.excluded[0].reason == "its memory was not measured, so --max-memory 1.00 GiB cannot be checked"
    assert any("Not considered, since not measured: ddp r4" in line for line in found.sureness)


def test_an_outlier_step_moves_nothing() -> None:
    plan, records = sweep()
    spoilt = make_time_record(plan, "ddp:r4", 0, steps=[30.0, *[0.1] * 19])
    found = recommend(plan, replace_record(records, spoilt), SPEED)
    assert found.winner is not None and found.winner.label == "ddp r4"


def test_restore_time_orders_by_single_values_and_says_so() -> None:
    found = recommend(*sweep(), make_objective("restore"))
    assert labels(found) == ["hsdp r2s2", "fsdp s4", "ddp r4"]
    assert found.certainty == "single_values"
    assert found.sentence == "Train with hsdp r2s2: restored in 1.00 s, 100% ahead of fsdp s4."
    assert "measured once" in found.sureness[0]


def test_weights_are_exponents() -> None:
    # speed x restore^-0.1: ddp 10000 / 4^0.1 = 8706; hsdp 9091 / 1 = 9091; fsdp 8000 / 2^0.1 = 7464
    found = recommend(*sweep(), make_objective("weighted", "speed=1,restore=0.1"))
    assert labels(found) == ["hsdp r2s2", "ddp r4", "fsdp s4"]
    advantage = found.choices[1].advantage
    assert advantage is not None and advantage.ratio == pytest.approx(4**0.1 / 1.1, rel=1e-6)
    assert any("interval is that of speed" in line for line in found.sureness)
    # with a small weight speed decides
    assert labels(recommend(*sweep(), make_objective("weighted", "speed=1,restore=0.01")))[0] == "ddp r4"


def test_cost_of_a_million_tokens() -> None:
    # 4 ranks at 9 an hour each: 0.01 a second; at 10,000 tokens/s that is 1.00 a million tokens
    found = recommend(*sweep(), make_objective("cost", price=9.0))
    winner = found.choices[0]
    assert winner.cost_per_million_tokens is not None
    value, low, high = winner.cost_per_million_tokens
    assert value == pytest.approx(1.0, rel=0.01) and low <= value <= high
    assert found.sentence.startswith("Train with ddp r4: 1.00 per million tokens [")
    # without a price it is 4 GPUs / 36 million tokens an hour
    hours = recommend(*sweep(), make_objective("cost"))
    assert hours.sentence.startswith("Train with ddp r4: 0.111 rank-hours per million tokens [")
    assert hours.choices[0].cost_per_million_tokens is None


def test_nothing_admitted_names_what_comes_nearest() -> None:
    found = recommend(*sweep(), SPEED, Limits(max_memory_bytes=MIB))
    assert found.sentence.startswith("None of 3 ranked layouts may be chosen: ddp r4 comes nearest, but its memory")
    assert found.constraints[0].label == "ddp r4" and found.constraints[0].advantage is None
    assert "resume" in recommend(make_plan(), [], SPEED).sentence
    assert "may be chosen" in render(found)


@pytest.mark.parametrize(
    ("text", "value"), [("72GiB", 72 * 2**30), ("72 gib", 72 * 2**30), ("1.5GB", 1.5e9), ("80MiB", 80 * 2**20)]
)
def test_sizes(text: str, value: float) -> None:
    assert parse_size(text) == value


def test_times_and_shares() -> None:
    assert [parse_time(t) for t in ("5min", "300s", "250 ms", "1h")] == [300, 300, 0.25, 3600]
    assert [parse_share(t) for t in ("10%", "0.1", "0%")] == [0.1, 0.1, 0.0]


@pytest.mark.parametrize(
    ("call", "arguments", "message"),
    [
        (parse_size, ("72",), "size '72' is none; write a number with one of B, KiB"),
        (parse_size, ("0GiB",), "size '0GiB' is none"),
        (parse_size, ("-1GiB",), "size '-1GiB' is none"),
        (parse_time, ("5",), "time '5' is none; .* such as 5min"),
        (parse_share, ("110%",), "share '110%' is none"),
        (make_objective, ("fast",), "unknown objective 'fast'"),
        (make_objective, ("speed", "speed=1"), "--weights goes with --objective weighted"),
        (make_objective, ("weighted",), "--weights goes with --objective weighted"),
        (make_objective, ("weighted", "colour=1"), "unknown term of --weights 'colour'"),
        (make_objective, ("weighted", "speed=x"), "weight 'speed=x' is none"),
    ],
)
def test_wrong_use_is_explained(call: Any, arguments: Sequence[str], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        call(*arguments)


@pytest.mark.parametrize(
    ("plan", "rounds", "expected"),
    [
        ({"cuda": True, "model": "8b"}, 3, ()),
        ({"cuda": True, "model": "8b"}, 1, ("measured in one round, which tells no layouts apart",)),
        ({"cuda": True}, 3, ("measured with a model of 0.164 M parameters (tiny)",)),
        ({"model": "8b"}, 3, ("measured on CPU ranks",)),
    ],
)
def test_what_cautions_against_taking_the_answer_over(
    plan: dict[str, Any], rounds: int, expected: tuple[str, ...]
) -> None:
    made, records = sweep(rounds=rounds, **plan)
    assert cautions(recommend(made, records, SPEED), made) == expected


def test_a_winner_that_is_not_told_apart_or_has_no_rival_says_so() -> None:
    made, records = sweep(cuda=True, model="8b")
    alone = recommend(made, records, SPEED, Limits(max_memory_bytes=150 * MIB))
    assert cautions(alone, made) == ("compared with no other layout that may be chosen",)
    once = recommend(made, records, make_objective("restore"))
    assert cautions(once, made) == ("chosen by figures that were measured once each",)
    level = make_records(made, dict.fromkeys(TIMES, 0.1))
    assert cautions(recommend(made, level, SPEED), made) == ("not told apart from hsdp r2s2 and fsdp s4",)
