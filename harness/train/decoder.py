"""The reference model: a Llama-style decoder (RMSNorm, RoPE, grouped-query attention, SwiGLU)."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from harness.workload import ModelDefinition, ModelShape

TP_PLAN = {
    "embed": "embedding",
    "layers.*.attention_norm": "norm",
    "layers.*.attention": "gather",
    "layers.*.attention.q": "colwise",
    "layers.*.attention.k": "colwise",
    "layers.*.attention.v": "colwise",
    "layers.*.attention.out": "rowwise",
    "layers.*.ffn_norm": "norm",
    "layers.*.ffn": "gather",
    "layers.*.ffn.gate": "colwise",
    "layers.*.ffn.up": "colwise",
    "layers.*.ffn.down": "rowwise",
    "norm": "norm",
    "head": "head",
}


def rope_table(seq_len: int, head_dim: int, theta: float, device: torch.device) -> Tensor:
    """Rotation angles' cosines and sines, (2, seq_len, head_dim / 2) fp32. Source: Su et al. 2021 (RoFormer)."""
    frequency = theta ** (-torch.arange(0, head_dim, 2, device=device, dtype=torch.float32) / head_dim)
    angle = torch.outer(torch.arange(seq_len, device=device, dtype=torch.float32), frequency)
    return torch.stack((angle.cos(), angle.sin()))


def rotate(x: Tensor, table: Tensor) -> Tensor:
    """Rotate pairs of the last dim of x (batch, heads, seq, head_dim)."""
    first, second = x.float().chunk(2, dim=-1)
    cos, sin = table[0], table[1]
    return torch.cat((first * cos - second * sin, first * sin + second * cos), dim=-1).type_as(x)


class Attention(nn.Module):
    """Causal grouped-query attention; under tensor parallelism it holds this rank's heads only."""

    def __init__(self, shape: ModelShape) -> None:
        super().__init__()
        self.head_dim = shape.head_dim
        self.q = nn.Linear(shape.dim, shape.n_heads * shape.head_dim, bias=False)
        self.k = nn.Linear(shape.dim, shape.n_kv_heads * shape.head_dim, bias=False)
        self.v = nn.Linear(shape.dim, shape.n_kv_heads * shape.head_dim, bias=False)
        self.out = nn.Linear(shape.n_heads * shape.head_dim, shape.dim, bias=False)

    def forward(self, x: Tensor, table: Tensor) -> Tensor:
        q, k, v = (
            projection(x).unflatten(-1, (-1, self.head_dim)).transpose(1, 2) for projection in (self.q, self.k, self.v)
        )
        attended = F.scaled_dot_product_attention(
            rotate(q, table), rotate(k, table), v, is_causal=True, enable_gqa=q.size(1) != k.size(1)
        )
        return self.out(attended.transpose(1, 2).flatten(2))


class FeedForward(nn.Module):
    """SwiGLU. Source: Shazeer 2020."""

    def __init__(self, shape: ModelShape) -> None:
        super().__init__()
        self.gate = nn.Linear(shape.dim, shape.ffn_dim, bias=False)
        self.up = nn.Linear(shape.dim, shape.ffn_dim, bias=False)
        self.down = nn.Linear(shape.ffn_dim, shape.dim, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.down(F.silu(self.gate(x)) * self.up(x))


class Block(nn.Module):
    """One pre-norm decoder block."""

    def __init__(self, shape: ModelShape) -> None:
        super().__init__()
        self.attention_norm = nn.RMSNorm(shape.dim, eps=shape.norm_eps)
        self.attention = Attention(shape)
        self.ffn_norm = nn.RMSNorm(shape.dim, eps=shape.norm_eps)
        self.ffn = FeedForward(shape)

    def forward(self, x: Tensor, table: Tensor) -> Tensor:
        x = x + self.attention(self.attention_norm(x), table)
        return x + self.ffn(self.ffn_norm(x))


class Decoder(nn.Module):
    """Tokens (batch, seq) int64 -> logits (batch, seq, vocab_size)."""

    def __init__(self, shape: ModelShape) -> None:
        super().__init__()
        self.shape = shape
        self.embed = nn.Embedding(shape.vocab_size, shape.dim)
        self.layers = nn.ModuleList(Block(shape) for _ in range(shape.n_layers))
        self.norm = nn.RMSNorm(shape.dim, eps=shape.norm_eps)
        self.head = nn.Linear(shape.dim, shape.vocab_size, bias=False)
        if shape.tied_head:
            self.head.weight = self.embed.weight
        self._table: Tensor | None = None

    def forward(self, tokens: Tensor) -> Tensor:
        table = self._rope(tokens)
        x = self.embed(tokens)
        for layer in self.layers:
            x = layer(x, table)
        return self.head(self.norm(x))

    def _rope(self, tokens: Tensor) -> Tensor:
        # A plain attribute, not a buffer: no strategy shards, casts or saves it.
        if self._table is None or self._table.size(1) != tokens.size(1) or self._table.device != tokens.device:
            self._table = rope_table(tokens.size(1), self.shape.head_dim, self.shape.rope_theta, tokens.device)
        return self._table


def init_parameter(name: str, full: Tensor, shape: ModelShape, generator: torch.Generator) -> None:
    """Fill one full parameter in place: norms 1, else normal with std 0.02, residual outputs scaled by depth."""
    if name.endswith("norm.weight"):
        full.fill_(1.0)
        return
    residual = name.endswith(("attention.out.weight", "ffn.down.weight"))
    std = 0.02 / math.sqrt(2 * shape.n_layers) if residual else 0.02
    full.normal_(0.0, std, generator=generator)


def definition(shape: ModelShape) -> ModelDefinition:
    """The reference model as a definition like a user's."""
    return ModelDefinition(
        shape=shape,
        build=lambda: Decoder(shape),
        tp_plan=TP_PLAN,
        init=lambda name, full, generator: init_parameter(name, full, shape, generator),
    )
