"""Users' models for tests."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor, nn

from harness.train.decoder import definition
from harness.workload import PRESETS, ModelDefinition, ModelShape


def tied() -> ModelDefinition:
    return definition(PRESETS["tiny"].model_copy(update={"tied_head": True}))


class Plain(nn.Module):
    """Embedding, two residual layers, a buffer, a head: built by PyTorch's own initialisation."""

    def __init__(self, vocab_size: int, dim: int) -> None:
        super().__init__()
        self.embed = nn.Embedding(vocab_size, dim)
        self.layers = nn.ModuleList(nn.Sequential(nn.LayerNorm(dim), nn.Linear(dim, dim), nn.GELU()) for _ in range(2))
        self.register_buffer("scale", torch.full((dim,), 0.5))
        self.head = nn.Linear(dim, vocab_size)

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.embed(tokens)
        for layer in self.layers:
            x = x + layer(x) * self.scale
        return self.head(x)


def plain() -> ModelDefinition:
    shape = ModelShape(name="plain", dim=32, n_layers=2, n_heads=1, n_kv_heads=1, ffn_dim=32, vocab_size=128)
    return ModelDefinition(shape=shape, build=lambda: Plain(128, 32))


def no_blocks() -> ModelDefinition:
    return replace(plain(), block_pattern="blocks.*")


def no_split() -> ModelDefinition:
    return replace(plain(), tp_plan={"layers.*.q": "colwise"})


def small_embedding() -> ModelDefinition:
    return replace(plain(), build=lambda: Plain(64, 32))
