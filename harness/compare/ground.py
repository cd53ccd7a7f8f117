"""Which records stand on the same ground: fields that must agree before two cells are ranked against each other."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from functools import lru_cache

from harness.record import Ground

# Hosts may differ, since jobs of one sweep land on different nodes: that is a warning, not a refusal.
AGREE = (
    "device",
    "device_names",
    "driver",
    "cpu",
    "cpu_count",
    "platform",
    "python",
    "torch",
    "backend",
    "nccl",
    "commit",
    "version",
    "threads_per_rank",
)

GroundKey = tuple[str | None, ...]


@lru_cache(maxsize=1024)
def ground_key(ground: Ground | None) -> GroundKey:
    """Equal for two grounds that may be ranked against each other; device names count as a set."""
    if ground is None:
        return ()
    values = {name: getattr(ground, name) for name in AGREE}
    values["device_names"] = ", ".join(sorted(set(ground.device_names))) or None
    return tuple(None if value is None else str(value) for value in values.values())


def choose_ground(grounds: Sequence[Ground | None]) -> Ground | None:
    """The ground that most rounds stand on, the first of equals."""
    counts = Counter(ground_key(g) for g in grounds)
    if not counts:
        return None
    most = max(counts, key=lambda key: counts[key])
    return next(g for g in grounds if ground_key(g) == most)


def distinct_grounds(grounds: Sequence[Ground | None]) -> tuple[Ground, ...]:
    """One ground for all that agree, in the order of their first, with every host and the highest load average."""
    alike: dict[GroundKey, list[Ground]] = {}
    for ground in grounds:
        if ground is not None:
            alike.setdefault(ground_key(ground), []).append(ground)
    return tuple(_merged(found) for found in alike.values())


def _merged(grounds: Sequence[Ground]) -> Ground:
    loads = [g.load_average for g in grounds if g.load_average is not None]
    hosts = tuple(dict.fromkeys(host for g in grounds for host in g.hosts))
    return grounds[0].model_copy(update={"hosts": hosts, "load_average": max(loads, default=None)})


def ground_differences(a: Ground | None, b: Ground | None) -> Mapping[str, tuple[str, str]]:
    """The fields in which two grounds differ, with both values."""
    left, right = ground_key(a), ground_key(b)
    if left == right:
        return {}
    if not left or not right:
        return {"ground": ("recorded" if left else "not recorded", "recorded" if right else "not recorded")}
    return {name: (str(x), str(y)) for name, x, y in zip(AGREE, left, right, strict=True) if x != y}
