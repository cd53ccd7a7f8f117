"""Exported files in the own parsers of torchtitan, DeepSpeed, Megatron-LM and vLLM, where those are installed.

None of them is a dependency of ours, nor needs a GPU for its configuration; ``make export-tools`` installs them beside
the project and runs these tests. Accelerate's and torchrun's are tested wherever the test extra is.
"""

from __future__ import annotations

import importlib
import json
import shlex
import sys
from pathlib import Path
from types import ModuleType

import pytest

from harness.recommend.export import export
from tests.unit.test_export import EVERY, target

WORLD_SIZE = 8


def tool(module: str) -> ModuleType:
    """A tool's module; skips with what is missing where it, or what it imports, is not installed."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        pytest.skip(f"{module} is not installed here: {error}")


@pytest.mark.parametrize("text", EVERY)
def test_torchtitan_takes_the_function(text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    manager = tool("torchtitan.config.manager")
    tool("torchtitan.models.llama3.config_registry")
    parallel_dims = tool("torchtitan.distributed.parallel_dims").ParallelDims
    made = target(text)
    name = f"run_{abs(hash(text))}"
    (tmp_path / f"{name}.py").write_text(
        export("torchtitan", made).text
        + "\nfrom torchtitan.models.llama3.config_registry import llama3_debugmodel\n"
        + "\ndef my_run():\n    return layout(llama3_debugmodel())\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    config = manager.ConfigManager().parse_args(["--module", name, "--config", "my_run"])
    dims = parallel_dims.from_config(config.parallelism, WORLD_SIZE)
    assert (dims.dp_replicate, dims.dp_shard, dims.tp, dims.pp, dims.cp) == (*made.mesh.sizes, 1, 1)
    assert config.training.local_batch_size * dims.dp_replicate * dims.dp_shard == config.training.global_batch_size
    assert config.training.seq_len == 125
    assert config.parallelism.enable_sequence_parallel == (made.options.sequence_parallel or made.mesh.tp == 1)
    policy = type(config.activation_checkpoint).__qualname__.split(".")[0]
    assert (
        policy
        == {"none": "NoneType", "selective": "SelectiveAC", "full": "FullAC"}[made.options.activation_checkpointing]
    )
    assert config.compile.enable is made.options.compile
    assert config.training.enable_cpu_offload is made.options.cpu_offload


class DataParallel:
    """What DeepSpeed asks of a model-parallel unit while it reads a configuration."""

    def __init__(self, size: int) -> None:
        self.size = size

    def get_data_parallel_world_size(self) -> int:
        return self.size


@pytest.mark.parametrize("text", EVERY)
def test_deepspeed_takes_the_json(text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = tool("deepspeed.runtime.config")
    monkeypatch.setattr(found.dist, "get_rank", lambda *_: 0)  # which it asks for before it believes the unit
    made = target(text)
    path = tmp_path / "deepspeed.json"
    path.write_text(export("deepspeed", made).text)
    config = found.DeepSpeedConfig(str(path), mpu=DataParallel(made.mesh.dp))
    assert config.world_size == made.mesh.dp
    written = json.loads(path.read_text())["zero_optimization"]
    zero = config.zero_config.model_dump()
    assert config.zero_optimization_stage == written["stage"]
    assert set(written) <= config.zero_config.model_fields_set, "a key that DeepSpeed does not know says nothing to it"
    assert zero["zero_hpz_partition_size"] == written.get("zero_hpz_partition_size", 1)
    assert config.tensor_parallel_config.autotp_size == (made.mesh.tp if made.mesh.tp > 1 else 0)
    assert config.train_micro_batch_size_per_gpu * made.mesh.dp == config.train_batch_size == 16
    assert config.bfloat16_config.enabled == (made.options.precision == "bf16")


@pytest.mark.parametrize("text", EVERY)
def test_megatron_takes_the_flags(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    arguments = tool("megatron.training.arguments")
    made = target(text)
    flags = shlex.split(export("megatron", made).text, comments=True)
    model = (
        "--num-layers 2 --hidden-size 64 --num-attention-heads 8 --max-position-embeddings 125 --train-iters 1 --lr 1"
    )
    monkeypatch.setattr(sys, "argv", ["pretrain_gpt.py", *flags, *model.split(), "--tokenizer-type", "NullTokenizer"])
    monkeypatch.setenv("WORLD_SIZE", str(WORLD_SIZE))
    monkeypatch.setenv("CUDA_DEVICE_MAX_CONNECTIONS", "8" if made.sharded else "1")
    monkeypatch.setattr(arguments, "get_device_arch_version", lambda: 9)
    found = arguments.validate_args(arguments.parse_args())
    assert found.tensor_model_parallel_size == made.mesh.tp
    assert found.data_parallel_size == made.mesh.dp
    assert found.micro_batch_size * made.mesh.dp == found.global_batch_size == 16
    assert bool(found.use_megatron_fsdp) is made.sharded
    assert found.num_distributed_optimizer_instances == (made.mesh.dp_replicate if made.sharded else 1)
    if made.sharded:
        strategy = "optim_grads_params" if made.options.reshard_after_forward else "optim_grads"
        assert found.data_parallel_sharding_strategy == strategy
    assert found.sequence_parallel is made.options.sequence_parallel
    wanted = made.options.activation_checkpointing
    assert found.recompute_granularity == (None if wanted == "none" else wanted)
    assert found.bf16 is (made.options.precision == "bf16")


@pytest.mark.parametrize("text", EVERY)
def test_vllm_takes_the_command(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    platforms = tool("vllm.platforms")
    cpu = tool("vllm.platforms.cpu").CpuPlatform()
    monkeypatch.setattr(platforms, "_current_platform", cpu, raising=False)  # it looks for a GPU otherwise
    words = tool("vllm.utils.argparse_utils").FlexibleArgumentParser()
    made = target(text)
    program, verb, *rest = shlex.split(export("vllm", made).text, comments=True)
    assert (program, verb) == ("vllm", "serve")
    found = tool("vllm.entrypoints.common.cli_args").make_arg_parser(words).parse_args(rest)
    assert found.model_tag == "$MODEL"
    engine = tool("vllm.engine.arg_utils").EngineArgs.from_cli_args(found)
    assert engine.tensor_parallel_size == made.mesh.tp
    assert engine.dtype == ("bfloat16" if made.options.precision == "bf16" else "float32")
