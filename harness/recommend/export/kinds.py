"""The kinds of files, by name."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

from harness.errors import UnknownNameError
from harness.recommend.export import accelerate, deepspeed, megatron, torchrun, torchtitan, vllm
from harness.recommend.export.target import File, Target

__all__ = ["EXPORTS", "Export", "File", "Target", "export"]


class Export(NamedTuple):
    """A kind of file: its default name, who reads it, and how it is made."""

    file_name: str
    reader: str
    make: Callable[[Target], File]


EXPORTS: Mapping[str, Export] = {
    "torchrun": Export("mesh.py", "plain PyTorch: init_device_mesh and fully_shard", torchrun.as_script),
    "torchtitan": Export("torchtitan_layout.py", "torchtitan's Python configurations", torchtitan.as_python),
    "torchtitan-toml": Export("torchtitan.toml", "torchtitan before 2026", torchtitan.as_toml),
    "accelerate": Export("accelerate.yaml", "accelerate launch --config_file", accelerate.as_yaml),
    "deepspeed": Export("deepspeed.json", "DeepSpeed, the nearest ZeRO stage", deepspeed.as_json),
    "megatron": Export("megatron.flags", "Megatron-LM and NeMo", megatron.as_flags),
    "vllm": Export("vllm.sh", "vllm serve, with the training tp", vllm.as_command),
}


def export(kind: str, target: Target) -> File:
    """The file of a kind.

    Raises:
        UsageError: an unknown kind, or a layout that the tool does not have.
    """
    if kind not in EXPORTS:
        raise UnknownNameError("export", kind, EXPORTS)
    return EXPORTS[kind].make(target)
