"""The text form of layouts: what is read, what is refused and how."""

from __future__ import annotations

import pytest

from harness.errors import UnknownNameError, UsageError
from harness.layout import STRATEGIES, Layout, LayoutOptions, LayoutRequest, Mesh, parse_layout


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("ddp", LayoutRequest(strategy="ddp")),
        (" hsdp:r2s4 ", LayoutRequest(strategy="hsdp", mesh=Mesh(dp_replicate=2, dp_shard=4))),
        ("fsdp+precision=bf16", LayoutRequest(strategy="fsdp", options=LayoutOptions(precision="bf16"))),
        (
            "fsdp:s8+reshard_after_forward=4+cpu_offload=true",
            LayoutRequest(
                strategy="fsdp",
                mesh=Mesh(dp_shard=8),
                options=LayoutOptions(reshard_after_forward=4, cpu_offload=True),
            ),
        ),
    ],
)
def test_reads(text: str, expected: LayoutRequest) -> None:
    assert parse_layout(text) == expected


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"precision": "bf16", "activation_checkpointing": "full"},
        {"reshard_after_forward": False},
        {"reshard_after_forward": 2, "compile": True},
        {"sequence_parallel": True, "loss_parallel": True},
    ],
)
def test_a_layouts_text_is_read_back(options: dict[str, object]) -> None:
    layout = Layout(
        strategy="hsdp_tp",
        mesh=Mesh(dp_replicate=2, dp_shard=4, tp=2),
        options=LayoutOptions.model_validate(options),
    )
    assert parse_layout(layout.text) == LayoutRequest(
        strategy=layout.strategy, mesh=layout.mesh, options=layout.options
    )


def test_an_unknown_strategy_lists_all() -> None:
    with pytest.raises(UnknownNameError) as raised:
        parse_layout("zero3:s4")
    assert all(name in str(raised.value) for name in STRATEGIES)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("fsdp+", "unknown layout option ''"),
        ("fsdp+dtype=bf16", "unknown layout option 'dtype'; choose one of: reshard_after_forward, precision"),
        ("fsdp+precision", "'precision' has no value; write precision=..."),
        ("fsdp+precision=fp8", "precision=fp8 does not fit"),
        ("fsdp+compile=maybe", "compile=maybe does not fit"),
        ("hsdp:2x4", "'2x4' is not a signature"),
        ("hsdp:", "'' is not a signature"),
    ],
)
def test_refuses_in_one_line(text: str, words: str) -> None:
    with pytest.raises(UsageError) as raised:
        parse_layout(text)
    assert words in str(raised.value)
    assert "\n" not in str(raised.value)
