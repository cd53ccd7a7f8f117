"""Pieces of other programs' text made fit for one-line messages."""

from __future__ import annotations

import re


def one_line(text: str, length: int = 48) -> str:
    """``text`` on one line, cut to ``length`` characters."""
    flat = " ".join(text[: 4 * length].split())
    return flat if len(flat) <= length else flat[: length - 1] + "…"


def small_int(text: str) -> int | None:
    """The value of up to nine ASCII digits; None for anything else, such as "N/A" or a long number."""
    return int(text) if re.fullmatch(r"[0-9]{1,9}", text) else None
