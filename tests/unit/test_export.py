"""Exported files, read back by the tools' own parsers where they are installed."""

from __future__ import annotations

import ast
import json
import shlex
import tomllib
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from harness.cli import _run
from harness.cli.recommend import KINDS
from harness.errors import UnknownNameError, UsageError
from harness.recommend.export import EXPORTS, Target, export
from harness.store import SweepStore
from tests.unit.factories import layout, make_plan, make_records

EVERY = (
    *("ddp:r8", "fsdp:s8", "hsdp:r2s4", "tp:t8", "fsdp_tp:s4t2", "hsdp_tp:r2s2t2", "ddp_tp:r4t2", "fsdp1:s8"),
    "fsdp:s8+reshard_after_forward=false+precision=bf16",
    "fsdp:s8+reshard_after_forward=2+cpu_offload=true+activation_checkpointing=selective",
    "hsdp_tp:r2s2t2+order=tp/dp_shard/dp_replicate+sequence_parallel=true+activation_checkpointing=full+compile=true",
)


def target(text: str, **plan: Any) -> Target:
    return Target(layout(text), make_plan([text], world_size=8, global_batch=16, **plan))


def test_the_command_knows_every_kind() -> None:
    assert tuple(EXPORTS) == KINDS
    with pytest.raises(UnknownNameError, match="unknown export 'tpu'; choose one of: torchrun"):
        export("tpu", target("ddp:r8"))


@pytest.mark.parametrize("kind", EXPORTS)
@pytest.mark.parametrize("text", EVERY)
def test_every_layout_gives_a_file_or_a_reason(kind: str, text: str) -> None:
    try:
        file = export(kind, target(text))
    except UsageError as error:
        assert "export" in str(error) and "\n" not in str(error)
        assert kind == "accelerate" and text.split(":")[0] in ("tp", "ddp_tp")
        return
    assert file.text.endswith("\n") and not file.text.endswith("\n\n")
    if kind != "deepspeed":
        assert "measured by meshsweep in sweep sweep" in file.text
    for lost in file.lost if kind not in ("deepspeed", "torchrun") else ():
        assert lost in file.text


@pytest.mark.parametrize("kind", EXPORTS)
def test_a_file_from_a_toy_says_so_in_one_line(kind: str) -> None:
    """Also where a name would end the comment or the string that it stands in."""
    made = target("fsdp:s8")
    cautious = made._replace(cautions=("measured with a model of 0.1 M parameters (a\n'\"b)", "measured on CPU ranks"))
    text = export(kind, cautious).text
    (line,) = [line for line in text.splitlines() if "CAUTION" in line]
    assert "model of 0.1 M parameters (a   b); measured on CPU ranks. Measure your own model" in line
    before = export(kind, made).text
    assert "CAUTION" not in before
    if kind == "deepspeed":
        assert {k: v for k, v in json.loads(text).items() if k != "_caution"} == json.loads(before)
    else:
        assert [one for one in text.splitlines() if one != line] == before.splitlines()
        assert line.startswith("# ") or kind == "torchrun"
    if kind == "torchrun":
        assert "CAUTION" in (ast.get_docstring(ast.parse(text)) or "")


def test_the_order_of_axes_is_explained() -> None:
    text = export("torchrun", target("hsdp_tp:r2s2t2")).text
    line = "# outermost first: tp communicates most and takes neighbouring ranks, dp_replicate may span nodes"
    assert f"    {line}\n    return init_device_mesh" in text
    assert "outermost first:" not in export("torchrun", target("fsdp:s8")).text  # one axis, one order


def test_torchtitan_sections_say_the_same_in_python_and_toml() -> None:
    found = tomllib.loads(export("torchtitan-toml", target("hsdp_tp:r2s2t2+precision=bf16")).text)
    assert found["parallelism"] == {
        "data_parallel_replicate_degree": 2,
        "data_parallel_shard_degree": 2,
        "tensor_parallel_degree": 2,
        "pipeline_parallel_degree": 1,
        "context_parallel_degree": 1,
        "fsdp_reshard_after_forward": "always",
        "enable_sequence_parallel": False,
    }
    assert found["training"]["local_batch_size"] == 4 and found["training"]["global_batch_size"] == 16
    assert found["training"]["mixed_precision_param"] == "bfloat16"
    tree = ast.parse(export("torchtitan", target("hsdp_tp:r2s2t2+precision=bf16")).text)
    set_to = {
        tuple(ast.unparse(a.targets[0]).split(".")[1:]): ast.literal_eval(a.value)
        for a in ast.walk(tree)
        if isinstance(a, ast.Assign)
    }
    # a policy there, a mode by name here
    assert found.pop("activation_checkpoint") == {"mode": "none"} and set_to.pop(("activation_checkpoint",)) is None
    assert set_to == {(section, name): value for section, fields in found.items() for name, value in fields.items()}


@pytest.mark.parametrize(("mode", "policy"), [("selective", "SelectiveAC"), ("full", "FullAC")])
def test_torchtitan_gets_activation_checkpointing_as_a_policy(mode: str, policy: str) -> None:
    made = target(f"fsdp:s8+activation_checkpointing={mode}")
    text = export("torchtitan", made).text
    assert f"import {policy}\n" in text and f"config.activation_checkpoint = {policy}.Config()\n" in text
    assert tomllib.loads(export("torchtitan-toml", made).text)["activation_checkpoint"] == {"mode": mode}


@pytest.mark.parametrize(
    ("text", "zero"),
    [
        ("ddp:r8", {"stage": 0}),
        ("fsdp:s8", {"stage": 3}),
        ("fsdp:s8+reshard_after_forward=false", {"stage": 2}),
        ("hsdp:r2s4", {"stage": 3, "zero_hpz_partition_size": 4}),
        ("hsdp:r2s4+reshard_after_forward=false", {"stage": 2}),
        ("fsdp_tp:s4t2", {"stage": 3}),
        ("hsdp_tp:r2s2t2", {"stage": 3}),
    ],
)
def test_deepspeed_takes_the_nearest_stage(text: str, zero: dict[str, int]) -> None:
    made = target(text)
    file = export("deepspeed", made)
    found = json.loads(file.text)
    assert found["zero_optimization"] == zero
    assert found["train_batch_size"] == 16
    assert found["train_micro_batch_size_per_gpu"] == 16 // made.mesh.dp
    assert found.get("tensor_parallel") == ({"autotp_size": 2} if "_tp" in text else None)
    assert any("data-parallel ranks" in lost for lost in file.lost) == ("hsdp" in text)


def test_megatron_and_vllm_have_the_degrees() -> None:
    text = export("megatron", target("hsdp_tp:r2s2t2+precision=bf16")).text
    flags = shlex.split(text, comments=True)
    pairs = dict(pairwise(flags))
    assert pairs["--tensor-model-parallel-size"] == "2"
    assert pairs["--num-distributed-optimizer-instances"] == "2"
    assert pairs["--data-parallel-sharding-strategy"] == "optim_grads_params"
    assert "--bf16" in flags and "--use-megatron-fsdp" in flags
    assert "--use-megatron-fsdp" not in export("megatron", target("ddp:r8")).text
    command = shlex.split(export("vllm", target("fsdp_tp:s4t2+precision=bf16")).text, comments=True)
    assert command == ["vllm", "serve", "$MODEL", "--tensor-parallel-size", "2", "--dtype", "bfloat16"]


@pytest.mark.parametrize("text", EVERY)
def test_scripts_are_python(text: str) -> None:
    compile(export("torchrun", target(text)).text, "mesh.py", "exec")


@pytest.mark.parametrize("text", ["fsdp:s8", "hsdp:r2s4+precision=bf16", "hsdp_tp:r2s2t2", "ddp:r8"])
def test_accelerate_reads_its_file(text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("accelerate")
    from accelerate.commands.config.config_args import load_config_from_file
    from accelerate.commands.launch import _validate_launch_command, launch_command_parser
    from accelerate.parallelism_config import ParallelismConfig

    made = target(text)
    path = tmp_path / "accelerate.yaml"
    path.write_text(export("accelerate", made).text)
    config = load_config_from_file(str(path))
    assert config.num_processes == 8
    arguments = launch_command_parser().parse_args(["--config_file", str(path), "train.py"])
    arguments, _, _ = _validate_launch_command(arguments)
    assert arguments.mixed_precision == ("bf16" if "bf16" in text else "no")
    assert arguments.use_fsdp is made.sharded
    if made.sharded:
        assert int(arguments.fsdp_version) == 2
        names = ("dp_replicate_size", "dp_shard_size", "tp_size")
        sizes = {name: getattr(arguments, f"parallelism_config_{name}") for name in names}
        mesh = ParallelismConfig(**sizes, tp_handler=object())  # its own handler would need transformers
        assert (mesh.dp_replicate_size, mesh.dp_shard_size, mesh.tp_size) == made.mesh.sizes
        assert mesh.total_size == 8


def test_accelerate_says_what_it_has_not() -> None:
    with pytest.raises(UsageError, match="Accelerate has no tp: tensor parallel goes with FSDP2 there"):
        export("accelerate", target("tp:t8"))


def test_a_hostile_name_stays_in_its_comment() -> None:
    plan = make_plan(["fsdp:s8"], world_size=8, global_batch=16)
    plan = plan.model_copy(update={"name": '"""\nimport os\n"\'\\'})
    for kind in ("torchrun", "torchtitan"):
        tree = ast.parse(export(kind, Target(layout("fsdp:s8"), plan)).text)
        assert "measured by meshsweep" in (ast.get_docstring(tree) or "measured by meshsweep")
        imported = [a.name for node in tree.body if isinstance(node, ast.Import) for a in node.names]
        assert imported.count("os") == (1 if kind == "torchrun" else 0)
    for kind in ("megatron", "vllm", "accelerate", "torchtitan-toml"):
        assert "import os" not in export(kind, Target(layout("fsdp:s8"), plan)).text.splitlines()


def test_the_command_writes_the_winner_and_overwrites_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    plan = make_plan()
    store = SweepStore.create(tmp_path / "results", plan)
    for record in make_records(plan, {"ddp:r4": 0.12, "fsdp:s4": 0.1}):
        store.add(record)
    assert _run(["recommend", "--export", "deepspeed", "--export", "torchtitan-toml=a.toml", "--json"]) == 0
    captured = capsys.readouterr()
    document = json.loads(captured.out)
    assert document["choices"][0]["label"] == "fsdp s4"
    assert document["exports"] == {"deepspeed": "deepspeed.json", "torchtitan-toml": "a.toml"}
    assert captured.err.startswith("Train with fsdp s4: 10,000 tokens/s [")
    assert document["cautions"] == ["measured with a model of 0.164 M parameters (tiny)", "measured on CPU ranks"]
    assert (
        captured.err.count("\nwarning: measured with a model of 0.164 M parameters (tiny); measured on CPU ranks.") == 1
    )
    assert "CAUTION" in (tmp_path / "a.toml").read_text()
    assert json.loads((tmp_path / "deepspeed.json").read_text())["zero_optimization"] == {"stage": 3}
    assert _run(["recommend", "--export", "deepspeed"]) == 2
    assert "deepspeed.json exists; move it away" in capsys.readouterr().err
    assert _run(["recommend", "--max-memory", "1KiB", "--export", "vllm"]) == 1
    assert not (tmp_path / "vllm.sh").exists()
    assert _run(["recommend", "--max-memory", "much"]) == 2
