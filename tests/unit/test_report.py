"""Tables, Markdown, files and pictures of comparisons."""

from __future__ import annotations

import io
import json
import re
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import pandas as pd
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from matplotlib.collections import LineCollection
from matplotlib.figure import Figure

from harness.compare import Comparison, compare, sentence
from harness.errors import StoreError
from harness.failure import FailureClass
from harness.predict.memory import predict_memory
from harness.record import Checkpoint, Failure, GateSamples, Ground, Memory, RunRecord, Timing
from harness.report import render, write_report
from harness.report.canvas import heading
from harness.report.frame import CELL_COLUMNS, SAMPLE_COLUMNS, cell_frame, sample_frame
from harness.report.frontier import Point, _stairs, draw_frontier
from harness.report.labels import Box, place_labels
from harness.report.markdown import to_markdown
from harness.report.picture_file import inline, to_png, to_svg
from harness.report.plots import draw, draw_speed
from harness.report.predicted import predicted_part
from harness.report.tables import escape
from harness.report.units import bytes_unit, fold, number, plain, rate_unit, time_unit
from harness.spec import SweepPlan
from tests.unit.factories import (
    LOSSES,
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

TIMES = {"ddp:r4": 0.12, "fsdp:s4": 0.1, "hsdp_tp:r2s2t2": 0.114}
TIMES_OF_THREE = {"ddp:r4": 0.12, "fsdp:s4": 0.11, "hsdp:r2s2": 0.1}
TEXTS = ("ddp:r8", "fsdp:s8", "hsdp:r2s4", "tp:t8", "fsdp_tp:s4t2", "hsdp_tp:r2s2t2")
TAIL = "Traceback\n```\n</details>\n\x1b[31mred\x1b[0m\x00"


@pytest.fixture(scope="module")
def mixed() -> Comparison:
    """One of each outcome, with some metrics missing."""
    plan = make_plan(
        ["ddp:r4", "fsdp:s4", "hsdp:r2s2", "fsdp_tp:s2t2", "ddp_tp:r2t2", "fsdp1:s4"],
        pruned=[("tp:t4", "tp_divides", "tp=4 does not divide n_heads=6 | sorry")],
    )
    records = make_records(plan, {"ddp:r4": 0.12, "fsdp:s4": 0.1, "hsdp:r2s2": 0.114})
    records = replace_record(records, make_verify_record(plan, "ddp:r4", peak_bytes=None))
    records = replace_record(records, make_verify_record(plan, "fsdp:s4", checkpoint_bytes=None, peak_bytes=80 * MIB))
    records.append(make_failed_record(plan, "fsdp_tp:s2t2", log_tail=TAIL))
    records.append(make_verify_record(plan, "ddp_tp:r2t2", losses=(*LOSSES[:3], 7.0, *LOSSES[4:])))
    return compare(plan, records)


def six(cuda: bool = False) -> Comparison:
    """Six layouts of 8 ranks with figures as wide as they get."""
    plan = make_plan(TEXTS, world_size=8, seq_len=125 * 90, cuda=cuda)
    ground = make_ground(device="cuda", device_names=("NVIDIA H200",)) if cuda else make_ground()
    records = [make_verify_record(plan, text, peak_bytes=10_000 * MIB) for text in ("single", *TEXTS)]
    for place, text in enumerate(TEXTS):
        for repeat in range(3):
            steps = jitter(1.0 + 0.01 * place, repeat)
            records.append(
                make_time_record(plan, text, repeat, steps=steps, ground=ground, launch_id=f"{text}{repeat}")
            )
    return compare(plan, records)


def test_the_console_has_every_cell_and_fits_100_columns(mixed: Comparison) -> None:
    text = render(mixed)
    assert text.startswith(sentence(mixed))
    for cell in mixed.cells:
        assert cell.label in text
    for expected in (
        "diverged (1)",
        "failed (1)",
        "not run (1)",
        "pruned (1)",
        "tp t4 (tp_divides)",
        "launches/x/2_log.err",
    ):
        assert expected in text
    assert max(map(len, text.splitlines())) <= 100


@pytest.mark.parametrize("cuda", [False, True])
def test_six_wide_layouts_fit_100_columns(cuda: bool) -> None:
    text = render(six(cuda))
    assert ("MFU" in text) is cuda
    assert "2=" in text
    assert max(map(len, text.splitlines())) <= 100


def test_long_labels_are_folded_not_cut() -> None:
    text = "hsdp:r2s2+precision=bf16+activation_checkpointing=selective"
    plan = make_plan([text])
    table = render(compare(plan, make_records(plan, {text: 0.1})))
    assert max(map(len, table.splitlines())) <= 100
    for part in ("hsdp r2s2", "+precision=bf16", "+activation_", "checkpointing=selective"):
        assert part in table


def test_a_terminal_lists_some_of_many_pruned_and_the_report_all() -> None:
    pruned = [(f"fsdp:s{size}", "batch", f"global batch 8 does not divide over {size}") for size in range(10, 40)]
    comparison = compare(make_plan(pruned=pruned), [])
    assert "and 18 more, which the report lists" in render(comparison)
    assert all(f"fsdp s{size}" in to_markdown(comparison) for size in range(10, 40))


def test_markdown_has_the_answer_then_the_table_then_all_others_then_the_ground(mixed: Comparison) -> None:
    text = to_markdown(mixed, ("tokens_per_s.png",))
    parts = (
        sentence(mixed),
        "## Layouts",
        "](tokens_per_s.png)",
        "## Diverged (1)",
        "## Failed (1)",
        "## Not run (1)",
        "## Pruned (1)",
        "## Ground",
        "torch: 2.13.0",
        "### Topology",
    )
    places = [text.index(part) for part in parts]
    assert places == sorted(places)
    for cell in mixed.cells:
        assert cell.label in text
    assert "first at step 3" in text
    assert "6 x host_memory" in text


def test_a_log_can_break_neither_its_fence_nor_the_page(mixed: Comparison) -> None:
    text = to_markdown(mixed)
    folded = text[text.index("<details>") :]
    fence = re.search(r"^(`{3,})text$", folded, re.MULTILINE)
    assert fence is not None
    assert len(fence.group(1)) == 4
    assert "\x1b" not in text and "\x00" not in text
    assert "red" in folded


def test_table_cells_are_escaped(mixed: Comparison) -> None:
    assert r"n_heads=6 \| sorry" in to_markdown(mixed)
    assert escape("a|b\n*c* _d_ e_f <g> [1, 2] [x](y)") == r"a\|b \*c\* \_d\_ e_f &lt;g&gt; [1, 2] [x\](y)"


def test_missing_metrics_are_a_dash_and_never_zero(mixed: Comparison) -> None:
    lines = {line.split()[1]: line for line in render(mixed).splitlines() if re.match(r" +\d ", line)}
    assert lines["ddp"].split()[-4:] == ["-", "50.0", "500", "250"]
    assert lines["fsdp"].split()[-4:] == ["80.0*", "-", "-", "-"]


def test_the_frame_has_its_documented_columns_and_units(mixed: Comparison) -> None:
    frame = cell_frame(mixed)
    assert list(frame.columns) == list(CELL_COLUMNS)
    values = frame.astype(object).where(frame.notna(), None)
    rows = {row["cell"]: row for row in values.to_dict("records")}
    assert rows["fsdp s4"]["tokens_per_s"] == pytest.approx(10_000, rel=0.01)
    assert rows["fsdp s4"]["step_time_s"] == pytest.approx(0.1, rel=0.01)
    assert rows["fsdp s4"]["peak_memory_bytes"] == 80 * MIB
    assert rows["fsdp s4"]["checkpoint_bytes"] is None
    assert rows["ddp r4"]["peak_memory_bytes"] is None
    assert rows["ddp_tp r2t2"]["gate_first_bad_step"] == 3
    assert rows["ddp_tp r2t2"]["tokens_per_s"] is None
    assert rows["fsdp_tp s2t2"]["failure_class"] == "crash"
    assert [row["outcome"] for row in rows.values()].count("measured") == 4
    assert all(
        definition and not definition.endswith(".")
        for _, definition in (*CELL_COLUMNS.values(), *SAMPLE_COLUMNS.values())
    )


def test_samples_are_tidy_and_complete(mixed: Comparison) -> None:
    frame = sample_frame(mixed)
    assert list(frame.columns) == list(SAMPLE_COLUMNS)
    assert len(frame) == 3 * 3 * 20 * 4  # cells, rounds, steps, ranks
    one = frame[(frame["cell"] == "fsdp s4") & (frame["round"] == 1) & (frame["step"] == 2)].set_index("rank")
    assert one.loc[3, "step_time_s"] == pytest.approx(jitter(0.1, 1)[2])
    assert one.loc[0, "step_time_s"] == pytest.approx(0.9 * jitter(0.1, 1)[2])


def test_write_report_leaves_a_whole_folder(mixed: Comparison, tmp_path: Path) -> None:
    folder = tmp_path / "report"
    files = write_report(mixed, folder)
    names = {path.name for path in folder.iterdir()}
    pictures = ("tokens_per_s", "speed_memory", "peak_memory", "predicted", "checkpoint", "mesh")
    assert names == {
        *("report.html", "report.md", "cells.csv", "cells.parquet", "samples.csv", "comparison.json"),
        *(f"{name}.{end}" for name in pictures for end in ("png", "svg")),
    }
    assert all(path.read_bytes().startswith(b"\x89PNG") for path in files.pictures)
    embedded = re.findall(r"\]\((\w+\.png)\)", files.markdown.read_text(encoding="utf-8"))
    assert embedded == [path.name for path in files.pictures]
    assert pd.read_csv(files.cells_csv)["cell"].tolist() == [c.label for c in mixed.cells]
    pd.testing.assert_frame_equal(pd.read_parquet(files.cells_parquet), cell_frame(mixed))
    read = Comparison.model_validate(json.loads(files.comparison_json.read_text(encoding="utf-8")))
    assert read == mixed.model_copy(update={"samples": ()})


def test_a_later_report_removes_pictures_that_no_longer_apply(tmp_path: Path) -> None:
    (tmp_path / "checkpoint.png").write_bytes(b"old")
    (tmp_path / "mine.png").write_bytes(b"keep")
    files = write_report(compare(make_plan(), []), tmp_path)
    assert files.pictures == ()
    assert not (tmp_path / "checkpoint.png").exists()
    assert (tmp_path / "mine.png").exists()
    assert "No layout was measured" in files.markdown.read_text(encoding="utf-8")


def test_a_folder_that_cannot_be_written_is_one_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises(StoreError, match="cannot write"):
        write_report(compare(make_plan(), []), tmp_path / "file" / "report")


def test_labels_of_points_keep_clear_of_each_other() -> None:
    figure = Figure(figsize=(6, 4), layout="constrained")
    axes = figure.subplots()
    points = [((f"layout {i}",), float(i % 5), float(i // 5)) for i in range(25)]
    axes.plot([x for _, x, _ in points], [y for _, _, y in points], "o")
    hidden = place_labels(figure, axes, points)
    boxes = [Box(*text.get_window_extent().extents) for text in axes.texts]
    assert len(boxes) + hidden == 25
    assert len(boxes) > 15
    assert not any(a.overlaps(b) for i, a in enumerate(boxes) for b in boxes[:i])


def test_a_label_without_room_gives_way_to_a_shorter_one() -> None:
    figure = Figure(figsize=(3, 2), layout="constrained")
    axes = figure.subplots()
    axes.plot([0, 1], [0, 1], "o")
    assert place_labels(figure, axes, [(("x" * 80, "1"), 0.0, 0.0), (("y" * 80,), 1.0, 1.0)]) == 1
    assert [text.get_text() for text in axes.texts] == ["1"]
    # where a label stands must not hang on the pixels of a file: those of SVG are 1/72 inch
    assert axes.texts[0].anncoords == "offset points"  # type: ignore[attr-defined]


def test_units_suit_the_largest_value() -> None:
    assert bytes_unit([10, 3 * MIB]).name == "MiB"
    assert bytes_unit([]).name == "B"
    assert bytes_unit([MIB]).text(MIB / 2) == "0.50"
    assert (time_unit([0.25, 0.5]).name, time_unit([2.0]).name, time_unit([900]).name) == ("ms", "s", "min")
    assert (rate_unit([99_999]).name, rate_unit([100_000]).name) == ("tokens/s", "k tokens/s")


def test_numbers_have_three_digits() -> None:
    shown = {0: "0.00", 1.234: "1.23", 12.34: "12.3", 99.96: "100", 1234.5: "1,234", 0.001234: "0.0012", 3e12: "3e+12"}
    assert {value: number(value) for value in shown} == shown


def test_text_is_folded_at_blanks_first() -> None:
    assert fold("hsdp r2s2 +precision=bf16", 16) == ["hsdp r2s2", "+precision=bf16"]
    assert fold("+activation_checkpointing=full", 16) == ["+activation_", "checkpointing=", "full"]
    assert fold("x" * 10, 4) == ["xxxx", "xxxx", "xx"]
    assert fold("", 4) == [""]
    assert plain("a\nb\x00c\td", 5) == "a ..."


def test_the_planning_side_needs_neither_torch_nor_matplotlib() -> None:
    """A terminal's report starts in a moment on a login node."""
    heavy = ("torch", "matplotlib", "pandas", "scipy", "tabulate")
    code = f"import sys, harness.compare, harness.report; print([m for m in {heavy} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def legend(comparison: Comparison) -> tuple[Figure, list[str]]:
    """The picture of speeds before it is a file, and its legend."""
    figure = draw_speed(comparison)
    assert figure is not None
    found = [text.get_text() for one in figure.legends for text in one.get_texts()]
    return figure, found


def test_one_round_is_marked_as_not_decided() -> None:
    plan = make_plan(rounds=1)
    comparison = compare(plan, make_records(plan, TIMES))
    for text in (render(comparison), to_markdown(comparison)):
        assert "2?" in text and "2=" not in text
        assert "not decided: one round" in text
        assert not re.search(r"\bties?\b", text)
        assert "1 round, 20 steps" in text or "## " not in text
        assert "1 rounds" not in text.replace("settings: rounds 1", "")
    assert legend(comparison)[1] == ["fastest in that round", "not decided: one round"]


def test_a_single_layout_is_compared_with_nothing() -> None:
    for rounds in (1, 3):
        plan = make_plan(["ddp:r4"], rounds=rounds)
        comparison = compare(plan, make_records(plan, {"ddp:r4": 0.1}))
        for text in (render(comparison), to_markdown(comparison)):
            assert not re.search(r"\bties?\b|not decided|ratio of speeds", text)
        assert legend(comparison)[1] == []


def test_the_footnote_says_what_the_ratio_is_and_what_orders_the_rows(mixed: Comparison) -> None:
    for text in (render(mixed, width=1000), to_markdown(mixed)):
        assert "which orders the rows" in text
        assert "mean over rounds of the median ratio of speeds of steps timed in the same cycle, less 1" in text
        assert "the order by it, may differ from the speeds shown" in text


def test_the_first_table_fits_a_page_and_the_second_has_the_rest() -> None:
    text = to_markdown(six(cuda=True))
    ranking = text.partition("\n## Predicted")[0]
    titles = [line for line in ranking.split("\n") if line.startswith("|") and "| layout " in line]
    first, second = (line.count("|") - 1 for line in titles)
    assert first <= 9 and second <= 10
    for title in ("MFU (%)", "samples", "restore", "files", "speed of a rank"):
        assert sum(title in line for line in titles) == 1


def test_the_ground_is_one_list_without_the_device_twice() -> None:
    plan = make_plan()
    records = [
        r.model_copy(update={"ground": make_ground(device_names=("cpu",) * 4)}) for r in make_records(plan, TIMES)
    ]
    ground = to_markdown(compare(plan, records)).partition("## Ground\n\n")[2].partition("\n\n### Topology")[0]
    assert "\n\n" not in ground and "device: cpu" in ground
    assert "device names" not in ground


def test_pictures_name_the_work_and_separate_thousands(mixed: Comparison) -> None:
    figure, _ = legend(mixed)
    assert figure.get_suptitle() == "Training speed by layout: tiny, 4 cpu ranks"
    assert heading(six(cuda=True), "Speed") == "Speed: tiny, 8 NVIDIA H200 ranks"
    figure.draw_without_rendering()
    ticks = [label.get_text() for label in figure.axes[0].get_xticklabels()]
    assert "10,000" in ticks


def test_speed_against_memory_starts_at_zero_and_climbs_in_steps() -> None:
    plan = make_plan()
    records = make_records(plan, TIMES_OF_THREE)
    for place, text in enumerate(TIMES_OF_THREE):
        records = replace_record(records, make_verify_record(plan, text, peak_bytes=(80 + 40 * place) * MIB))
    figure = draw_frontier(compare(plan, records))
    assert figure is not None
    (axes,) = figure.axes
    assert axes.get_ylim()[0] == 0
    assert axes.lines[0].get_drawstyle() == "steps-post"
    points = [Point("", 0, x, y, y, y, True) for x, y in ((1, 10), (2, 20), (3, 30))]
    assert _stairs(points) == [(1, 10), (2, 10), (2, 20), (3, 20), (3, 30)]
    bars = [part for part in axes.collections if isinstance(part, LineCollection)]
    drawn = sorted(float(end) for bar in bars for end in bar.get_segments()[0][:, 1])
    speeds = [cell.tokens_per_s for cell in compare(plan, records).ranked if cell.tokens_per_s]
    assert drawn == pytest.approx(sorted(end for speed in speeds for end in (speed.low, speed.high)))
    spots = axes.transData.transform(axes.lines[0].get_xydata())
    for label in axes.texts:
        box = Box(*label.get_window_extent().extents)
        for spot in spots:
            near = box.nearest((spot[0], spot[1]))
            assert abs(near[0] - spot[0]) + abs(near[1] - spot[1]) > 6


texts = st.text(max_size=12)
times = st.floats(allow_nan=False, allow_infinity=False)
counts = st.integers(0, 2**62)
several_times = st.lists(times, max_size=4).map(tuple)
timings = st.builds(
    Timing,
    design=st.sampled_from(["alternated", "blocks", "launches"]),
    companions=st.just(()),
    warmup_s=several_times,
    steady=st.booleans(),
    cycles=st.lists(st.integers(-2, 4), max_size=4).map(tuple),
    step_time_s=st.lists(st.lists(st.floats(0.01, 10) | times, max_size=4).map(tuple), max_size=3).map(tuple),
)
gates = st.just(GateSamples(losses=LOSSES, grad_norms=LOSSES)) | st.builds(
    GateSamples, losses=st.lists(times, max_size=12).map(tuple), grad_norms=st.lists(times, max_size=12).map(tuple)
)
peaks = st.lists(counts, max_size=3).map(tuple)
memories = st.builds(
    Memory, method=texts, peak_bytes=peaks, peak_reserved_bytes=st.none() | peaks, peak_rss_bytes=st.none() | peaks
)
checkpoints = st.builds(
    Checkpoint,
    folder=texts,
    total_bytes=counts,
    files=counts,
    save_time_s=times,
    restore_time_s=times,
    equal=st.booleans(),
)
failures = st.builds(
    Failure,
    failure_class=st.sampled_from(FailureClass),
    phase=texts,
    message=texts,
    rank=st.none() | counts,
    host=st.none() | texts,
    log_tail=texts,
    log=st.none() | texts,
)
grounds = st.builds(
    Ground,
    hosts=st.lists(texts, max_size=2).map(tuple),
    device=st.sampled_from(["cpu", "cuda"]),
    device_names=st.lists(texts | st.just("NVIDIA H200"), max_size=2).map(tuple),
    platform=texts,
    python=texts,
    torch=st.sampled_from(["2.13.0", "2.14.0"]),
    backend=texts,
    version=texts,
    cpu_count=st.none() | st.integers(-1, 4),
    load_average=st.none() | times,
)


@st.composite
def any_records(draw: st.DrawFn) -> tuple[SweepPlan, list[RunRecord]]:
    """A plan and records of its runs with anything that the schema allows inside."""
    plan = make_plan(["ddp:r4", "fsdp:s4+precision=bf16", "hsdp:r2s2"], pruned=[("tp:t4", draw(texts), draw(texts))])
    specs = [plan.run(x, "verify") for x in (plan.reference, *plan.layouts)]
    specs += [plan.run(x, "time", repeat) for x in (plan.reference, *plan.layouts) for repeat in range(2)]
    records = []
    for spec in draw(st.lists(st.sampled_from(specs), max_size=8)):
        records.append(
            RunRecord(
                run_id=spec.run_id,
                cell_id=spec.cell_id,
                attempt=draw(st.integers(0, 2)),
                launch_id=draw(st.sampled_from(["a", "b"])),
                launch_design="alternated",
                spec=spec,
                status=draw(st.sampled_from(["measured", "measured", "measured", "failed", "interrupted"])),
                failure=draw(st.none() | failures),
                started_at=draw(texts),
                wall_s=draw(times),
                ground=draw(st.none() | st.just(make_ground()) | grounds),
                timing=draw(st.none() | timings),
                gate=draw(st.none() | gates),
                memory=draw(st.none() | memories),
                checkpoint=draw(st.none() | checkpoints),
            )
        )
    return plan, records


@settings(
    max_examples=10,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
@given(any_records())
def test_any_record_that_the_schema_allows_gives_a_report(made: tuple[SweepPlan, list[RunRecord]]) -> None:
    comparison = compare(*made)
    assert {c.label for c in comparison.cells} >= {layout.label for layout in made[0].layouts}
    for text in (sentence(comparison), render(comparison), to_markdown(comparison)):
        assert text
    csv = cell_frame(comparison).to_csv(index=False)
    assert len(pd.read_csv(io.StringIO(csv))) == len(comparison.cells)
    sample_frame(comparison)
    assert Comparison.model_validate_json(comparison.model_dump_json()) == comparison


@pytest.mark.filterwarnings("ignore:Glyph")
@settings(max_examples=2, derandomize=True, phases=[Phase.generate])
@given(st.lists(memories, min_size=3, max_size=3), st.lists(checkpoints, min_size=3, max_size=3), several_times)
def test_any_figures_that_the_schema_allows_give_pictures(
    memory: list[Memory], checkpoint: list[Checkpoint], steps: tuple[float, ...]
) -> None:
    plan = make_plan(rounds=1)
    records = [make_time_record(plan, "fsdp:s4", steps=(0.1, *steps)), make_verify_record(plan, "single")]
    for text, used, saved in zip(("ddp:r4", "fsdp:s4", "hsdp:r2s2"), memory, checkpoint, strict=True):
        records += [make_verify_record(plan, text, memory=used, checkpoint=saved), make_time_record(plan, text)]
    pictures = draw(compare(plan, records))
    assert "tokens_per_s" in pictures
    assert all(to_png(picture).startswith(b"\x89PNG") for picture in pictures.values())
    for name, picture in pictures.items():
        ElementTree.fromstring(inline(to_svg(picture), name, "<a>"))


def test_predicted_stands_beside_measured(mixed: Comparison) -> None:
    part = predicted_part(mixed)
    assert part is not None
    assert part.titles == ("layout", "peak predicted", "peak measured", "error")  # a CPU is in no catalogue
    shown = [cell for cell in mixed.cells if cell.memory is not None]
    assert {row[0] for row in part.rows} <= {cell.label for cell in shown}
    for row in part.rows:
        cell = next(cell for cell in shown if cell.label == row[0])
        assert cell.memory is not None
        predicted = predict_memory(cell.layout, mixed.plan.workload, kernels="cpu").peak_bytes
        assert row[3] == f"{predicted / cell.memory.peak_bytes - 1:+.1%}"
