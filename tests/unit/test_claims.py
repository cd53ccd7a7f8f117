"""The numbers of docs/claims.md, made anew from the formulas."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from harness.layout.subset import described
from harness.predict.collectives import step_collectives
from harness.predict.sharding import units
from harness.predict.wire import WireTraffic, wire_traffic
from harness.traffic import Collective
from harness.workload import PRESETS, Workload
from tests.unit.factories import layout

PAGE = (Path(__file__).parents[2] / "docs" / "claims.md").read_text(encoding="utf-8")
MODEL = PRESETS["70b"]
STATE_BYTES = 16  # a parameter, its gradient and AdamW's two moments in fp32
CARD_GB = 40
ROWS = {  # layout, nodes, devices a node, sequences of 4096 tokens in a step
    "ddp:r128": (16, 8, 128),
    "fsdp:s128": (16, 8, 128),
    "hsdp:r16s8": (16, 8, 128),
    "hsdp:r32s4": (16, 8, 128),
    "hsdp:r16s8+order=dp_shard/dp_replicate/tp": (16, 8, 128),
    "fsdp_tp:s16t8": (16, 8, 128),
    "fsdp_tp:s16t8, 16 sequences": (16, 8, 16),
    "ddp:r16, 8 x 2": (8, 2, 128),
    "fsdp:s16, 4 x 4": (4, 4, 128),
    "hsdp:r2s8": (2, 8, 128),
    "hsdp:r4s8": (4, 8, 128),
    "hsdp:r8s8": (8, 8, 128),
}


def step(name: str) -> tuple[tuple[Collective, ...], WireTraffic]:
    nodes, per_node, sequences = ROWS[name]
    chosen = layout(name.split(",")[0])
    collectives = step_collectives(chosen, Workload(model=MODEL, global_batch=sequences, seq_len=4096))
    return collectives, wire_traffic(collectives, chosen, described(nodes, per_node), "nccl_ring")


def row(name: str) -> str:
    collectives, wire = step(name)
    reduces = [one for one in collectives if one.operation == "all_reduce" and one.phase == "backward"]
    sizes = sorted({one.group_size for one in reduces if one.axis == "dp_replicate"})
    count = sum(one.count for one in reduces if one.axis == "dp_replicate")
    shown = f"{count} of {sizes[0]} ranks" if sizes else "none"
    share = 100 * (wire.cross_node_share or 0)
    leaves = wire.node_sent_bytes[0] / 1e9
    return f"| `{name}` | {shown} | {wire.sent_bytes / 1e12:.1f} | {leaves:.0f} | {share:.1f} |"


def state_rows() -> Iterator[str]:
    for text in ("ddp:r128", "fsdp:s128", "hsdp:r16s8", "fsdp_tp:s16t8"):
        held = units(layout(text), MODEL).total.held
        size = STATE_BYTES * held / 1e9
        yield f"| `{text}` | {size:,.1f} | {'yes' if size < CARD_GB else 'no'} |"


@pytest.mark.parametrize("line", [row(name) for name in ROWS])
def test_traffic_of_the_page(line: str) -> None:
    assert line in PAGE.splitlines()


@pytest.mark.parametrize("line", list(state_rows()))
def test_state_of_the_page(line: str) -> None:
    assert line in PAGE.splitlines()


def test_claim_1_a_mesh_takes_a_third_off_what_leaves_a_node() -> None:
    """Flat: (n - 1) / n * 3 P a node over rings of 128; HSDP: 2 * 15 / 16 P, whatever the shards."""
    parameters = 4 * MODEL.param_count
    flat, mesh = (step(name)[1].node_sent_bytes[0] for name in ("fsdp:s128", "hsdp:r16s8"))
    assert mesh == pytest.approx(2 * 15 / 16 * parameters, rel=1e-5)
    assert flat == pytest.approx(127 / 128 * (3 * parameters - 4 * (MODEL.param_count - 80 * MODEL.block_params)))
    assert 1 - mesh / flat == pytest.approx(0.36, abs=0.005)


def test_claim_3_the_count_does_not_depend_on_the_ranks() -> None:
    counts = {
        size: sum(one.count for one in step(f"hsdp:r{size}s8")[0] if one.axis == "dp_replicate") for size in (2, 4, 8)
    }
    assert set(counts.values()) == {81}, "one a block and one for the rest of the model"


def test_claim_4_a_flat_ring_crosses_once_a_node() -> None:
    for name, per_node in (("ddp:r128", 8), ("fsdp:s128", 8), ("fsdp:s16, 4 x 4", 4), ("ddp:r16, 8 x 2", 2)):
        assert step(name)[1].cross_node_share == pytest.approx(1 / per_node, abs=1e-4)


def test_claim_2_checkpoints_of_the_article_cannot_hold_the_model() -> None:
    parameters_bf16_gb = 2 * MODEL.param_count / 1e9
    assert f"{parameters_bf16_gb:.0f} GB" in PAGE
    assert parameters_bf16_gb > 16 * 1.1
    assert f"{12 * MODEL.param_count / 1e9:.0f} GB" in PAGE
