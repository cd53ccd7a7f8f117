"""Two sweeps compared: verdicts on hand-made sweeps, p-values against counting by hand."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest

from harness.cli import _run
from harness.compare import Comparison, compare
from harness.compare.change import Change, Rule, SweepChange, compare_sweeps, judge_values, loss_text
from harness.compare.effects import agreed, changes, round_value, scatter, step_down
from harness.compare.moderated import fit_prior, moderate
from harness.errors import UnknownNameError
from harness.report.changes import change_markdown, change_text, junit
from harness.store import SweepStore
from tests.unit.factories import (
    make_failed_record,
    make_ground,
    make_plan,
    make_records,
    make_time_record,
    replace_record,
)

TIMES = {"ddp:r4": 0.1, "fsdp:s4": 0.2, "hsdp:r2s2": 0.15}
LABELS = {"ddp r4", "fsdp s4", "hsdp r2s2"}


def sweep(times: dict[str, float] | None = None, rounds: int = 5, **ground: Any) -> Comparison:
    plan = make_plan(rounds=rounds)
    records = make_records(plan, {**TIMES, **(times or {})})
    return compare(plan, [r.model_copy(update={"ground": make_ground(**ground)}) for r in records])


def verdicts(found: SweepChange) -> dict[str, Change]:
    return {cell.label: cell.change for cell in found.cells}


def test_a_sweep_with_itself_is_a_tie_everywhere() -> None:
    found = compare_sweeps(sweep(), sweep())
    assert verdicts(found) == dict.fromkeys(LABELS, Change.TIE)
    assert found.exit_code == 0
    assert all(cell.absolute is not None and cell.absolute.ratio == 1 for cell in found.cells)


def test_one_slower_cell_is_found_alone_and_by_how_much() -> None:
    found = compare_sweeps(sweep(), sweep({"fsdp:s4": 0.24}))
    assert verdicts(found) == {"ddp r4": Change.TIE, "hsdp r2s2": Change.TIE, "fsdp s4": Change.SLOWER}
    (slower,) = found.having(Change.SLOWER)
    assert slower.relative is not None and slower.absolute is not None
    assert slower.absolute.ratio == pytest.approx(0.2 / 0.24)
    # the median cell did not change, so the relative change is the same
    assert slower.relative.ratio == pytest.approx(0.2 / 0.24)
    assert slower.step_time_s == pytest.approx((0.2, 0.24), rel=0.02)
    assert slower.reason is None
    assert found.exit_code == 1


def test_a_faster_cell_is_faster() -> None:
    found = compare_sweeps(sweep(), sweep({"fsdp:s4": 0.16}))
    assert verdicts(found)["fsdp s4"] is Change.FASTER
    assert found.exit_code == 0


def test_what_changed_in_all_cells_is_said_to_be_common() -> None:
    found = compare_sweeps(sweep(), sweep({text: 1.25 * time for text, time in TIMES.items()}))
    assert verdicts(found) == dict.fromkeys(LABELS, Change.SLOWER)
    assert found.common is not None and found.common.ratio == pytest.approx(0.8)
    for cell in found.cells:
        assert cell.relative is not None and cell.relative.ratio == pytest.approx(1)
        assert cell.reason is not None and "as all cells together" in cell.reason


def test_a_cell_that_lost_on_a_faster_machine_is_slower() -> None:
    found = compare_sweeps(sweep(), sweep({"ddp:r4": 0.08, "hsdp:r2s2": 0.12, "fsdp:s4": 0.19}))
    assert verdicts(found)["fsdp s4"] is Change.SLOWER


def test_a_loss_below_the_stated_share_is_a_tie() -> None:
    after = sweep({"fsdp:s4": 0.206})
    assert verdicts(compare_sweeps(sweep(), after, Rule(slower=0.05)))["fsdp s4"] is Change.TIE
    assert verdicts(compare_sweeps(sweep(), after, Rule(slower=0.02)))["fsdp s4"] is Change.SLOWER


@pytest.mark.parametrize(("rounds", "enough"), [(1, False), (2, False), (3, True)])
def test_rounds_that_do_not_tell_how_they_scatter_are_too_few(rounds: int, enough: bool) -> None:
    found = compare_sweeps(sweep(rounds=rounds), sweep({"fsdp:s4": 2.0}, rounds=rounds))
    assert verdicts(found)["fsdp s4"] is (Change.SLOWER if enough else Change.TOO_FEW)
    if not enough:
        assert f"{rounds} and {rounds} rounds do not tell how rounds scatter" in change_text(found)
        assert "UNDECIDED: of 3 cells 3 too few samples" in change_text(found)


def test_what_would_hardly_be_found_is_no_tie() -> None:
    """Rounds that scatter by 10%: 3 of them would miss a loss of 10%, and the verdict says how many would not."""
    rng = np.random.default_rng(0)
    before, after = 0.1 * rng.standard_normal((2, 3, 6))
    cells, _common = judge_values(before, after, Rule())
    assert {cell.change for cell in cells} == {Change.TOO_FEW}
    for cell in cells:
        assert cell.findable is not None and 0.15 < cell.findable < 0.5
        assert cell.reason is not None and "3 and 3 rounds would find a loss of " in cell.reason
    (text,) = {cell.reason.split("--rounds ")[1].rstrip(")") for cell in cells[:1] if cell.reason}
    more = rng.standard_normal((2, int(text), 6)) * 0.1
    assert {cell.change for cell in judge_values(more[0], more[1], Rule())[0]} == {Change.TIE}


def test_what_is_findable_is_found_as_often_as_it_says() -> None:
    rng, found, findable = np.random.default_rng(1), 0, []
    for _ in range(120):
        before, after = 0.03 * rng.standard_normal((2, 5, 6)) + 0.05 * rng.standard_normal((2, 5, 1))
        after[:, 2] += 0.0778
        cell = judge_values(before, after, Rule())[0][2]
        found += cell.change is Change.SLOWER
        findable.append(cell.findable or 1)
    assert np.median(findable) == pytest.approx(-np.expm1(-0.0778), rel=0.05)
    assert found / 120 == pytest.approx(0.8, abs=0.1)


@pytest.mark.parametrize(
    ("ground", "text"),
    [
        ({"torch": "2.14.0"}, "torch: 2.13.0 then, 2.14.0 now"),
        ({"driver": "570"}, "driver: None then, 570 now"),
        ({"device_names": ("H100",)}, "device_names: None then, H100 now"),
    ],
)
def test_another_ground_is_refused_and_named_unless_it_is_compared_across(ground: dict[str, Any], text: str) -> None:
    before, after = sweep(), sweep({"fsdp:s4": 0.24}, **ground)
    found = compare_sweeps(before, after)
    assert set(verdicts(found).values()) == {Change.INCOMPARABLE}
    assert {cell.reason for cell in found.cells} == {text}
    assert found.exit_code == 2
    field = next(iter(ground))
    assert f"cannot be compared: {text}; run both alike, or compare --across {field}" in change_text(found)
    across = compare_sweeps(before, after, Rule(across=(field,)))
    assert verdicts(across)["fsdp s4"] is Change.SLOWER
    assert f"differs, and is compared across: {text}" in change_text(across)


def test_other_hosts_and_another_commit_are_named_and_compared() -> None:
    found = compare_sweeps(sweep(), sweep(hosts=("node7",), commit="fedcba9"))
    assert [(d.field, d.refused) for d in found.differences] == [("commit", False), ("hosts", False)]
    assert set(verdicts(found).values()) == {Change.TIE}


def test_another_workload_is_refused() -> None:
    plan = make_plan(rounds=5, global_batch=16)
    found = compare_sweeps(sweep(), compare(plan, make_records(plan, TIMES)))
    assert [d.text for d in found.refused] == ["global_batch: 8 then, 16 now"]


def test_a_field_that_does_not_exist_is_refused_with_the_valid_ones() -> None:
    with pytest.raises(UnknownNameError, match="unknown field to compare across 'gpu'; choose one of: model, "):
        compare_sweeps(sweep(), sweep(), Rule(across=("gpu",)))


def test_cells_of_one_sweep_only() -> None:
    plan = make_plan(("ddp:r4", "fsdp:s4", "hsdp:r2s2", "tp:t4"), rounds=5)
    records = make_records(plan, {"ddp:r4": 0.1, "fsdp:s4": 0.2, "tp:t4": 0.3})
    after = compare(plan, replace_record(records, make_failed_record(plan, "fsdp:s4")))
    found = compare_sweeps(sweep(), after)
    assert verdicts(found) == {
        "ddp r4": Change.TIE,
        "fsdp s4": Change.BROKEN,
        "hsdp r2s2": Change.BROKEN,
        "tp t4": Change.NEW,
    }
    assert found.exit_code == 2
    back = compare_sweeps(after, sweep())
    assert verdicts(back)["tp t4"] is Change.GONE


def test_a_cell_with_fewer_rounds_is_held_against_those_with_more() -> None:
    """Three cells have six rounds, a fourth, which is slower by a fifth, only its first four."""
    plan = make_plan(("ddp:r4", "fsdp:s4", "hsdp:r2s2", "tp:t4"), rounds=6)

    def records(tp: float, drift: float) -> Comparison:
        found = make_records(plan, {**TIMES, "tp:t4": tp})
        for repeat in range(6):
            for text, time in {**TIMES, "tp:t4": tp}.items():
                steps = [time * (1 + drift * repeat)] * 20
                found = replace_record(found, make_time_record(plan, text, repeat, steps=steps))
        return compare(plan, [r for r in found if r.spec.layout.strategy != "tp" or r.spec.repeat < 4])

    found = compare_sweeps(records(0.3, 0.05), records(0.36, 0.05))
    assert verdicts(found) == {**dict.fromkeys(LABELS, Change.TIE), "tp t4": Change.SLOWER}
    (slower,) = found.having(Change.SLOWER)
    assert slower.rounds == (4, 4)
    assert slower.relative is not None and slower.relative.ratio == pytest.approx(0.3 / 0.36)


def test_two_cells_are_tested_by_the_clock_alone() -> None:
    plan = make_plan(("ddp:r4", "fsdp:s4"), rounds=5)
    before, after = (compare(plan, make_records(plan, {"ddp:r4": 0.1, "fsdp:s4": time})) for time in (0.2, 0.24))
    found = compare_sweeps(before, after)
    assert verdicts(found) == {"ddp r4": Change.TIE, "fsdp s4": Change.SLOWER}
    assert all(cell.relative is None for cell in found.cells)


def test_one_cell_has_the_p_of_a_t_test() -> None:
    """By hand: means 0.1 and 0.3, both variances 0.01, t = 0.2 / sqrt(0.01 * 2 / 3) = 2.449, 4 degrees of freedom."""
    from scipy.stats import t

    found = changes(np.array([[0.0], [0.1], [0.2]]), np.array([[0.2], [0.3], [0.4]]), 0.025)
    assert found.relative is None and found.common is None
    assert found.absolute.value[0] == pytest.approx(0.2)
    assert found.absolute.error[0] == pytest.approx(0.1 * (2 / 3) ** 0.5, rel=0.05)
    # a fall must go farther than a rise to be as odd: to the t that a third as many comparisons reach
    farther = t.isf(0.025 / 4, 4) / t.isf(0.025 * 3 / 4, 4)
    assert found.absolute.p[0] == pytest.approx(t.sf(2.4495, 4) + t.sf(2.4495 * farther, 4), abs=0.01)


def test_what_cells_agree_on_by_hand() -> None:
    assert agreed(np.array([0.4, 0.01, -0.01])) == pytest.approx(0.01)
    assert agreed(np.array([0.4, 0.02, 0.01, -0.01])) == pytest.approx(0.01)
    assert agreed(np.array([0.4, 0.4, -0.01, -0.02])) == 0
    assert agreed(np.array([-0.4, -0.3, -0.2, 0.1])) == pytest.approx(-0.2)


@pytest.mark.parametrize("factor", [1.5, 1 / 1.5])
def test_one_changed_cell_does_not_condemn_the_others(factor: float) -> None:
    rng, alarms = np.random.default_rng(5), 0
    for _ in range(40):
        before, after = 0.03 * rng.standard_normal((2, 5, 4))
        after[:, 0] += math.log(factor)
        cells, _common = judge_values(before, after, Rule())
        assert cells[0].change is (Change.SLOWER if factor > 1 else Change.FASTER)
        alarms += any(cell.change in (Change.SLOWER, Change.FASTER) for cell in cells[1:])
    assert alarms <= 3  # of 40 at 2.5% more than 3 come up in 2% of seeds


def test_each_side_has_its_own_scatter() -> None:
    """By hand: variances 0.01 of 3 rounds and 0.0001 of 15; Welch's 0.01 / 3 + 0.0001 / 15, hardly over 2 degrees."""
    rng = np.random.default_rng(0)
    quiet, noisy = rng.standard_normal((15, 1)), rng.standard_normal((3, 1))
    quiet, noisy = (side / side.std(ddof=1) * sd for side, sd in ((quiet, 0.01), (noisy, 0.1)))
    found = scatter(quiet, noisy)
    assert found.variance[0] == pytest.approx(0.01 / 3 + 0.0001 / 15)
    assert found.degrees[0] == pytest.approx(2.008, abs=0.001)


def test_a_loss_that_is_just_not_visible_does_not_read_as_visible() -> None:
    assert [loss_text(share) for share in (0.1, 0.10001, 0.35, 0.1234)] == ["10%", "10.1%", "35%", "12.4%"]


def test_sweeps_without_a_cell_in_common_say_so() -> None:
    plan = make_plan(("tp:t4",), rounds=5)
    found = compare_sweeps(compare(plan, make_records(plan, {"tp:t4": 0.1})), sweep())
    assert {cell.change for cell in found.cells} == {Change.NEW, Change.GONE}
    assert found.exit_code == 2
    text = change_text(found).splitlines()[1]
    assert text.startswith("INCOMPARABLE: of 4 cells 3 new, 1 gone; no cell was timed in both sweeps")
    assert "not a cell of the earlier sweep" in change_text(found)


def test_a_prior_by_hand() -> None:
    """Draws of s0^2 * d0 / chi2(d0) * chi2(d) / d give back the centre 4 and the 12 degrees of freedom."""
    rng = np.random.default_rng(0)
    degrees = np.full(20_000, 8.0)
    drawn = 4 * 12 / rng.chisquare(12, 20_000) * rng.chisquare(8, 20_000) / 8
    prior = fit_prior(drawn, degrees)
    assert prior.variance == pytest.approx(4, rel=0.03)
    assert prior.degrees == pytest.approx(12, rel=0.1)
    moderated, total = moderate(drawn, degrees)
    assert total[0] == pytest.approx(prior.degrees + 8)
    assert moderated[0] == pytest.approx((prior.degrees * prior.variance + 8 * drawn[0]) / total[0])


def test_equal_variances_are_one() -> None:
    moderated, degrees = moderate(np.array([1.0, 1.1, 0.9]), np.array([8.0, 8.0, 8.0]))
    assert moderated.tolist() == pytest.approx([1.0] * 3)
    assert np.isinf(degrees).all()


def test_step_down_by_hand() -> None:
    """The observed and three draws, two tests; the larger is held against both, the smaller against itself."""
    statistics = np.array([[3.0, 2.0], [1.0, 2.5], [3.5, 0.0], [0.5, 1.0]])
    p = step_down(statistics, np.array([True, True]))
    # 3.0 is reached by max(3.5, 0) and itself: 2 of 4; 2.0 among column 1 alone by 2.0 and 2.5: 2 of 4
    assert p.tolist() == [0.5, 0.5]
    assert step_down(statistics, np.array([False, True])).tolist() == [1.0, 0.5]


def test_the_value_of_a_round_is_the_mean_of_its_middle_half() -> None:
    times = [math.exp(x) for x in (0.0, 1.0, 2.0, 4.0, 5.0, 6.0, 7.0, 1000 / 2)]
    assert round_value(times) == pytest.approx((2 + 4 + 5 + 6) / 4)


def test_markdown_and_junit_say_the_same() -> None:
    found = compare_sweeps(sweep(), sweep({"fsdp:s4": 0.24}))
    text = change_markdown(found)
    assert text.splitlines()[0] == "### :warning: `sweep` → `sweep`"
    assert "| fsdp s4" in text and "-16.7% [" in text
    root = ElementTree.fromstring(junit([found]))
    (suite,) = root
    assert (suite.get("tests"), suite.get("failures"), suite.get("skipped")) == ("3", "1", "0")
    (failure,) = root.iter("failure")
    assert failure.get("type") == "regression"
    assert (failure.get("message") or "").startswith("slower, speed -16.7% [")


@pytest.fixture
def results(tmp_path: Path) -> Path:
    for name, times in {"a": TIMES, "b": {**TIMES, "fsdp:s4": 0.24}}.items():
        plan = make_plan(rounds=5).model_copy(update={"name": name})
        store = SweepStore.create(tmp_path, plan)
        for record in make_records(plan, times):
            store.add(record)
    return tmp_path


def test_the_command(results: Path, capsys: pytest.CaptureFixture[str]) -> None:
    junit_file, markdown = results / "out" / "c.xml", results / "out" / "c.md"
    more = ["--results", str(results), "--junit", str(junit_file), "--markdown", str(markdown)]
    assert _run(["compare", "a", "b", "--json", *more]) == 1
    out, err = capsys.readouterr()
    document = json.loads(out)
    assert {c["label"]: c["change"] for c in document["cells"]}["fsdp s4"] == "slower"
    assert document["exit_code"] == 1
    assert err.splitlines()[0] == "b against a"
    assert err.splitlines()[1].startswith("REGRESSION: of 3 cells 1 slower, 2 tie; all cells together 0.0% [")
    assert ElementTree.parse(junit_file).getroot().tag == "testsuites"
    assert markdown.read_text().startswith("### :warning: `a` → `b`")
    assert _run(["compare", "b", "a", "--results", str(results)]) == 0
    assert _run(["compare", "a", "a", "--results", str(results), "--markdown", "-"]) == 0
    assert capsys.readouterr().out.rstrip().splitlines()[-1].startswith("- slower or faster: at least 2%")


@pytest.mark.parametrize("more", [("--alpha", "nan"), ("--slower", "nan"), ("--alpha", "1e-300")])
def test_shares_out_of_range_are_wrong_use(
    results: Path, more: tuple[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert _run(["compare", "a", "b", "--results", str(results), *more]) == 2
    assert "is not in the range" in capsys.readouterr().err


def test_blanks_in_a_list_of_fields_are_no_part_of_a_name(results: Path) -> None:
    assert _run(["compare", "a", "a", "--results", str(results), "--across", "device, device_names"]) == 0


def test_wrong_use_is_an_object_with_json(results: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert _run(["compare", "a", "nothing", "--results", str(results), "--json"]) == 2
    out, err = capsys.readouterr()
    assert json.loads(out)["error"]["exit_code"] == 2
    assert err == f"meshsweep: {json.loads(out)['error']['message']}\n"
    assert "no sweep folder" in err
    assert _run(["compare", "a", "--json"]) == 2
    assert json.loads(capsys.readouterr().out)["error"]["type"] == "MissingParameter"
