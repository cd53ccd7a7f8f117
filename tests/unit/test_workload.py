"""Model shapes against published parameter counts, and what a user's model path may be."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from pydantic import ValidationError

from harness.errors import UnknownNameError, UsageError
from harness.workload import PRESETS, ModelShape, load_definition, make_workload

# Parameter counts as the models' publishers state them (safetensors index of each release).
PUBLISHED = {"1b": 1_235_814_400, "8b": 8_030_261_248, "70b": 70_553_706_496, "405b": 405_853_388_800}


@pytest.mark.parametrize(("name", "count"), PUBLISHED.items())
def test_public_shapes_have_their_published_parameter_count(name: str, count: int) -> None:
    assert PRESETS[name].param_count == count


def test_flops_per_token_counts_six_per_parameter_plus_attention() -> None:
    shape = ModelShape(name="x", dim=8, n_layers=1, n_heads=2, n_kv_heads=1, ffn_dim=16, vocab_size=10)
    # q, o: 2*8*8; k, v: 2*8*4; ffn: 3*8*16; norms: 3*8; head: 80 (the embedding table does no matrix work)
    parameters = 128 + 64 + 384 + 24 + 80
    assert shape.flops_per_token(seq_len=5) == 6 * parameters + 12 * 1 * 8 * 5


def test_a_tied_head_counts_once() -> None:
    tied, untied = (
        ModelShape(name="x", dim=8, n_layers=1, n_heads=2, n_kv_heads=1, ffn_dim=16, vocab_size=10, tied_head=tied)
        for tied in (True, False)
    )
    assert untied.param_count - tied.param_count == 80


def test_heads_must_divide() -> None:
    with pytest.raises(ValidationError, match="must divide by n_heads=3"):
        ModelShape(name="x", dim=8, n_layers=1, n_heads=3, n_kv_heads=1, ffn_dim=16, vocab_size=10)


def test_an_unknown_model_lists_the_presets() -> None:
    with pytest.raises(UnknownNameError, match=r"unknown model '7b'; choose one of: tiny, small, 125m, 1b"):
        make_workload("7b", 8, 64)


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    (tmp_path / "users_model.py").write_text(
        "from harness.workload import ModelDefinition, PRESETS\n"
        "def good(): return ModelDefinition(shape=PRESETS['tiny'], build=lambda: None)\n"
        "def wrong(): return 3\n"
        "def bad_word():\n"
        "    return ModelDefinition(shape=PRESETS['tiny'], build=lambda: None, tp_plan={'layers.*.o': 'rowise'})\n"
        "def broken(): raise KeyError('dim')\n"
        "def leaves(): raise SystemExit('no\\n  luck')\n"
        "number = 7\n"
    )
    (tmp_path / "users_broken.py").write_text("import nothing_of_that_name\n")
    (tmp_path / "users_exit.py").write_text("import sys; sys.exit(0)\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    yield "users_model"
    sys.modules.pop("users_model", None)


def test_a_users_model_without_tp_plan_cannot_do_tp(module: str) -> None:
    workload = make_workload(f"{module}:good", 4, 16)
    assert workload.model == PRESETS["tiny"]
    assert workload.model_path == "users_model:good"
    assert not workload.tp_capable


@pytest.mark.parametrize(
    ("path", "message"),
    [
        (
            "users_model:absent",
            r"unknown function in module .users_model. .absent.; choose one of: bad_word, broken, good, leaves, wrong",
        ),
        (
            "users_model:bad_word",
            r"unknown word for 'layers.\*.o' in the tp_plan of users_model:bad_word 'rowise'; choose",
        ),
        ("users_model:number", r"unknown function in module 'users_model' 'number'"),
        ("users_model:wrong", "returned int; it must return a harness.workload.ModelDefinition"),
        ("users_model:broken", "raised KeyError: 'dim'"),
        ("users_model:leaves", "raised SystemExit: no luck; it must"),
        ("users_exit:f", "cannot import 'users_exit' for --model users_exit:f: SystemExit: 0; is it"),
        ("users_broken:f", "cannot import 'users_broken'.*nothing_of_that_name"),
        ("no_such_module_here:f", "cannot import 'no_such_module_here'"),
        (":f", "neither a preset"),
        ("users_model:", "neither a preset"),
    ],
)
def test_a_model_path_that_cannot_be_used_says_why(module: str, path: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        load_definition(path)
