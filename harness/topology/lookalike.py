"""Tools of other vendors that print nearly the same tables, named so that they are refused, not misread."""

from __future__ import annotations

import re

from harness.errors import TopologyError

_TOOLS: tuple[tuple[str, re.Pattern[str]], ...] = (
    ("MetaX mx-smi", re.compile(r"\bmx-?smi\b|MetaX|\bMX\s+=\s", re.I)),
    ("Ascend npu-smi", re.compile(r"\bnpu-smi\b|\bHCCS\b|\bNPU ?[0-9]+\b|Ascend")),
    ("Hygon hy-smi", re.compile(r"\bhy-smi\b|\b[DH]CU ?\[?[0-9]+|Hygon")),
    ("Moore Threads mthreads-gmi", re.compile(r"\bmthreads\b|\bMTLink\b|Moore Threads", re.I)),
    ("Iluvatar ixsmi", re.compile(r"\bixsmi\b|\bIX-ML\b|Iluvatar", re.I)),
    ("Cambricon cnmon", re.compile(r"\bcnmon\b|\bMLU-?Link\b|\bMLU ?[0-9]+\b|Cambricon", re.I)),
    ("Enflame efsmi", re.compile(r"\befsmi\b|\bGCU ?[0-9]+\b|Enflame", re.I)),
    ("Biren brsmi", re.compile(r"\bbrsmi\b|Biren", re.I)),
    ("T-Head ppu-smi", re.compile(r"\bppu-?smi\b|\bICN-?Link\b|\bPPU ?[0-9]+\b", re.I)),
    ("xpu-smi", re.compile(r"\bxpu-?smi\b|\bXPU ?[0-9]+\b|\bXe ?Link\b|Kunlun", re.I)),
    ("Gaudi hl-smi", re.compile(r"\bhl-smi\b|\bHL-[0-9]{3}\b|Habana")),
    ("neuron-ls", re.compile(r"\bneuron-(?:ls|top)\b|NEURON\s+DEVICE|Neuron Device", re.I)),
)


def vendor(text: str) -> str | None:
    """The other vendor's tool that ``text`` comes from, if it names itself."""
    return next((name for name, pattern in _TOOLS if pattern.search(text)), None)


def refuse(text: str) -> None:
    """Raise if ``text`` is another vendor's listing."""
    name = vendor(text)
    if name is not None:
        raise TopologyError(
            f"this is the listing of {name}, not of nvidia-smi or rocm-smi, and its link words mean other "
            "things; only NVIDIA and AMD listings are read"
        )
