"""One answer from sweeps of several sizes, on records made by hand. A step is 1,000 tokens in all of them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from harness.cli import _run
from harness.errors import UsageError
from harness.recommend import Limits, Measured, Recommendation, make_objective, recommend_of
from harness.recommend.console import render
from harness.record import RunRecord
from harness.store import SweepStore
from tests.unit.factories import (
    MIB,
    jitter,
    make_failed_record,
    make_ground,
    make_plan,
    make_records,
    make_time_record,
    make_verify_record,
    replace_record,
)

SPEED, PER_GPU, COST = (make_objective(name) for name in ("speed", "per-gpu", "cost"))
# tokens/s: 10,000 and 8,000 on 4 ranks, 12,500 and 16,000 on 8; per rank 2,500 and 2,000, 1,562.5 and 2,000
FOUR = {"ddp:r4": 0.1, "fsdp:s4": 0.125}
EIGHT = {"ddp:r8": 0.08, "fsdp:s8": 0.0625}


def measured(name: str, times: dict[str, float], **plan: Any) -> Measured:
    size = 8 if any("8" in text for text in times) else 4
    made = make_plan(list(times), world_size=size, **plan).model_copy(update={"name": name})
    return Measured(name, made, make_records(made, times))


def on_ground(sweep: Measured, **changes: Any) -> Measured:
    ground = make_ground(**changes)
    return sweep._replace(records=[r.model_copy(update={"ground": ground}) for r in sweep.records])


def labels(found: Recommendation) -> list[str]:
    return [choice.label for choice in found.choices]


def test_the_objective_chooses_the_size() -> None:
    sweeps = [measured("four", FOUR), measured("eight", EIGHT)]
    fastest = recommend_of(sweeps, SPEED)
    names = ["fsdp s8 on 8 ranks", "ddp r8 on 8 ranks", "ddp r4 on 4 ranks", "fsdp s4 on 4 ranks"]
    assert labels(fastest) == names
    leads = [c.advantage.ratio for c in fastest.choices[1:] if c.advantage]
    assert leads == pytest.approx([1.28, 1.6, 2.0], rel=1e-6)
    assert [c.advantage.paired for c in fastest.choices if c.advantage] == [True, False, False]
    assert any("--objective per-gpu or cost" in line for line in fastest.sureness)
    assert fastest.choices[0].world_size == 8 and fastest.choices[0].sweeps == ("eight",)

    by_gpu = recommend_of(sweeps, PER_GPU)
    assert by_gpu.winner is not None and by_gpu.winner.label == "ddp r4 on 4 ranks"
    leads = [c.advantage.ratio for c in by_gpu.choices[1:] if c.advantage]
    assert leads == pytest.approx([1.25, 1.25, 1.6], rel=1e-6)
    assert by_gpu.sentence.startswith("Train with ddp r4 on 4 ranks: 2,500 tokens/s per rank [")
    assert any("not timed side by side: the intervals hold how rounds scatter" in line for line in by_gpu.sureness)

    # 4 ranks at 10,000 tokens/s: 4 / 36 million tokens an hour
    cheapest = recommend_of(sweeps, COST)
    assert labels(cheapest) == labels(by_gpu)
    hours = cheapest.choices[0].gpu_hours_per_million_tokens
    assert hours is not None and hours[0] == pytest.approx(4 / 36, rel=0.01)
    assert cheapest.sentence.startswith("Train with ddp r4 on 4 ranks: 0.111 rank-hours per million tokens [")
    priced = recommend_of(sweeps, make_objective("cost", price=9.0))
    assert priced.sentence.startswith("Train with ddp r4 on 4 ranks: 1.00 per million tokens [")
    assert "rank-h per M tokens" in render(cheapest) and "tokens/s per rank" in render(fastest)


def test_an_interval_across_sizes_is_that_of_samples_taken_apart() -> None:
    """Rounds of both sweeps lie 10% apart, in step with each other; that is no pair, so nothing of it cancels."""
    rounds = (0.9, 1.0, 1.1)
    sweeps = []
    for name, text, level in (("four", "ddp:r4", 0.100), ("eight", "ddp:r8", 0.098)):
        plan = make_plan([text], world_size=int(text[-1])).model_copy(update={"name": name})
        records = [make_verify_record(plan, one) for one in ("single", text)]
        records += [make_time_record(plan, text, n, steps=jitter(level * f)) for n, f in enumerate(rounds)]
        sweeps.append(Measured(name, plan, records))
    found = recommend_of(sweeps, SPEED)
    (rival,) = found.ties
    assert found.certainty == "tie" and rival.label == "ddp r4 on 4 ranks"
    assert rival.advantage is not None and rival.advantage.ratio == pytest.approx(100 / 98, rel=1e-6)
    # Student's t, 4 degrees of freedom: 2.776 x sqrt(2 x var(ln 0.9, ln 1, ln 1.1) / 3) = 0.228
    assert rival.advantage.high / rival.advantage.ratio == pytest.approx(1.256, abs=0.005)
    assert found.sentence.endswith("ahead of ddp r4 on 4 ranks, which cannot be told from it.")


def test_constraints_hold_on_every_size_and_each_sizes_device_counts() -> None:
    four, eight = measured("four", FOUR), measured("eight", EIGHT)
    for text, peak in (("ddp:r8", 300), ("fsdp:s8", 300)):
        verify = make_verify_record(eight.plan, text, peak_bytes=peak * MIB)
        eight = eight._replace(records=replace_record(eight.records, verify))
    found = recommend_of([four, eight], SPEED, Limits(max_memory_bytes=200 * MIB))
    assert labels(found) == ["ddp r4 on 4 ranks", "fsdp s4 on 4 ranks"]
    (cost,) = found.constraints
    assert (cost.excluded, cost.label) == (2, "fsdp s8 on 8 ranks")
    assert cost.advantage is not None and cost.advantage.ratio == pytest.approx(1.6, rel=1e-6)
    smaller = on_ground(four, device_memory_bytes=105 * MIB)
    larger = on_ground(eight, device_memory_bytes=1000 * MIB)
    found = recommend_of([smaller, larger], SPEED, Limits(min_headroom=0.1))
    assert labels(found) == ["fsdp s8 on 8 ranks", "ddp r8 on 8 ranks"]  # 100 of 105 MiB leave 4.8%


def test_sweeps_of_one_size_count_together() -> None:
    """Rounds at 10,000 and 12,100 tokens/s: 11,000 in the geometric mean, and as wide as that scatter says."""
    first, second = measured("first", {"ddp:r4": 0.1}), measured("second", {"ddp:r4": 0.1 / 1.21, "fsdp:s4": 0.125})
    found = recommend_of([first, second], SPEED)
    assert labels(found) == ["ddp r4", "fsdp s4"]
    winner, rival = found.choices
    assert winner.sweeps == ("first", "second")
    assert winner.tokens_per_s is not None and winner.tokens_per_s.value == pytest.approx(11_000, rel=0.01)
    # six rounds, three at either speed: t(5) x s / sqrt(6) = 2.571 x 0.1044 / 2.449 = 0.11
    assert winner.tokens_per_s.high / winner.tokens_per_s.value == pytest.approx(1.116, abs=0.015)
    # only the second sweep timed the two side by side
    assert rival.advantage is not None and rival.advantage.paired and rival.advantage.rounds == 3
    # launches of two sweeps bear the same names, and are not taken for pairs
    third = measured("third", {"fsdp:s4": 0.125})
    apart = recommend_of([first, third], SPEED).choices[1].advantage
    assert apart is not None and not apart.paired


def test_a_layout_that_failed_in_one_sweep_of_a_size_is_not_chosen() -> None:
    first, second = measured("first", FOUR), measured("second", FOUR)
    kept = [r for r in second.records if not (r.spec.layout.label == "ddp r4" and r.spec.purpose == "time")]
    kept.append(make_failed_record(second.plan, "ddp:r4", purpose="time"))
    found = recommend_of([first, second._replace(records=kept)], SPEED)
    assert labels(found) == ["fsdp s4"]
    assert "Not considered, since not measured: ddp r4." in found.sureness


def test_unequal_places_are_named_apart() -> None:
    four, eight = measured("four", FOUR), measured("eight", EIGHT)
    ranks = eight.plan.ranks.model_copy(update={"per_node": (4, 4)})
    plan = eight.plan.model_copy(update={"name": "two", "ranks": ranks})
    records = make_records(plan, EIGHT)
    found = recommend_of([four, eight, Measured("two", plan, records)], SPEED)
    assert {label.partition(" on ")[2] for label in labels(found)} == {
        "4 ranks",
        "8 ranks over 1 node",
        "8 ranks over 2 nodes",
    }
    newer = on_ground(measured("newer", FOUR), torch="2.14.0")
    found = recommend_of([four, newer], SPEED)
    assert labels(found)[:2] == ["ddp r4 on 4 ranks in four", "ddp r4 on 4 ranks in newer"]
    (difference,) = found.differences
    assert difference.text == "torch (2.13.0 in four, 2.14.0 in newer)"
    assert any(line.startswith("Warning: the sweeps stand on other ground, torch (2.13.0") for line in found.sureness)


@pytest.mark.parametrize(
    ("other", "ground", "message"),
    [
        ({"model": "small"}, {}, "four and eight cannot be compared: model is tiny and small; give sweeps that agree"),
        ({"seq_len": 250}, {}, "seq_len is 125 and 250"),
        ({"global_batch": 16}, {}, r"global_batch is 8 and 16; .*or choose by --objective cost or per-gpu"),
        ({}, {"cpu": "Another CPU"}, "cpu is Some CPU and Another CPU"),
        ({"cuda": True}, {}, "device is cpu and cuda"),
        ({}, {"device_names": ("H100",)}, "device_names is not recorded and H100"),
    ],
)
def test_what_cannot_be_compared_is_refused(other: Any, ground: Any, message: str) -> None:
    sweeps = [measured("four", FOUR), on_ground(measured("eight", EIGHT, **other), **ground)]
    with pytest.raises(UsageError, match=message):
        recommend_of(sweeps, SPEED)


def test_another_batch_is_let_pass_where_a_token_is_what_counts_and_named() -> None:
    four, eight = measured("four", FOUR), measured("eight", EIGHT, global_batch=16)
    found = recommend_of([four, eight], PER_GPU)
    # steps of 2,000 tokens: 4,000 and 3,125 tokens/s a rank
    assert labels(found)[:2] == ["fsdp s8 on 8 ranks", "ddp r8 on 8 ranks"]
    assert found.choices[1].advantage is not None
    assert found.choices[1].advantage.ratio == pytest.approx(4000 / 3125, rel=1e-6)
    (warning,) = [line for line in found.sureness if "other batches" in line]
    assert "global_batch (8 in four, 16 in eight)" in warning


def test_hosts_of_a_larger_size_are_no_difference_but_others_are() -> None:
    four, eight = measured("four", FOUR), on_ground(measured("eight", EIGHT), hosts=("node0", "node1"))
    assert recommend_of([four, eight], SPEED).differences == ()
    eight = on_ground(eight, hosts=("node7", "node8"))
    (difference,) = recommend_of([four, eight], SPEED).differences
    assert difference.field == "hosts"


def stored(folder: Path, sweeps: Sequence[Measured]) -> None:
    for sweep in sweeps:
        store = SweepStore.create(folder / "results", sweep.plan)
        for record in sweep.records:
            store.add(record)


def test_the_command_takes_several_and_exports_the_layout_that_won(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    stored(tmp_path, [measured("four", FOUR), measured("eight", EIGHT), measured("long", FOUR, seq_len=250)])
    assert _run(["recommend", "four", "eight", "--export", "deepspeed", "--export", "vllm=v.sh", "--json"]) == 0
    captured = capsys.readouterr()
    assert captured.err.startswith("Train with fsdp s8 on 8 ranks: 16,000 tokens/s [")
    document = json.loads(captured.out)
    assert document["sweeps"] == ["four", "eight"]
    assert document["choices"][0]["world_size"] == 8
    assert document["choices"][0]["sweeps"] == ["eight"]
    assert json.loads((tmp_path / "deepspeed.json").read_text())["zero_optimization"]["stage"] == 3
    assert _run(["recommend", "four", "long"]) == 2
    assert "four and long cannot be compared: seq_len is 125 and 250" in capsys.readouterr().err
    assert _run(["recommend", "four", "results/four"]) == 2
    assert "sweep four is given twice" in capsys.readouterr().err


def test_one_sweep_bears_no_sizes() -> None:
    records: list[RunRecord] = list(measured("four", FOUR).records)
    found = recommend_of([Measured("four", measured("four", FOUR).plan, records)], PER_GPU)
    assert labels(found) == ["ddp r4", "fsdp s4"]
    assert found.sentence.startswith("Train with ddp r4: 2,500 tokens/s per rank [")
    assert "25.0% [25.0, 25.0] ahead of fsdp s4" in found.sentence


def test_sizes_of_gpus_are_counted_in_gpus() -> None:
    sweeps = [on_ground(measured(name, times, cuda=True), device="cuda") for name, times in (("a", FOUR), ("b", EIGHT))]
    found = recommend_of(sweeps, COST)
    assert found.sentence.startswith("Train with ddp r4 on 4 GPUs: 0.111 GPU-hours per million tokens [")
    assert "GPU-h per M tokens" in render(found)
