"""The report's checkpoint section: why one is larger or slower, the pairs of meshes, the two claims."""

from __future__ import annotations

import io
from typing import Any

import pytest

from harness.checkpoint.measured import CheckpointParts, DiskRate, RestoreCost, SaveCost, Sizes
from harness.checkpoint.study import CheckpointStudy, LayoutStudy, Pair
from harness.compare import Comparison, compare
from harness.compare.checkpoints import Labelled, explain
from harness.record import RunRecord
from harness.report.checkpoint_matrix import draw_checkpoint_matrix, draw_pairs, pair_word
from harness.report.checkpoints import checkpoint_parts
from harness.report.markdown import to_markdown
from harness.store import SweepStore
from tests.unit.factories import make_plan, make_records

KINDS = {"parameters": 400, "exp_avg": 400, "exp_avg_sq": 400, "step": 40}


def parts(metadata: int = 100, writers: int = 1, save_s: float = 0.1, duplicates: int = 0) -> CheckpointParts:
    total = sum(KINDS.values()) + metadata + duplicates
    sizes = Sizes(bytes_by_kind=KINDS, metadata_bytes=metadata, duplicate_bytes=duplicates, files=writers + 1)
    written = tuple(total // writers if rank < writers else 0 for rank in range(4))
    return CheckpointParts(
        saves=(
            SaveCost(
                way="one_group",
                sizes=sizes,
                total_bytes=total,
                time_s=save_s,
                blocking_s=save_s,
                written_bytes=written,
                seconds={"state": 0.02, "write": save_s - 0.02},
            ),
        ),
        restores=(
            RestoreCost(way="one_group", cache="warm", time_s=0.05, storage_bytes=(total, 0, 0, 0)),
            RestoreCost(
                way="one_group",
                cache="cold",
                time_s=0.1,
                storage_bytes=(total, 0, 0, 0),
                seconds={"read": 0.08, "send": 0.01},
            ),
        ),
        disk=DiskRate(
            size_bytes=1 << 24, write_bytes_per_s=20_000.0, read_cold_bytes_per_s=40_000.0, read_warm_bytes_per_s=1e6
        ),
    )


def test_the_same_size_and_time_are_called_so() -> None:
    size, save, restore = explain([Labelled("ddp r4", parts()), Labelled("fsdp s4", parts())])
    assert "the same size" in size and "stored once whatever the layout" in size
    assert save == "Times to save lie within 10% of each other, which one save each does not tell apart."
    assert restore.startswith("Times to restore lie")


def test_more_files_have_more_metadata() -> None:
    size, *_ = explain([Labelled("ddp r4", parts()), Labelled("fsdp s4", parts(metadata=164, writers=4))])
    # 64 bytes more than 1,240 + 100
    assert size == (
        "fsdp s4's checkpoint is 4.8% (64 bytes) larger than ddp r4's: 100% of that are names and digests of 4 files "
        "(164 bytes against 100); parameters and optimizer state are the same bytes in both."
    )


def test_copies_are_named_as_the_cause_when_they_are() -> None:
    size, *_ = explain([Labelled("ddp r4", parts()), Labelled("hsdp r2s2", parts(metadata=110, duplicates=1240))])
    assert "99% of that are copies of what is stored already (1,240 bytes)" in size


def test_what_took_longer_is_the_part_that_grew_most() -> None:
    _, save, _ = explain([Labelled("ddp r4", parts(save_s=0.3)), Labelled("fsdp s4", parts(writers=4))])
    assert save == (
        "To save, ddp r4 takes 3.00 times as long as fsdp s4 (300 ms against 100 ms); most of it is writing (+200 ms). "
        "In ddp r4 1 rank wrote 1,340 bytes, 1,340 at most; in fsdp s4 4 ranks wrote 1,340 bytes, 335 at most."
    )


@pytest.fixture
def compared() -> Comparison:
    plan = make_plan(["ddp:r4", "fsdp:s4", "hsdp:r2s2"])
    records: list[RunRecord] = []
    writers = {"ddp": 1, "fsdp": 4, "hsdp": 2}
    for record in make_records(plan, {"ddp:r4": 0.12, "fsdp:s4": 0.1, "hsdp:r2s2": 0.11}):
        if record.checkpoint is not None and record.spec.layout.strategy in writers:
            found = parts(writers=writers[record.spec.layout.strategy])
            update = {"parts": found, "total_bytes": found.saves[0].total_bytes}
            record = record.model_copy(update={"checkpoint": record.checkpoint.model_copy(update=update)})
        records.append(record)
    return compare(plan, records)


def pair(source: str, target: str, **more: Any) -> Pair:
    figures = {"time_s": 0.012, "checkpoint_bytes": 1340, "storage_bytes": 1340, "step": 2, "loss_difference": 0.0}
    return Pair(source=source, source_ranks=4, target=target, target_ranks=4, **{**figures, **more})


def study() -> CheckpointStudy:
    impossible = Pair(
        source="ddp:r4", source_ranks=4, target="hsdp_tp:r2s2t2", target_ranks=4, reason="8 ranks are needed"
    )
    stock = RestoreCost(way="stock", cache="cold", time_s=0.2, storage_bytes=(1340,) * 4)
    measured = parts()
    return CheckpointStudy(
        created_at="2026-01-01",
        command="meshsweep checkpoint measure",
        model="tiny",
        host="here",
        versions={},
        layouts=(
            LayoutStudy(
                layout="hsdp:r2s2", parts=measured.model_copy(update={"restores": (*measured.restores, stock)})
            ),
            LayoutStudy(layout="fsdp1:s4", error="rank 0 ended"),
        ),
        pairs=(
            pair("ddp:r4", "fsdp:s4"),
            pair("fsdp:s4", "ddp:r4", unequal=("model.norm.weight",)),
            pair("fsdp:s4", "fsdp:s4", loss_difference=1e-3),
            impossible,
        ),
    )


def test_the_report_has_sizes_costs_and_claims(compared: Comparison) -> None:
    text = to_markdown(compared)
    assert "128 -&gt; 16" in text, "escaped once"
    for title in ("## Checkpoints", "### What checkpoints are made of", "### Saving and restoring", "### Two claims"):
        assert title in text
    found = {part.title: part for part in checkpoint_parts(compared)}
    sizes = {row[0]: row for row in found["What checkpoints are made of, bytes"].rows}
    assert sizes["hsdp r2s2"][1:] == ("400", "400", "400", "40", "100", "0", "1,340", "3", "2 of 4", "670")
    costs = {row[0]: row for row in found["Saving and restoring"].rows}
    # 1,340 bytes in 0.1 s, beside 20 kB/s of writing and 40 kB/s of reading
    assert costs["fsdp s4"][1:] == ("100", "67%", "100", "34%", "50.0", "1.00", "-")
    claims = found["Two claims about meshes and checkpoints"].rows
    assert claims[0][1].startswith("128 -> 16") and claims[0][2].startswith("4 -> 2 (fsdp s4 -> hsdp r2s2)")
    assert claims[1][2].startswith("1,340 -> 1,340")
    assert claims[3][2] == claims[4][2] == "1.000 x (fsdp s4 / ddp r4)"


def test_a_study_adds_ways_and_pairs(compared: Comparison) -> None:
    with_study = compared.model_copy(update={"checkpoint_study": study()})
    text = to_markdown(with_study)
    assert "2 of 3 pairs restore every tensor" in text
    found = {part.title: part for part in checkpoint_parts(with_study)}
    all_pairs, impossible = found["From any mesh onto any other"].notes
    assert all_pairs.endswith("Not so: fsdp:s4 -> ddp:r4, fsdp:s4 -> fsdp:s4.")
    assert impossible == "ddp:r4 -> hsdp_tp:r2s2t2: 8 ranks are needed"
    assert found["Ways that could not be measured"].notes == ("fsdp1:s4 failed: rank 0 ended",)
    restored = found["Two claims about meshes and checkpoints"].rows[2]
    assert restored[2] == "5,360 -> 1,340 bytes, 200 -> 100 ms (hsdp:r2s2)"
    assert [pair_word(p) for p in study().pairs] == ["= 12", "X 12", "X 12", "-"]
    figure = draw_checkpoint_matrix(with_study)
    assert figure is not None
    figure.savefig(io.BytesIO(), format="png")
    assert draw_checkpoint_matrix(compared) is None


def test_a_study_is_kept_with_its_sweep(compared: Comparison, tmp_path: Any) -> None:
    store = SweepStore.create(tmp_path, compared.plan)
    assert store.checkpoint_study() is None
    store.add_checkpoint_study(study())
    assert store.checkpoint_study() == study()


def test_reports_of_old_records_lack_the_section() -> None:
    plan = make_plan(["ddp:r4"])
    assert "## Checkpoints" not in to_markdown(compare(plan, make_records(plan, {"ddp:r4": 0.1})))


def test_many_meshes_are_numbered_and_their_marks_kept() -> None:
    names = [f"fsdp:s{size}" for size in range(1, 21)]
    pairs = [pair(a, b, **({"unequal": ("x",)} if a == b == "fsdp:s3" else {})) for a in names for b in names]
    axes = draw_pairs(pairs, "title").axes[0]
    assert [label.get_text() for label in axes.get_xticklabels()] == [str(place) for place in range(1, 21)]
    assert axes.get_yticklabels()[2].get_text() == "fsdp:s3  3"
    assert [text.get_text() for text in axes.texts if text.get_text()] == ["X"]
