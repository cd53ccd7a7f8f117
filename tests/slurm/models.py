"""Models for sweeps on the virtual cluster: little arithmetic, and so many weights that links decide."""

from __future__ import annotations

from harness.train.decoder import definition
from harness.workload import ModelDefinition, ModelShape


def wide() -> ModelDefinition:
    """3 MB of weights in fp32, most of them in two feed-forward layers."""
    return definition(
        ModelShape(name="wide", dim=128, n_layers=2, n_heads=8, n_kv_heads=4, ffn_dim=768, vocab_size=256)
    )
