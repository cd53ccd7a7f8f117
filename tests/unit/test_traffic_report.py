"""Traffic from records to tables, columns, warnings and the picture."""

from __future__ import annotations

import pytest

from harness.compare import Comparison, compare
from harness.predict.collectives import step_collectives
from harness.predict.wire import wire_traffic
from harness.record import RunRecord
from harness.report.frame import cell_frame
from harness.report.markdown import to_markdown
from harness.report.page.sections import sections
from harness.report.traffic import draw_traffic, traffic_tables
from harness.spec import SweepPlan
from harness.topology.model import Device, Node, Topology
from harness.traffic import Port, Traffic
from tests.unit.factories import layout, make_plan, make_time_record, make_verify_record

TEXTS = ("ddp:r4", "fsdp:s4", "hsdp:r2s2")


def traffic_of(plan: SweepPlan, text: str, moved: float = 1.0) -> Traffic:
    """What the formulas say, and ports that moved ``moved`` times the accounted bytes."""
    collectives = step_collectives(layout(text), plan.workload)
    wire = wire_traffic(collectives, layout(text), plan.topology, "gloo")
    ports = [
        Port(
            host=f"node{at}",
            name="eth0",
            kind="ethernet",
            carries_ranks=True,
            sent_bytes=round(2 * moved * sent) + 66 * 7,
            received_bytes=0,
            sent_packets=7,
            received_packets=0,
        )
        for at, sent in enumerate(wire.node_sent_bytes)
    ]
    total = sum(one.total_bytes for one in collectives)
    return Traffic(
        collectives=collectives,
        rank_bytes=(total,) * 4,
        steps=2,
        plain_step_s=(0.1, 0.1),
        counted_step_s=(0.11, 0.11),
        ports=tuple(ports),
    )


def compared(moved: float = 1.0) -> Comparison:
    devices = tuple(Device(index=index, kind="cpu") for index in range(2))
    topology = Topology(nodes=tuple(Node(host=f"node{at}", devices=devices) for at in range(2)))
    plan = make_plan(TEXTS, rounds=1).model_copy(update={"topology": topology})
    records: list[RunRecord] = [make_verify_record(plan, "single")]
    for text in TEXTS:
        records.append(make_verify_record(plan, text, traffic=traffic_of(plan, text, moved)))
        records.append(make_time_record(plan, text))
    return compare(plan, records)


def test_shares_follow_the_layout() -> None:
    """A ring over 4 ranks on 2 nodes crosses with half of its bytes; with shards inside nodes only the parts cross."""
    found = {c.layout.text: c.traffic for c in compared().cells if c.traffic}
    assert set(found) == set(TEXTS)
    assert found["ddp:r4"].wire.cross_node_share == found["fsdp:s4"].wire.cross_node_share == 0.5
    share = found["hsdp:r2s2"].wire.cross_node_share
    assert share is not None
    assert 0.1 < share < 0.25
    assert found["ddp:r4"].count == 1
    assert found["ddp:r4"].counting_cost == pytest.approx(0.1)


def test_records_without_traffic_say_nothing() -> None:
    plan = make_plan(("ddp:r4",), rounds=1)
    comparison = compare(plan, [make_verify_record(plan, "ddp:r4"), make_time_record(plan, "ddp:r4")])
    assert traffic_tables(comparison) == ()
    assert draw_traffic(comparison) is None
    assert "## Traffic" not in to_markdown(comparison)
    assert cell_frame(comparison)["cross_node_share"].isna().all()


def test_tables_columns_and_picture() -> None:
    comparison = compared()
    text = to_markdown(comparison)
    assert "## Traffic" in text
    assert "moved 1.0000 to 1.0000 times the accounted bytes" in text
    assert "take +10% to +10% against plain ones" in text
    frame = cell_frame(comparison).set_index("cell")
    hsdp = frame.loc["hsdp r2s2"]
    assert hsdp["sent_bytes"] == hsdp["dp_replicate_sent_bytes"] + hsdp["dp_shard_sent_bytes"]
    assert hsdp["tp_sent_bytes"] == 0
    assert hsdp["wire_ratio"] == pytest.approx(1)
    assert draw_traffic(comparison) is not None
    assert "traffic" in {section.anchor for section in sections(comparison, {})}
    assert ("fsdp s4", "dp_shard", "all-gather") in {row[:3] for row in traffic_tables(comparison)[1].rows}


def test_counters_that_disagree_are_a_warning() -> None:
    assert [w for w in compared(1.019).warnings if w.kind == "wire"] == []
    (warning,) = [w for w in compared(1.03).warnings if w.kind == "wire"]
    assert "differ by more than 2%: ddp r4 1.030" in warning.text
    assert len(warning.cells) == 3
