"""Which NUMA node a device belongs to, from what listings print: one id, a list, a range or nothing."""

from __future__ import annotations

from collections.abc import Sequence

from harness.topology import cpulist
from harness.topology.plain import small_int


def resolve(printed: Sequence[str], memory_nodes: Sequence[int | None]) -> list[int | None]:
    """NUMA node of each device; None where the text names several nodes that could all be meant.

    ``memory_nodes`` are the NUMA nodes of the devices' own memory. Where these exist (GH200, GB200) the list
    holds the one node with CPUs first and memory-only nodes after it.
    """
    memories = {memory for memory in memory_nodes if memory is not None}
    parsed = [cpulist.parse(text) for text in printed]
    sets = [None if ids is None else (ids - memories or ids) for ids in parsed]
    apart = _disjoint([ids for ids in sets if ids])
    return [_one(text, ids, memory, apart) for text, ids, memory in zip(printed, sets, memory_nodes, strict=True)]


def _one(text: str, ids: frozenset[int] | None, memory: int | None, apart: bool) -> int | None:
    if not ids:
        return None
    if len(ids) == 1:
        return next(iter(ids))
    first = small_int(text.split(",")[0])
    if first is None or not (apart or memory is not None):
        return None
    return first if apart or memory not in (cpulist.parse(text) or ()) else None


def _disjoint(sets: Sequence[frozenset[int]]) -> bool:
    """Whether there are several different sets and no two of them overlap."""
    different = set(sets)
    return len(different) > 1 and sum(map(len, different)) == len(frozenset().union(*different))
