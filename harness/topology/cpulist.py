"""CPU and NUMA lists as Linux prints them ("0-19,40-59") and as masks ("ff,00000000")."""

from __future__ import annotations

import re
from collections.abc import Iterable

_LIST = re.compile(r"[0-9]{1,7}(?:-[0-9]{1,7})?(?:,[0-9]{1,7}(?:-[0-9]{1,7})?)*\Z")
_MAX_IDS = 1 << 16


def is_list(text: str) -> bool:
    """Whether ``text`` has the form of a CPU or NUMA list."""
    return _LIST.match(text) is not None


def parse(text: str | None) -> frozenset[int] | None:
    """The ids of a list; None for what is not a list (empty, "N/A", backward or far too large ranges)."""
    if text is None or not is_list(text):
        return None
    ids: set[int] = set()
    for part in text.split(","):
        low, _, high = part.partition("-")
        first, last = int(low), int(high or low)
        if last < first or last - first + len(ids) > _MAX_IDS:
            return None
        ids.update(range(first, last + 1))
    return frozenset(ids)


def render(ids: Iterable[int]) -> str:
    """The shortest ascending list of ``ids``."""
    parts: list[str] = []
    ordered = sorted(set(ids))
    start = 0
    for position, value in enumerate(ordered):
        if position + 1 < len(ordered) and ordered[position + 1] == value + 1:
            continue
        first = ordered[start]
        parts.append(str(first) if first == value else f"{first}-{value}")
        start = position + 1
    return ",".join(parts)


def from_mask(mask: str) -> str | None:
    """The list of a hexadecimal mask in groups of 32 bits, such as ``ffff,f00000ff``; None if it is none."""
    groups = mask.strip().split(",")
    if len(groups) > 256 or not all(re.fullmatch(r"[0-9a-fA-F]{1,8}", group) for group in groups):
        return None
    bits = int("".join(group.zfill(8) for group in groups), 16)
    return render(position for position in range(bits.bit_length()) if bits >> position & 1)
