"""Words and pictures of what a step's time and memory are made of."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from harness.cli import _run
from harness.compare import Comparison, compare
from harness.report import write_report
from harness.report.breakdown_plot import drawn_parts, step_parts
from harness.report.explain import explain
from harness.report.memory_plots import draw_memory_ranks
from harness.store import SweepStore
from harness.traffic import Collective, Traffic
from tests.unit.factories import make_plan, make_records, make_verify_record, replace_record
from tests.unit.parts import rank_memory, with_exposure, with_memory

PLAN = make_plan()
# ddp holds all state whole; its rank 3 is odd
DDP = [rank_memory(parameters=10, gradients=10, optimizer_state=20, activations=8)] * 3 + [
    rank_memory(parameters=10, gradients=10, optimizer_state=20, activations=20)
]
HSDP = [rank_memory("", parameters=5, gradients=5, optimizer_state=10, activations=8, communication_buffers=2)] * 4
TRAFFIC = (
    Collective(
        operation="all_reduce",
        axis="dp_replicate",
        group_size=4,
        dtype="float32",
        phase="backward",
        size_bytes=656_640,
        count=1,
    ),
)


def sweep() -> Comparison:
    records = make_records(PLAN, {"ddp:r4": 0.12, "fsdp:s4": 0.2, "hsdp:r2s2": 0.1})
    ddp = with_exposure(with_memory(make_verify_record(PLAN, "ddp:r4"), DDP), 0.12, (0.06, 0.08, 0.08, 0.08), 0.02)
    ddp = ddp.model_copy(update={"traffic": Traffic(collectives=TRAFFIC, rank_bytes=(656_640,) * 4, steps=1)})
    hsdp = with_exposure(
        *(with_memory(make_verify_record(PLAN, "hsdp:r2s2"), HSDP), 0.1, (0.08,) * 4, 0.02),
        dp_replicate=0.095,
        dp_shard=0.088,
    )
    return compare(PLAN, replace_record(replace_record(records, ddp), hsdp))


def cells(comparison: Comparison, *labels: str) -> list:  # type: ignore[type-arg]
    return [next(c for c in comparison.cells if c.label == label) for label in labels]


def test_parts_of_a_step_sum_to_it() -> None:
    ddp, hsdp = (c.breakdown for c in cells(sweep(), "ddp r4", "hsdp r2s2"))
    assert ddp is not None
    assert hsdp is not None
    assert step_parts(ddp) == pytest.approx(
        {
            "compute": 0.055,
            "clipping and optimizer": 0.02,
            "waiting for slower ranks": 0.005,
            "dp_replicate": 0.04,
        }
    )
    assert step_parts(hsdp) == pytest.approx(
        {
            "compute": 0.06,
            "clipping and optimizer": 0.02,
            "waiting for slower ranks": 0.0,
            "dp_replicate": 0.005,
            "dp_shard": 0.012,
            "several axes at once": 0.003,
        }
    )
    assert sum(step_parts(ddp).values()) == pytest.approx(0.12)


@pytest.mark.parametrize(
    ("without", "drawn"),
    [
        # exposed 0.02: an axis that a step does without gets slower by leaves the rest to several at once
        ((0.13, 0.085), (0.0, 0.015, 0.005)),
        # differences of 0.03 and 0.01 exceed it, and are shrunk by half
        ((0.07, 0.09), (0.015, 0.005, 0.0)),
    ],
)
def test_a_stack_is_as_long_as_its_step(without: tuple[float, float], drawn: tuple[float, float, float]) -> None:
    verify = make_verify_record(PLAN, "hsdp:r2s2")
    axes = dict(zip(("dp_replicate", "dp_shard"), without, strict=True))
    hsdp = with_exposure(verify, 0.1, (0.08,) * 4, 0.02, **axes)
    records = make_records(PLAN, {"ddp:r4": 0.12, "fsdp:s4": 0.2, "hsdp:r2s2": 0.1})
    (cell,) = cells(compare(PLAN, replace_record(records, hsdp)), "hsdp r2s2")
    found = drawn_parts(cell.breakdown)
    assert [found[name] for name in ("dp_replicate", "dp_shard", "several axes at once")] == pytest.approx(drawn)
    assert sum(found.values()) == pytest.approx(0.1)


def test_one_layout_against_another_in_words() -> None:
    comparison = sweep()
    text = explain(comparison, cells(comparison, "ddp r4", "hsdp r2s2")).text
    assert text.startswith("ddp r4 against hsdp r2s2\n")
    assert "hsdp r2s2 is 20.0% [20.0, 20.0] ahead of ddp r4, by steps timed side by side" in text
    text_of_others = explain(comparison, cells(comparison, "ddp r4", "fsdp s4")).text
    assert "ddp r4 is 67% faster" in text_of_others
    assert "the first one's step is 20.0 ms more, most of it: exposed dp_replicate +35.0" in text
    # the verify run's steps take 120 ms; the ranking's too, but for a jitter of 2%
    both = "ddp r4: these are steps of its verify run, alone, 120 ms; the ranking's steps, timed side by side with the"
    assert f"{both} others, take 120 ms (0%)" in text
    assert "ddp r4: 60.0 MiB on the fullest rank, in backward of layers.1.ffn" in text
    assert "odd among its peers: rank 3" in text
    assert "the first one's peak is 30.0 MiB more, most of it: activations +12.0, optimizer state +10.0" in text
    assert "hsdp r2s2: dp_shard of 2 ranks stays inside a node (host_memory)" in text
    # ring all-reduce of 656,640 bytes: 2 * 3 / 4 of it from each of 4 ranks
    assert "ddp r4: dp_replicate sends 3.76 MiB a step over host_memory (1 all_reduce a rank)" in text
    assert "ddp r4: 0% of what all ranks send crosses nodes" in text
    assert "Not in the records\n  hsdp r2s2: traffic" in text


def test_what_was_not_measured_is_said_to_be_absent() -> None:
    comparison = sweep()
    found = explain(comparison, cells(comparison, "fsdp s4"))
    assert {"fsdp s4: memory", "fsdp s4: what a step is made of"} <= set(found.absent)
    assert found.text.endswith("\n".join(["Not in the records", *(f"  {line}" for line in found.absent)]))


def test_pictures_and_tables_are_in_the_report(tmp_path: Path) -> None:
    comparison = sweep()
    files = write_report(comparison, tmp_path)
    names = {path.name for path in files.pictures}
    assert {"step_breakdown.png", "memory_by_kind.png", "memory_heat.png"} <= names
    text = files.markdown.read_text()
    rows = [" ".join(line.split()) for line in text.splitlines() if line.startswith("| hsdp r2s2")]
    assert any(row.startswith("| hsdp r2s2 | 30.0 | backward of the whole model | 5.00 |") for row in rows)
    assert any(row.startswith("| hsdp r2s2 | 100 | 60.0 | 20.0 | 0.00 | 5.00 | 12.0 | 3.00 | 20 |") for row in rows), (
        rows
    )
    assert "ddp r4: odd among its peers is rank 3 of node0." in text


def test_ranks_that_have_no_room_for_a_number_each_show_their_range() -> None:
    plan = make_plan(["ddp:r40"], world_size=40, global_batch=40)
    own = [rank_memory(parameters=100 + rank / 100) for rank in range(40)]
    verify = with_memory(make_verify_record(plan, "ddp:r40"), own)
    drawn = draw_memory_ranks(compare(plan, replace_record(make_records(plan, {"ddp:r40": 0.1}), verify)))
    assert drawn is not None
    panel = drawn.axes[0]
    assert panel.get_title(loc="left") == "ddp r40: 100 to 100"
    assert [text for text in panel.texts if text.get_text()] == []
    assert len(panel.get_xticks()) <= 12
    few = draw_memory_ranks(sweep())
    assert few is not None
    assert len(few.axes[0].texts) == 4


def test_nothing_is_drawn_without_measurements() -> None:
    comparison = compare(PLAN, make_records(PLAN, {"ddp:r4": 0.12}))
    assert draw_memory_ranks(comparison) is None


def test_the_command_names_cells_and_refuses_others(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    store = SweepStore.create(tmp_path, PLAN)
    for record in make_records(PLAN, {"ddp:r4": 0.12, "hsdp:r2s2": 0.1}):
        store.add(record)
    at = ["--results", str(tmp_path), "--json"]
    assert _run(["explain", PLAN.name, "ddp", "hsdp:r2s2", *at]) == 0
    assert json.loads(capsys.readouterr().out)["cells"] == ["ddp r4", "hsdp r2s2"]
    assert (store.report_folder / "explain-ddp-r4-hsdp-r2s2.png").stat().st_size > 1000
    assert _run(["explain", PLAN.name, "tp", *at]) == 2
    assert "unknown cell 'tp'; choose one of: " in capsys.readouterr().err
