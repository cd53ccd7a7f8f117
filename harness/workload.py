"""The fixed work that every layout of a comparison does: a model's shape, a batch, a sequence length."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import FunctionType
from typing import Any

from pydantic import Field, model_validator

from harness.base import Frozen
from harness.errors import UnknownNameError, UsageError


class ModelShape(Frozen):
    """Shape of a Llama-style decoder (RMSNorm, RoPE, grouped-query attention, SwiGLU)."""

    name: str
    dim: int = Field(ge=1)
    n_layers: int = Field(ge=1)
    n_heads: int = Field(ge=1)
    n_kv_heads: int = Field(ge=1)
    ffn_dim: int = Field(ge=1)
    vocab_size: int = Field(ge=2)
    tied_head: bool = False
    rope_theta: float = 10_000.0
    norm_eps: float = 1e-5

    @model_validator(mode="after")
    def _heads_divide(self) -> ModelShape:
        if self.dim % self.n_heads or self.n_heads % self.n_kv_heads:
            raise ValueError(
                f"dim={self.dim} must divide by n_heads={self.n_heads}, and that by n_kv_heads={self.n_kv_heads}"
            )
        return self

    @property
    def head_dim(self) -> int:
        return self.dim // self.n_heads

    @property
    def block_params(self) -> int:
        """Parameters of one block: q and o, k and v, three ffn matrices, two norms."""
        attention = 2 * self.dim * self.dim + 2 * self.dim * self.n_kv_heads * self.head_dim
        return attention + 3 * self.dim * self.ffn_dim + 2 * self.dim

    @property
    def param_count(self) -> int:
        """All parameters; a tied head counts once."""
        matrices = 1 if self.tied_head else 2
        return self.n_layers * self.block_params + matrices * self.vocab_size * self.dim + self.dim

    def flops_per_token(self, seq_len: int) -> int:
        """Training FLOPs a token: 6 N + 12 L d s, N without the embedding table.

        Source: Chowdhery et al. 2022 (PaLM), appendix B; the counting of N as in torchtitan.
        """
        embedding = 0 if self.tied_head else self.vocab_size * self.dim
        return 6 * (self.param_count - embedding) + 12 * self.n_layers * self.dim * seq_len


def _shape(name: str, dim: int, layers: int, heads: int, kv: int, ffn: int, vocab: int, **more: Any) -> ModelShape:
    return ModelShape(
        name=name,
        dim=dim,
        n_layers=layers,
        n_heads=heads,
        n_kv_heads=kv,
        ffn_dim=ffn,
        vocab_size=vocab,
        **more,
    )


PRESETS: Mapping[str, ModelShape] = {
    shape.name: shape
    for shape in (
        _shape("tiny", 64, 2, 8, 4, 192, 512),
        _shape("small", 256, 4, 8, 4, 768, 2048),
        # GPT-2 small's width and depth, as a Llama-style block with the same parameter count
        _shape("125m", 768, 12, 12, 12, 2048, 50304, tied_head=True),
        # Llama 3.2 1B and Llama 3.1 8B, 70B, 405B: the published config.json of each
        _shape("1b", 2048, 16, 32, 8, 8192, 128256, tied_head=True, rope_theta=500_000.0),
        _shape("8b", 4096, 32, 32, 8, 14336, 128256, rope_theta=500_000.0),
        _shape("70b", 8192, 80, 64, 8, 28672, 128256, rope_theta=500_000.0),
        _shape("405b", 16384, 126, 128, 8, 53248, 128256, rope_theta=500_000.0),
    )
}


TP_WORDS = ("embedding", "norm", "gather", "colwise", "rowwise", "head")


@dataclass(frozen=True)
class ModelDefinition:
    """What a user's ``package.module:function`` returns.

    Attributes:
        shape: sizes for planning and accounting.
        build: makes the module, which maps tokens (batch, seq) int64 to logits (batch, seq, vocab_size).
        block_pattern: glob of the module names that are sharded and checkpointed one by one.
        tp_plan: glob of module names -> "embedding", "norm", "gather" (a module whose first input its colwise
            children share), "colwise", "rowwise" or "head"; without it every layout with tp > 1 is pruned.
        init: fills one full parameter in place from (name, tensor, torch.Generator); lets huge models start
            without a whole copy on each rank. Without it ``build`` runs whole on each rank's CPU, seeded.

    Every tensor of the module must be a parameter or a buffer: it is first built on the meta device.
    """

    shape: ModelShape
    build: Callable[[], Any]
    block_pattern: str = "layers.*"
    tp_plan: Mapping[str, str] = field(default_factory=dict)
    init: Callable[[str, Any, Any], None] | None = None


def load_definition(path: str) -> ModelDefinition:
    """Import ``package.module:function`` and call it.

    Raises:
        UsageError: the path is malformed, the import fails, or the function returns something else.
    """
    module_name, _, function_name = path.partition(":")
    if not module_name or not function_name:
        raise UsageError(f"model {path!r} is neither a preset ({', '.join(PRESETS)}) nor 'package.module:function'")
    try:
        module = importlib.import_module(module_name)
    except (Exception, SystemExit) as error:
        raise UsageError(
            f"cannot import {module_name!r} for --model {path}: {_said(error)}; "
            "is it on PYTHONPATH or in the current folder?"
        ) from error
    function = getattr(module, function_name, None)
    if not callable(function):
        names = sorted(
            n for n, v in vars(module).items() if isinstance(v, FunctionType) and v.__module__ == module_name
        )
        raise UnknownNameError(f"function in module {module_name!r}", function_name, names or ("(none)",))
    try:
        definition = function()
    except (Exception, SystemExit) as error:
        raise UsageError(f"{path}() raised {_said(error)}; it must return a ModelDefinition") from error
    if not isinstance(definition, ModelDefinition):
        kind = type(definition).__name__
        raise UsageError(f"{path}() returned {kind}; it must return a harness.workload.ModelDefinition")
    for pattern, word in definition.tp_plan.items():
        if word not in TP_WORDS:
            raise UnknownNameError(f"word for {pattern!r} in the tp_plan of {path}", word, TP_WORDS)
    return definition


def _said(error: BaseException) -> str:
    """What a user's code raised, on one line; ``sys.exit`` is no reason to end without a word."""
    return f"{type(error).__name__}: {' '.join(str(error).split())}"


class Workload(Frozen):
    """Model and batch. ``model_path`` is None for a preset, else the user's ``package.module:function``."""

    model: ModelShape
    model_path: str | None = None
    tp_capable: bool = True
    global_batch: int = Field(ge=1)
    seq_len: int = Field(ge=1)

    @property
    def tokens_per_step(self) -> int:
        return self.global_batch * self.seq_len


def make_workload(model: str, global_batch: int, seq_len: int) -> Workload:
    """A workload from a preset's name or a user's model path.

    Raises:
        UsageError: neither a preset nor a usable path.
    """
    if model in PRESETS:
        return Workload(model=PRESETS[model], global_batch=global_batch, seq_len=seq_len)
    if ":" not in model:
        raise UnknownNameError("model", model, (*PRESETS, "package.module:function"))
    definition = load_definition(model)
    return Workload(
        model=definition.shape,
        model_path=model,
        tp_capable=bool(definition.tp_plan),
        global_batch=global_batch,
        seq_len=seq_len,
    )
