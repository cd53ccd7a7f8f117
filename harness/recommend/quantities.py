"""Sizes, times and shares as a user writes them: ``72GiB``, ``5min``, ``10%``."""

from __future__ import annotations

import re
from collections.abc import Mapping
from math import isfinite

from harness.errors import UsageError

SIZES: Mapping[str, float] = {
    "B": 1,
    "KiB": 2**10,
    "MiB": 2**20,
    "GiB": 2**30,
    "TiB": 2**40,
    "KB": 1e3,
    "MB": 1e6,
    "GB": 1e9,
    "TB": 1e12,
}
TIMES: Mapping[str, float] = {"ms": 1e-3, "s": 1.0, "min": 60.0, "h": 3600.0}
_QUANTITY = re.compile(r"\s*(\d+(?:\.\d*)?|\.\d+)\s*([A-Za-z%]*)\s*")


def parse_size(text: str) -> float:
    """Bytes.

    Raises:
        UsageError: not a positive number with one of the units.
    """
    return _parse("size", text, SIZES, "72GiB")


def parse_time(text: str) -> float:
    """Seconds.

    Raises:
        UsageError: not a positive number with one of the units.
    """
    return _parse("time", text, TIMES, "5min")


def parse_share(text: str) -> float:
    """A fraction from ``10%`` or ``0.1``.

    Raises:
        UsageError: neither, or not between 0 and 1.
    """
    match = _QUANTITY.fullmatch(text)
    if match and match.group(2) in ("", "%"):
        value = float(match.group(1)) / (100 if match.group(2) else 1)
        if value < 1:
            return value
    raise UsageError(f"share {text!r} is none; write a percentage below 100 such as 10%")


def _parse(kind: str, text: str, units: Mapping[str, float], example: str) -> float:
    match = _QUANTITY.fullmatch(text)
    known = {name.lower(): factor for name, factor in units.items()}
    if match and match.group(2).lower() in known:
        value = float(match.group(1)) * known[match.group(2).lower()]
        if value > 0 and isfinite(value):
            return value
    raise UsageError(f"{kind} {text!r} is none; write a number with one of {', '.join(units)}, such as {example}")
