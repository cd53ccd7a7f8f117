"""Legality of every strategy and option: the rule that is broken and the nearest legal layout are named."""

from __future__ import annotations

import pytest

from harness.errors import IllegalLayoutError
from harness.layout import AXES, STRATEGIES, Layout, Mesh, Strategy, check_layout, parse_layout
from harness.layout.legality import meshes
from harness.workload import PRESETS, Workload

TINY = Workload(model=PRESETS["tiny"], global_batch=64, seq_len=64)
VALUES = {
    "precision": "bf16",
    "activation_checkpointing": "selective",
    "compile": "true",
    "reshard_after_forward": "false",
    "cpu_offload": "true",
    "sequence_parallel": "true",
    "loss_parallel": "true",
    "order": "tp/dp_shard/dp_replicate",
}
EVERY = list(STRATEGIES.values())


def layout(text: str) -> Layout:
    request = parse_layout(text)
    assert request.mesh is not None
    return Layout(strategy=request.strategy, mesh=request.mesh, options=request.options)


def smallest(strategy: Strategy) -> str:
    return "".join({"dp_replicate": "r2", "dp_shard": "s2", "tp": "t2"}[axis] for axis in strategy.axes) or "r1"


def refusal(text: str, workload: Workload = TINY, world_size: int | None = None) -> IllegalLayoutError:
    with pytest.raises(IllegalLayoutError) as raised:
        check_layout(layout(text), workload, world_size)
    assert "\n" not in str(raised.value)
    return raised.value


@pytest.mark.parametrize("strategy", EVERY, ids=lambda s: s.name)
def test_takes_its_own_options_and_refuses_the_others_naming_who_takes_them(strategy: Strategy) -> None:
    assert set(VALUES) >= strategy.options
    for option, value in VALUES.items():
        text = f"{strategy.name}:{smallest(strategy)}+{option}={value}"
        if option in strategy.options:
            check_layout(layout(text), TINY)
        else:
            error = refusal(text)
            assert error.rule == "option"
            takers = str(error).split("use one of: ")[1].split(", ")
            assert takers == [s.name for s in EVERY if option in s.options]


@pytest.mark.parametrize("strategy", EVERY, ids=lambda s: s.name)
@pytest.mark.parametrize("short", ["r1", "r2", "s2", "t2", "r2s2", "r2t2", "s2t2", "r2s2t2"])
def test_uses_exactly_its_axes_and_names_the_strategy_that_fits_the_mesh(strategy: Strategy, short: str) -> None:
    used = tuple(axis for axis, size in zip(AXES, layout(f"ddp:{short}").mesh.sizes, strict=True) if size > 1)
    if used == strategy.axes:
        check_layout(layout(f"{strategy.name}:{short}"), TINY)
        return
    error = refusal(f"{strategy.name}:{short}")
    assert error.rule == "axes"
    nearest = str(error).split("the nearest legal layout is ")[1]
    check_layout(layout(nearest), TINY)


@pytest.mark.parametrize("strategy", EVERY, ids=lambda s: s.name)
def test_another_world_size_names_a_mesh_that_is_legal_there(strategy: Strategy) -> None:
    error = refusal(f"{strategy.name}:{smallest(strategy)}", world_size=16)
    assert error.rule == "world_size"
    if strategy.axes:
        nearest = layout(str(error).split("the nearest legal mesh is ")[1])
        assert nearest.mesh in meshes(strategy, 16)
    else:
        assert "exactly one rank; 16 ranks do not factor so" in str(error)


@pytest.mark.parametrize(
    ("strategy", "world_size"), [("hsdp", 7), ("hsdp_tp", 4), ("fsdp_tp", 5), ("ddp", 1), ("single", 2)]
)
def test_a_world_size_without_any_mesh(strategy: str, world_size: int) -> None:
    assert meshes(STRATEGIES[strategy], world_size) == []
    error = refusal(f"{strategy}:{smallest(STRATEGIES[strategy])}", world_size=world_size)
    assert f"{world_size} ranks do not factor so" in str(error)


def test_a_batch_that_does_not_divide_names_its_neighbours() -> None:
    error = refusal("hsdp:r2s4", Workload(model=PRESETS["tiny"], global_batch=12, seq_len=64))
    assert error.rule == "batch"
    assert str(error).endswith("the nearest legal batch is 8 or 16")
    assert str(refusal("fsdp:s8", Workload(model=PRESETS["tiny"], global_batch=3, seq_len=64))).endswith("batch is 8")


def test_tp_must_divide_the_model_and_names_the_largest_smaller_one() -> None:
    error = refusal("fsdp_tp:s2t8")
    assert error.rule == "tp_divides"
    assert "n_kv_heads=4 of model tiny; the nearest legal tp is 4" in str(error)
    odd = PRESETS["tiny"].model_copy(update={"n_kv_heads": 1})
    without = Workload(model=odd, global_batch=64, seq_len=64)
    assert "no smaller tp than this is legal" in str(refusal("tp:t2", without))


def test_sequence_parallel_must_divide_the_sequence() -> None:
    odd = Workload(model=PRESETS["tiny"], global_batch=64, seq_len=62)
    check_layout(layout("tp:t4"), odd)
    assert "seq_len=62 of model tiny; the nearest legal tp is 2" in str(refusal("tp:t4+sequence_parallel=true", odd))


def test_a_model_without_a_tp_plan_has_no_tp() -> None:
    without = TINY.model_copy(update={"tp_capable": False})
    check_layout(layout("hsdp:r2s2"), without)
    for text in ("tp:t2", "fsdp_tp:s2t2", "hsdp_tp:r2s2t2", "ddp_tp:r2t2"):
        assert refusal(text, without).rule == "tp_plan"


@pytest.mark.parametrize(
    ("text", "end"),
    [
        ("fsdp:s8+reshard_after_forward=3", "the nearest legal value is 2"),
        ("fsdp:s8+reshard_after_forward=8", "the nearest legal value is 4"),
        ("fsdp:s2+reshard_after_forward=2", "here only true and false are legal"),
        ("hsdp:r2s4+reshard_after_forward=1", "the nearest legal value is 2"),
        ("fsdp1:s8+reshard_after_forward=4", "an int needs fsdp or hsdp"),
        ("fsdp1_hybrid:r2s4+reshard_after_forward=2", "an int needs fsdp or hsdp"),
    ],
)
def test_reshard_after_forward_to_a_smaller_group_must_divide_the_shards(text: str, end: str) -> None:
    error = refusal(text)
    assert error.rule == "reshard_after_forward"
    assert str(error).endswith(end)


@pytest.mark.parametrize("strategy", EVERY, ids=lambda s: s.name)
@pytest.mark.parametrize("world_size", [1, 2, 12, 16, 30])
def test_meshes_are_every_factorisation_once(strategy: Strategy, world_size: int) -> None:
    found = meshes(strategy, world_size)
    assert len(set(found)) == len(found)
    expected = {
        Mesh(dp_replicate=r, dp_shard=s, tp=t)
        for r in range(1, world_size + 1)
        for s in range(1, world_size + 1)
        for t in [world_size // (r * s)]
        if r * s * t == world_size
        and tuple(axis for axis, size in zip(AXES, (r, s, t), strict=True) if size > 1) == strategy.axes
    }
    assert set(found) == expected
