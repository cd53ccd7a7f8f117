"""Pieces of other programs' text made fit for one-line messages."""

from __future__ import annotations


def one_line(text: str, length: int = 48) -> str:
    """``text`` on one line, cut to ``length`` characters."""
    flat = " ".join(text[: 4 * length].split())
    return flat if len(flat) <= length else flat[: length - 1] + "…"
