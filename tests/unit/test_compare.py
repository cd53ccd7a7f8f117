"""Comparisons of hand-made records where the answer is known."""

from __future__ import annotations

import random
import re
from collections.abc import Sequence
from pathlib import Path

import pytest

from harness.compare import CellResult, Comparison, checks, compare, sentence, steps, wording
from harness.compare.wording import counted, listed, percent_text, speed_text, standing
from harness.record import RunRecord
from harness.spec import SweepPlan
from harness.stats import Ratio
from tests.unit.factories import (
    LOSSES,
    MIB,
    NORMS,
    STEPS,
    jitter,
    make_failed_record,
    make_ground,
    make_plan,
    make_records,
    make_time_record,
    make_verify_record,
    replace_record,
)

TIMES = {"ddp:r4": 0.12, "fsdp:s4": 0.1, "hsdp:r2s2": 0.114}
BAD_LOSSES = (*LOSSES[:4], 9.0, *LOSSES[5:])


def cell(comparison: Comparison, label: str) -> CellResult:
    return next(c for c in comparison.cells if c.label == label)


def labels(cells: Sequence[CellResult]) -> list[str]:
    return [c.label for c in cells]


def kinds(comparison: Comparison) -> set[str]:
    return {w.kind for w in comparison.warnings}


def noisy(plan: SweepPlan, text: str, step_time_s: float, seed: int, **more: object) -> list[RunRecord]:
    """Rounds of steps with 5% noise of their own."""
    rng = random.Random(seed)
    return [
        make_time_record(plan, text, repeat, steps=[step_time_s * rng.gauss(1, 0.05) for _ in range(STEPS)], **more)  # type: ignore[arg-type]
        for repeat in range(plan.settings.rounds)
    ]


def test_a_clear_winner() -> None:
    plan = make_plan()
    result = compare(plan, make_records(plan, TIMES))
    assert labels(result.ranked) == ["fsdp s4", "hsdp r2s2", "ddp r4"]
    assert [c.rank for c in result.ranked] == [1, 2, 3]
    assert not result.ties
    assert result.warnings == ()
    assert result.gate_reference == "single r1"
    assert sentence(result) == (
        f"Train with fsdp s4: {speed_text(result.ranked[0])}, 14.0% [14.0, 14.0] ahead of hsdp r2s2."
    )


def test_units_and_definitions() -> None:
    """1,000 tokens a step; rank 3 is slowest at 0.1 s, the others take 0.09 s."""
    plan = make_plan(["ddp:r4"])
    records = [make_verify_record(plan, "single"), make_verify_record(plan, "ddp:r4", peak_bytes=100 * MIB)]
    found = cell(compare(plan, [*records, make_time_record(plan, "ddp:r4", step_time_s=0.1)]), "ddp r4")
    assert found.step_time is not None and found.step_time.median == pytest.approx(0.1)
    assert found.tokens_per_s is not None and found.tokens_per_s.value == pytest.approx(10_000)
    assert found.tokens_per_s_per_rank is not None and found.tokens_per_s_per_rank.value == pytest.approx(2_500)
    assert found.memory is not None
    assert (found.memory.peak_bytes, found.memory.rss_bytes, found.memory.reserved_bytes) == (
        100 * MIB,
        300 * MIB,
        None,
    )
    assert found.checkpoint is not None
    assert (found.checkpoint.total_bytes, found.checkpoint.files) == (50 * MIB, 5)
    assert (found.checkpoint.save_time_s, found.checkpoint.restore_time_s) == (0.5, 0.25)
    assert found.mfu is None


def test_mfu_only_where_the_peak_is_known() -> None:
    plan = make_plan(["ddp:r4", "fsdp:s4+precision=bf16"], cuda=True)
    records = [make_verify_record(plan, text) for text in ("single", "ddp:r4", "fsdp:s4+precision=bf16")]
    for name, known in (("NVIDIA H200", True), ("NVIDIA H999", False)):
        ground = make_ground(device="cuda", device_names=(name,) * 4, backend="nccl")
        timed = [make_time_record(plan, text, ground=ground) for text in ("ddp:r4", "fsdp:s4+precision=bf16")]
        result = compare(plan, [*records, *timed])
        flops = plan.workload.model.flops_per_token(plan.workload.seq_len) * 10_000
        ddp, fsdp = cell(result, "ddp r4"), cell(result, "fsdp s4 +precision=bf16")
        assert ddp.mfu == (pytest.approx(flops / (4 * 67e12)) if known else None)
        assert fsdp.mfu == (pytest.approx(flops / (4 * 989.5e12)) if known else None)


def test_layouts_within_noise_tie() -> None:
    plan = make_plan()
    records = make_records(plan, {"hsdp:r2s2": 0.13})
    records += [make_verify_record(plan, "ddp:r4"), make_verify_record(plan, "fsdp:s4")]
    result = compare(plan, [*records, *noisy(plan, "ddp:r4", 0.1, 1), *noisy(plan, "fsdp:s4", 0.1005, 2)])
    best = result.ranked[0].label
    (tied,) = result.ties
    assert {best, tied.label} == {"ddp r4", "fsdp s4"}
    assert tied.ratio_to_best is not None
    assert tied.ratio_to_best.low <= 1 <= tied.ratio_to_best.high
    assert sentence(result).startswith(f"Train with {best}: {speed_text(result.ranked[0])}, ")
    assert sentence(result).endswith(f"ahead of hsdp r2s2; {tied.label} cannot be told from it.")


def test_all_layouts_tie() -> None:
    plan = make_plan(["ddp:r4", "fsdp:s4"])
    records = [make_verify_record(plan, text) for text in ("single", "ddp:r4", "fsdp:s4")]
    result = compare(plan, [*records, *noisy(plan, "ddp:r4", 0.1, 1), *noisy(plan, "fsdp:s4", 0.1, 2)])
    first, second = labels(result.ranked)
    assert sentence(result).startswith(f"Train with {first}: {speed_text(result.ranked[0])}, only ")
    assert sentence(result).endswith(f" ahead of {second}, which cannot be told from it.")


def test_one_round_ranks_but_never_separates() -> None:
    plan = make_plan(rounds=1)
    result = compare(plan, make_records(plan, TIMES))
    assert labels(result.ties) == ["hsdp r2s2", "ddp r4"]
    assert "one_round" in kinds(result)
    assert " ahead of hsdp r2s2 in the only round; one round cannot tell it from hsdp r2s2 and ddp r4, run at" in (
        sentence(result)
    )
    assert [standing(c) for c in result.ranked] == ["fastest", "undecided", "undecided"]
    (text,) = (w.text for w in result.warnings if w.kind == "one_round")
    assert text.endswith("so their order is not decided; run at least 3 (--rounds 3)")


def test_one_round_of_one_layout_speaks_of_no_order() -> None:
    plan = make_plan(["ddp:r4"], rounds=1)
    (warning,) = compare(plan, make_records(plan, {"ddp:r4": 0.1})).warnings
    assert warning.text == (
        "ddp r4 ranked by one round only; how rounds differ is unknown; run at least 3 (--rounds 3)"
    )


def test_a_layout_with_one_round_among_others_is_no_tie() -> None:
    plan = make_plan()
    records = [
        r
        for r in make_records(plan, TIMES)
        if r.timing is None or r.spec.repeat == 0 or r.spec.layout.strategy != "hsdp"
    ]
    result = compare(plan, records)
    assert sentence(result) == (
        f"Train with fsdp s4: {speed_text(result.ranked[0])}, 20.0% [20.0, 20.0] ahead of ddp r4; "
        "one round cannot tell it from hsdp r2s2."
    )


def test_remedies_name_only_options_that_exist() -> None:
    from harness.cli.run import run

    known = {option for parameter in run.params for option in parameter.opts}
    texts = [Path(module.__file__ or "").read_text(encoding="utf-8") for module in (checks, steps, wording)]
    named = set(re.findall(r"--[a-z][a-z-]+", "".join(texts)))
    assert {"--warmup-min", "--warmup-max", "--rounds"} <= named <= known
    # a field of Settings is no option
    assert not re.findall(r'"[^"]*(?:warmup_m|timed_steps|gate_steps)[^"]*"', "".join(texts))


def test_only_one_layout() -> None:
    plan = make_plan(["ddp:r4"])
    result = compare(plan, make_records(plan, {"ddp:r4": 0.1}))
    assert result.ranked[0].ratio_to_best is None
    assert sentence(result).startswith("Train with ddp r4: 10,000 tokens/s [")
    assert sentence(result).endswith("]; there is no other layout to compare it with.")


def test_nothing_measured() -> None:
    plan = make_plan(pruned=[("tp:t4", "tp_divides", "tp=4 does not divide n_heads=6")])
    result = compare(plan, [make_failed_record(plan, "ddp:r4")])
    assert sentence(result) == "No layout was measured: 1 failed, 3 not run, 1 pruned."
    assert result.best is None


def test_an_outlier_changes_neither_rank_nor_verdict() -> None:
    plan = make_plan()
    records = make_records(plan, TIMES)
    for repeat in range(3):
        steps = [30.0, *jitter(0.1, seed=repeat)[1:]]
        records = replace_record(records, make_time_record(plan, "fsdp:s4", repeat, steps=steps))
    result = compare(plan, records)
    assert labels(result.ranked) == ["fsdp s4", "hsdp r2s2", "ddp r4"]
    assert not result.ties
    assert {"first_step", "noisy"} <= kinds(result)


def test_the_best_cell_fails() -> None:
    plan = make_plan()
    records = replace_record(make_records(plan, TIMES), make_failed_record(plan, "fsdp:s4", log_tail="killed"))
    result = compare(plan, records)
    failed = cell(result, "fsdp s4")
    assert result.ranked[0].label == "hsdp r2s2"
    assert (failed.outcome, failed.rank, failed.tokens_per_s) == ("failed", None, None)
    assert failed.failure is not None and failed.failure.log_tail == "killed"
    assert failed.reason == (
        "crash in phase gate on rank 2 of node0: rank 2 ended by signal 9 (log: launches/x/2_log.err)"
    )


def test_the_best_cell_diverges() -> None:
    plan = make_plan()
    records = replace_record(make_records(plan, TIMES), make_verify_record(plan, "fsdp:s4", losses=BAD_LOSSES))
    result = compare(plan, records)
    diverged = cell(result, "fsdp s4")
    assert result.ranked[0].label == "hsdp r2s2"
    assert (diverged.outcome, diverged.rank, diverged.tokens_per_s) == ("diverged", None, None)
    assert diverged.gate is not None and diverged.gate.first_bad_step == 4
    assert diverged.reason is not None
    assert "differs from single r1 first at step 4: loss 9 instead of 5.6" in diverged.reason
    assert "(allowed 1e-05)" in diverged.reason
    assert diverged.step_time is not None  # the raw figures stay for who wants to look


def test_losses_that_stop_early_diverge() -> None:
    plan = make_plan(["ddp:r4"])
    short = make_verify_record(plan, "ddp:r4", losses=LOSSES[:6], grad_norms=NORMS)
    result = compare(plan, [make_verify_record(plan, "single"), short, make_time_record(plan, "ddp:r4")])
    assert cell(result, "ddp r4").reason == "it has 6 steps where single r1 has 10"


def test_timing_fails_in_every_round() -> None:
    plan = make_plan(["ddp:r4", "fsdp:s4"])
    records = [*make_records(plan, {"ddp:r4": 0.1}), make_verify_record(plan, "fsdp:s4")]
    result = compare(plan, [*records, make_failed_record(plan, "fsdp:s4", "time")])
    failed = cell(result, "fsdp s4")
    assert failed.outcome == "failed"
    assert failed.reason is not None and "in phase timing" in failed.reason
    assert failed.memory is not None  # what its verify run measured is kept


def test_a_cell_that_fails_in_one_round_has_failed_however_fast_it_was_in_the_others() -> None:
    plan = make_plan()
    records = replace_record(make_records(plan, TIMES), make_failed_record(plan, "fsdp:s4", "time", 2))
    result = compare(plan, records)
    assert labels(result.ranked) == ["hsdp r2s2", "ddp r4"]
    assert cell(result, "fsdp s4").outcome == "failed"
    assert "lost_rounds" in kinds(result)


def test_pruned_and_not_run_cells_stay_in_sight() -> None:
    plan = make_plan(pruned=[("tp:t4", "tp_divides", "tp=4 does not divide n_heads=6")])
    records = [*make_records(plan, {"ddp:r4": 0.1}), make_verify_record(plan, "hsdp:r2s2")]
    result = compare(plan, records)
    assert sorted(labels(result.cells)) == sorted([*(x.label for x in plan.layouts), "tp t4", "single r1"])
    pruned, unverified, untimed = (cell(result, label) for label in ("tp t4", "fsdp s4", "hsdp r2s2"))
    assert (pruned.outcome, pruned.rule, pruned.reason) == ("pruned", "tp_divides", "tp=4 does not divide n_heads=6")
    assert unverified.outcome == untimed.outcome == "not_run"
    assert unverified.reason is not None and "no record" in unverified.reason
    assert untimed.reason is not None and "no timed round" in untimed.reason


def test_timed_but_never_verified_is_not_ranked() -> None:
    plan = make_plan(["ddp:r4", "fsdp:s4"])
    result = compare(plan, [*make_records(plan, {"ddp:r4": 0.1}), make_time_record(plan, "fsdp:s4", step_time_s=0.01)])
    assert labels(result.ranked) == ["ddp r4"]
    assert cell(result, "fsdp s4").outcome == "not_run"


def test_missing_metrics_are_absent_and_leave_the_ranking_alone() -> None:
    plan = make_plan()
    bare = make_verify_record(plan, "fsdp:s4", peak_bytes=None, checkpoint_bytes=None)
    result = compare(plan, replace_record(make_records(plan, TIMES), bare))
    best = result.ranked[0]
    assert best.label == "fsdp s4"
    assert (best.memory, best.checkpoint, best.frontier) == (None, None, None)


def test_the_frontier_holds_what_none_beats_in_both() -> None:
    plan = make_plan(["ddp:r4", "fsdp:s4", "hsdp:r2s2", "tp:t4"])
    records = make_records(plan, {"ddp:r4": 0.10, "fsdp:s4": 0.12, "hsdp:r2s2": 0.11, "tp:t4": 0.12})
    for text, peak in (("ddp:r4", 100), ("fsdp:s4", 50), ("hsdp:r2s2", 100), ("tp:t4", 60)):
        records = replace_record(records, make_verify_record(plan, text, peak_bytes=peak * MIB))
    result = compare(plan, records)
    assert {c.label for c in result.ranked if c.frontier} == {"ddp r4", "fsdp s4"}


def test_a_later_attempt_replaces_an_earlier_one() -> None:
    plan = make_plan()
    records = make_records(plan, TIMES)
    records += [
        make_time_record(plan, "ddp:r4", r, steps=jitter(0.05, r), attempt=1, launch_id=f"time{r}") for r in range(3)
    ]
    assert compare(plan, records).ranked[0].label == "ddp r4"
    records += [make_failed_record(plan, "ddp:r4", "time", r, attempt=2) for r in range(3)]
    assert cell(compare(plan, records), "ddp r4").outcome == "failed"


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_interrupted_then_complete_uses_the_complete_attempt_only(order: tuple[int, int]) -> None:
    plan = make_plan()
    records = make_records(plan, TIMES)
    slow, attempts = (
        [5.0] * STEPS,
        [r for r in records if r.spec.purpose == "time" and r.spec.layout.strategy == "fsdp"],
    )
    kept = [r for r in records if r not in attempts]
    for attempt in attempts:
        repeat = attempt.spec.repeat
        kept.append(attempt.model_copy(update={"attempt": order[1]}))
        kept.append(make_time_record(plan, "fsdp:s4", repeat, steps=slow, status="interrupted", attempt=order[0]))
    result = compare(plan, kept)
    assert result.ranked[0].label == "fsdp s4"
    assert result.warnings == ()


def test_interrupted_only_counts_with_a_warning() -> None:
    plan = make_plan()
    records = make_records(plan, TIMES)
    cut = make_time_record(plan, "fsdp:s4", 2, steps=jitter(0.1, 2)[:7], status="interrupted")
    result = compare(plan, replace_record(records, cut))
    best = result.ranked[0]
    assert best.step_time is not None and best.step_time.steps == 2 * STEPS + 7
    assert [w.cells for w in result.warnings if w.kind == "interrupted"] == [("fsdp s4",)]


def test_unpaired_launches_are_compared_with_wider_intervals() -> None:
    plan = make_plan(["ddp:r4", "fsdp:s4"])
    verified = [make_verify_record(plan, text) for text in ("single", "ddp:r4", "fsdp:s4")]
    shift = [1.0, 1.05, 0.95]

    def timed(text: str, step_time_s: float, apart: bool) -> list[RunRecord]:
        launch = text if apart else "shared"
        return [
            make_time_record(
                plan, text, r, steps=jitter(step_time_s * shift[r], r), launch_id=f"{launch}{r}", design="launches"
            )
            for r in range(3)
        ]

    apart, shared = (
        cell(compare(plan, [*verified, *timed("ddp:r4", 0.1, x), *timed("fsdp:s4", 0.11, x)]), "fsdp s4")
        for x in (True, False)
    )
    assert apart.ratio_to_best is not None and shared.ratio_to_best is not None
    assert not apart.ratio_to_best.paired and apart.tie
    assert shared.ratio_to_best.paired and not shared.tie
    result = compare(plan, [*verified, *timed("ddp:r4", 0.1, True), *timed("fsdp:s4", 0.11, True)])
    assert "unpaired" in kinds(result)


def test_pairs_need_the_same_cycle() -> None:
    plan = make_plan(["ddp:r4", "fsdp:s4"])
    records = make_records(plan, {"ddp:r4": 0.1})
    records.append(make_verify_record(plan, "fsdp:s4"))
    for repeat in range(3):
        steps, cycles = jitter(0.11, repeat)[5:], range(5, STEPS)
        records.append(make_time_record(plan, "fsdp:s4", repeat, steps=steps, cycles=cycles))
    ratio = cell(compare(plan, records), "fsdp s4").ratio_to_best
    assert ratio is not None
    assert ratio.samples == 3 * (STEPS - 5)
    assert ratio.ratio == pytest.approx(0.1 / 0.11)
    assert ratio.low == pytest.approx(ratio.high)


def test_grounds_that_differ_are_not_ranked_against_each_other() -> None:
    plan = make_plan()
    records = [r for r in make_records(plan, TIMES) if r.spec.layout.strategy != "fsdp"]
    elsewhere = make_ground(torch="2.14.0")
    records.append(make_verify_record(plan, "fsdp:s4"))
    records += [make_time_record(plan, "fsdp:s4", r, steps=jitter(0.1, r), ground=elsewhere) for r in range(3)]
    result = compare(plan, records)
    other = cell(result, "fsdp s4")
    assert labels(result.ranked) == ["hsdp r2s2", "ddp r4"]
    assert (other.outcome, other.rank) == ("measured", None)
    assert other.unranked == "was timed on other ground than the ranked layouts: torch (2.13.0 there, 2.14.0 here)"
    (warning,) = (w for w in result.warnings if w.kind == "ground")
    assert "torch (2.13.0 in the ranked rounds, 2.14.0 there)" in warning.cause
    assert [g.torch for g in result.grounds] == ["2.13.0", "2.14.0"]


def test_rounds_on_other_ground_are_left_out() -> None:
    """After two rounds the machine's torch was replaced: the third round of one layout does not count."""
    plan = make_plan()
    other = make_time_record(plan, "fsdp:s4", 2, steps=[0.01] * STEPS, ground=make_ground(torch="2.14.0"))
    result = compare(plan, replace_record(make_records(plan, TIMES), other))
    best = result.ranked[0]
    assert best.label == "fsdp s4"
    assert best.step_time is not None and best.step_time.rounds == 2
    assert kinds(result) == {"ground"}


def test_another_host_is_a_warning_only() -> None:
    plan = make_plan()
    other = make_time_record(plan, "fsdp:s4", 2, steps=jitter(0.1, 2), ground=make_ground(hosts=("node1",)))
    result = compare(plan, replace_record(make_records(plan, TIMES), other))
    assert result.ranked[0].label == "fsdp s4"
    assert kinds(result) == {"hosts"}
    assert result.grounds[0].hosts == ("node0", "node1")


def test_the_reference_on_one_rank_is_shown_and_not_ranked() -> None:
    plan = make_plan()
    records = [*make_records(plan, TIMES), make_time_record(plan, "single", step_time_s=0.001)]
    reference = cell(compare(plan, records), "single r1")
    assert reference.is_reference
    assert (reference.outcome, reference.rank) == ("measured", None)
    assert reference.unranked == "runs on 1 rank, the sweep on 4 ranks"


def test_a_sweep_on_one_rank_ranks_single() -> None:
    plan = make_plan(["single"], world_size=1)
    result = compare(plan, make_records(plan, {"single:r1": 0.1}))
    assert labels(result.ranked) == ["single r1"]


def test_without_the_reference_the_first_fp32_layout_judges() -> None:
    plan = make_plan(["ddp:r4+precision=bf16", "fsdp:s4", "hsdp:r2s2"])
    times = {"ddp:r4+precision=bf16": 0.1, "fsdp:s4": 0.11, "hsdp:r2s2": 0.12}
    records = replace_record(make_records(plan, times), make_failed_record(plan, "single"))
    result = compare(plan, records)
    assert result.gate_reference == "fsdp s4"
    assert len(result.ranked) == 3
    assert kinds(result) == {"reference"}
    assert cell(result, "single r1").outcome == "failed"


def test_nobody_passes_a_gate_without_a_reference() -> None:
    plan = make_plan(["ddp:r4+precision=bf16"])
    records = [make_verify_record(plan, "ddp:r4+precision=bf16"), make_time_record(plan, "ddp:r4+precision=bf16")]
    found = cell(compare(plan, records), "ddp r4 +precision=bf16")
    assert found.outcome == "not_run"
    assert found.reason is not None and "no layout of fp32 precision" in found.reason


def test_too_few_reference_steps_judge_nothing() -> None:
    plan = make_plan(["ddp:r4"])
    short = make_verify_record(plan, "single", losses=(), grad_norms=())
    assert compare(plan, [short]).gate_reference is None


def test_records_of_another_sweep_are_counted_and_left_out() -> None:
    plan, other = make_plan(), make_plan(global_batch=16)
    result = compare(plan, [*make_records(plan, TIMES), *make_records(other, {"ddp:r4": 0.001})])
    assert labels(result.ranked) == ["fsdp s4", "hsdp r2s2", "ddp r4"]
    assert kinds(result) == {"foreign"}


@pytest.mark.parametrize(
    ("kind", "change"),
    [
        ("not_steady", {"steady": False}),
        ("first_step", {"steps": [0.2, *jitter(0.1)[1:]]}),
        ("drift", {"steps": [0.1 * (1 + 0.01 * step) for step in range(STEPS)]}),
        ("noisy", {"steps": [0.1 if step % 2 else 0.15 for step in range(STEPS)]}),
        ("clock", {"steps": [0.0, -1.0, *jitter(0.1)[2:]]}),
        ("designs", {"design": "blocks", "steps": jitter(0.1)}),
        ("load", {"steps": jitter(0.1), "ground": make_ground(load_average=4 + 2.1)}),
    ],
)
def test_each_warning_names_its_cells_cause_and_remedy(kind: str, change: dict[str, object]) -> None:
    plan = make_plan()
    records = make_records(plan, TIMES)
    for repeat in range(3):
        records = replace_record(records, make_time_record(plan, "fsdp:s4", repeat, **change))  # type: ignore[arg-type]
    (warning,) = (w for w in compare(plan, records).warnings if w.kind == kind)
    assert kind == "designs" or warning.cells == ("fsdp s4",)
    assert warning.cause and warning.remedy
    assert warning.text == f"{warning.cause}; {warning.remedy}"


def test_a_checkpoint_that_restores_something_else_is_a_warning() -> None:
    plan = make_plan()
    result = compare(plan, replace_record(make_records(plan, TIMES), make_verify_record(plan, "fsdp:s4", equal=False)))
    assert kinds(result) == {"checkpoint"}


def test_the_own_ranks_of_the_last_launch_are_no_background_load() -> None:
    plan = make_plan()
    records = make_records(plan, TIMES)
    busy = make_time_record(plan, "fsdp:s4", 2, steps=jitter(0.1, 2), ground=make_ground(load_average=4.5))
    assert "load" not in kinds(compare(plan, replace_record(records, busy)))


def test_raw_samples_are_kept_as_recorded() -> None:
    plan = make_plan()
    records = make_records(plan, TIMES)
    result = compare(plan, records)
    assert len(result.samples) == 9
    first = next(r for r in records if r.timing and r.spec.layout.strategy == "ddp")
    assert first.timing is not None
    assert result.samples[0].step_time_s == first.timing.step_time_s


def test_a_comparison_survives_its_own_json() -> None:
    plan = make_plan(pruned=[("tp:t4", "tp_divides", "tp=4 does not divide n_heads=6")])
    result = compare(plan, replace_record(make_records(plan, TIMES), make_failed_record(plan, "ddp:r4")))
    assert Comparison.model_validate_json(result.model_dump_json()) == result


def test_comparing_is_the_same_whatever_the_order_of_records() -> None:
    plan = make_plan()
    records = make_records(plan, TIMES)
    shuffled = random.Random(1).sample(records, len(records))
    assert compare(plan, shuffled) == compare(plan, records)


@pytest.mark.parametrize(
    ("ratio", "text"),
    [
        ((1.14, 1.09, 1.18), "14% [9, 18]"),
        ((1.006, 1.002, 1.011), "0.6% [0.2, 1.1]"),
        ((0.9999, 0.999, 1.001), "0.0% [-0.1, 0.1]"),
        ((0.86, 0.83, 0.9), "-14% [-17, -10]"),
    ],
)
def test_percentages(ratio: tuple[float, float, float], text: str) -> None:
    value, low, high = ratio
    made = Ratio(ratio=value, low=low, high=high, rounds=3, samples=60, paired=True, one_round=False)
    assert percent_text(made) == text


def test_one_is_no_plural() -> None:
    assert [counted(n, "round") for n in (0, 1, 2)] == ["0 rounds", "1 round", "2 rounds"]


def test_long_lists_are_counted() -> None:
    assert listed(["a"]) == "a"
    assert listed(["a", "b"]) == "a and b"
    assert listed(["a", "b", "c", "d"]) == "a, b, c and d"
    assert listed(["a", "b", "c", "d", "e"]) == "a, b, c and 2 more"


def test_far_ahead_is_told_in_times() -> None:
    plan = make_plan(["ddp:r4", "fsdp:s4"])
    result = compare(plan, make_records(plan, {"ddp:r4": 0.1, "fsdp:s4": 0.5}))
    assert sentence(result).endswith("], 5x [5, 5] as fast as fsdp s4.")
