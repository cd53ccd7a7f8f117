"""The HTML page: whole, harmless, and complete for whatever a record holds."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings

from harness.compare import Comparison, compare, sentence
from harness.record import RunRecord
from harness.report import write_reports
from harness.report.page import side_by_side, to_html
from harness.report.page.sections import sections
from harness.report.picture_file import inline, to_svg
from harness.report.plots import PICTURES, draw_speed
from harness.report.together import draw_scaling, draw_together
from harness.spec import SweepPlan
from tests.unit.factories import make_failed_record, make_ground, make_plan, make_records, make_verify_record
from tests.unit.test_report import any_records

EVIL = "<script>alert('1')</script>"
VOID = {"meta", "br", "wbr", "path", "use", "rect"}


class Elements(HTMLParser):
    """Tags in order, attributes, and text by the tag around it; fails where tags do not nest."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text: list[tuple[str, str]] = []
        self.feed(page)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        if tag not in VOID:
            assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        within = self.open[-1] if self.open else ""
        if self.text and self.tags[-1][0] == "wbr" and self.text[-1][0] == within:
            data = self.text.pop()[1] + data  # a place for a break ends no word
        self.text.append((within, data))

    def words(self, tag: str) -> list[str]:
        return [" ".join(data.split()) for within, data in self.text if within == tag and data.strip()]


def sweep(world_size: int = 4, name: str = "sweep", speed: float = 1.0, **ground: str) -> Comparison:
    times = {f"ddp:r{world_size}": 0.1, f"fsdp:s{world_size}": 0.12, f"hsdp:r2s{world_size // 2}": 0.11}
    plan = make_plan(list(times), world_size=world_size, global_batch=16).model_copy(update={"name": name})
    records = make_records(plan, {text: time * 4 / world_size / speed for text, time in times.items()})
    return compare(plan, [r.model_copy(update={"ground": make_ground(**ground)}) for r in records])


def test_the_page_answers_first_and_needs_nothing_from_outside() -> None:
    comparison = sweep()
    page = to_html([comparison], [{"tokens_per_s": to_svg(PICTURES["tokens_per_s"](comparison))}])  # type: ignore[arg-type]
    found = Elements(page)
    assert found.words("p")[0] == sentence(comparison)
    assert {tag for tag, _ in found.tags} & {"script", "link", "img", "iframe"} == set()
    targets = [value or "" for _, attrs in found.tags for key, value in attrs.items() if key.endswith(("href", "src"))]
    assert all(target.startswith("#") for target in targets)
    ids = [attrs["id"] for _, attrs in found.tags if "id" in attrs]
    assert len(ids) == len(set(ids))
    assert {target[1:] for target in targets} <= set(ids)
    assert "url(http" not in page and "@import" not in page
    rows = [tag for tag, _ in found.tags].count("tr")
    assert rows == 2 * (1 + 4) + 2  # two tables of three layouts and the reference; one kind of node


def test_names_messages_and_logs_cannot_leave_their_place() -> None:
    plan = make_plan(["ddp:r4", "fsdp:s4"], pruned=[("tp:t4", EVIL, EVIL)])
    plan = plan.model_copy(update={"name": EVIL, "command": EVIL})
    ground = make_ground(hosts=(EVIL,), cpu=EVIL, device_names=(EVIL,))
    records = [r.model_copy(update={"ground": ground}) for r in make_records(plan, {"ddp:r4": 0.1})]
    records += [make_failed_record(plan, "fsdp:s4", log_tail=f"</pre>{EVIL}\x1b[31m\x00")]
    comparison = compare(plan, records)
    pictures = {name: to_svg(figure) for name, make in PICTURES.items() if (figure := make(comparison))}
    for page in (
        to_html([comparison], [pictures]),
        to_html([comparison] * 2, [pictures] * 2, side_by_side([comparison] * 2)),
    ):
        assert "<script" not in page
        assert "\x1b" not in page and "\x00" not in page
        assert f"</pre>{EVIL}" in "".join(Elements(page).words("pre"))


def test_every_candidate_and_every_warning_is_on_the_page() -> None:
    plan = make_plan(["ddp:r4", "fsdp:s4", "hsdp:r2s2"], pruned=[("tp:t4", "heads", "6 heads")], rounds=1)
    records = make_records(plan, {"ddp:r4": 0.1, "fsdp:s4": 0.2})
    comparison = compare(plan, [*records, make_failed_record(plan, "hsdp:r2s2")])
    text = re.sub(r"\s+", " ", to_html([comparison], [{}]))
    for cell in comparison.cells:
        assert cell.label in text
    for warning in comparison.warnings:
        assert warning.cause.replace("'", "&#39;") in text
    assert "pruned by heads" in text


def test_a_section_stands_only_where_it_has_something_to_show() -> None:
    comparison = sweep()
    anchors = [s.anchor for s in sections(comparison, {"checkpoint": b"", "new_picture": b"", "tokens_per_s": b""})]
    assert anchors == ["speed", "checkpoint", "more-pictures", "figures", "warnings", "ground"] or anchors == [
        *("speed", "checkpoint", "more-pictures", "figures", "ground")
    ]
    assert [s.anchor for s in sections(compare(make_plan(), []), {})] == ["not-ranked", "ground"]
    placed = [s.anchor for s in sections(comparison, dict.fromkeys(PICTURES, b""))]
    assert "more-pictures" not in placed, "give every picture of the report its section"


def test_a_picture_inside_a_page_takes_the_pages_colours_and_keeps_its_ids_apart() -> None:
    figure = draw_speed(sweep())
    assert figure is not None
    svg = inline(to_svg(figure), "s0-speed", "a <title>")
    assert "<title>a &lt;title&gt;</title>" in svg
    assert "var(--ink)" in svg and "var(--blue)" in svg and "#0072b2" not in svg.lower()
    assert all(found.startswith("s0-speed-") for found in re.findall(r'\bid="([^"]+)"', svg))
    assert "font-family" not in svg and "<style" not in svg


def test_several_sweeps_stand_side_by_side(tmp_path: Path) -> None:
    one, two = sweep(name="one"), sweep(name="two", speed=0.9, torch="2.14.0")
    together = side_by_side([one, two])
    assert together.sentence.startswith("Train with ddp r4: fastest, or a tie with the fastest, in all 2 sweeps.")
    assert together.notes[0] == "two differs from one in: torch 2.13.0 there, 2.14.0 here."
    (table,) = together.tables
    assert [head.title for head in table.heads] == ["layout", "one", "two"]
    assert table.rows[0][0] == "ddp r4"
    assert table.rows[0][1].startswith("20,000 [") and table.rows[0][2].startswith("18,000 [")
    files = write_reports([one, two], tmp_path)
    assert {path.name for path in files.pictures} == {"together.png"}
    assert files.cells_csv.read_text().count("ddp r4") == 2
    assert "| ddp r4" in files.markdown.read_text()


def test_scaling_takes_the_best_layout_of_each_strategy_at_each_world_size() -> None:
    small, large = sweep(4), sweep(8)
    figure = draw_scaling([small, large])
    assert figure is not None
    (axes,) = figure.axes
    lines = {line.get_label(): [float(y) for y in np.asarray(line.get_ydata())] for line in axes.lines}
    assert lines["in proportion to ranks"] == pytest.approx([20_000, 40_000], rel=0.001)
    assert draw_scaling([small, small]) is None
    assert draw_together([small, large]) is None  # no layout has both sizes
    assert draw_together([small, small]) is not None


def test_winners_that_differ_are_all_named() -> None:
    text = side_by_side([sweep(4, "a"), sweep(8, "b")]).sentence
    assert text.startswith("Train with ddp r4 in a: 20,000 tokens/s [") and "; ddp r8 in b: 40,000 tokens/s [" in text
    assert side_by_side([compare(make_plan(), [])] * 2).sentence == "No layout was measured in any of the sweeps."


@settings(
    max_examples=10,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
@given(any_records())
def test_any_record_that_the_schema_allows_gives_a_page(made: tuple[SweepPlan, list[RunRecord]]) -> None:
    comparison = compare(*made)
    Elements(to_html([comparison], [{}]))
    Elements(to_html([comparison] * 2, [{}] * 2, side_by_side([comparison] * 2)))


def test_long_labels_of_layouts_break_between_their_words() -> None:
    text = "fsdp:s4+activation_checkpointing=selective"
    plan = make_plan([text])
    page = to_html([compare(plan, make_records(plan, {text: 0.1}))], [{}])
    assert "fsdp s4 +activation_<wbr>checkpointing=<wbr>selective</td>" in page
    assert "fsdp s4 +activation_checkpointing=selective" in Elements(page).words("td")


def test_memory_alone_still_gives_a_page() -> None:
    plan = make_plan(["ddp:r4"])
    comparison = compare(plan, [make_verify_record(plan, "single"), make_verify_record(plan, "ddp:r4")])
    assert "not run" in to_html([comparison], [{}])
