"""What an out-of-memory message and the traceback above it tell: who holds the memory, in which phase."""

from __future__ import annotations

import re

_QUANTITY = r"([\d.]{1,20})\s+([kmgt]i)?b(?:ytes)?\b"
_UNITS = {None: 1, "ki": 2**10, "mi": 2**20, "gi": 2**30, "ti": 2**40}
# How PyTorch words each amount: the recent wording, then the one before version 2.1.
_AMOUNTS = {
    "asked": (rf"tried\s+to\s+allocate\s+{_QUANTITY}",),
    "capacity": (rf"total\s+capacity\s+of\s+{_QUANTITY}", rf"{_QUANTITY}\s+total\s+capacity"),
    "free": (rf"{_QUANTITY}\s+(?:is\s+)?free",),
    "allocated": (rf"{_QUANTITY}\s+(?:is\s+allocated\s+by|already\s+allocated)",),
    "idle": (rf"{_QUANTITY}\s+is\s+reserved\s+by\s+pytorch\s+but",),
    "reserved": (rf"{_QUANTITY}\s+reserved\s+in\s+total",),
    "own": (rf"this\s+process\s+has\s+{_QUANTITY}",),
}
# Phases of a step by the frames of a traceback, innermost claim first: a recomputed forward runs inside backward.
_PHASES = (
    ("optimizer", re.compile(r"optimizer\w*\.step\(|/torch/optim/|in clip_grad|\.clip_grad_norm")),
    ("backward", re.compile(r"\.backward\(|/torch/autograd/|run_backward|in backward\b")),
    ("forward", re.compile(r"in forward\b|in _call_impl|in _wrapped_call_impl|in training_step|\bmodel\(")),
)


def _amounts(message: str) -> dict[str, float]:
    amounts = {}
    for name, patterns in _AMOUNTS.items():
        for match in filter(None, (re.search(pattern, message) for pattern in patterns)):
            number = match[1].rstrip(".")
            if number.count(".") <= 1 and number.strip("."):
                amounts[name] = float(number) * _UNITS[match[2]]
                break
    return amounts


def memory_finding(message: str) -> str | None:
    """What the amounts in an out-of-memory message say about its cause."""
    amount = _amounts(message)
    allocated, asked = amount.get("allocated", 0.0), amount.get("asked")
    idle = amount.get("idle", amount.get("reserved", allocated) - allocated)
    if asked is not None and asked <= max(amount.get("free", -1.0), idle):
        return "fragmentation"
    if "free" in amount and "capacity" in amount and "allocated" in amount:
        used = amount["capacity"] - amount["free"]
        own = max(amount.get("own", 0.0), allocated + idle)
        if used - own > max(own, 0.1 * amount["capacity"]):
            return "memory held by another process"
    return None


def phase(frames: str) -> str | None:
    """The phase of a step that the frames of a traceback show, as ``in backward``."""
    return next((f"in {name}" for name, pattern in _PHASES if pattern.search(frames)), None)
