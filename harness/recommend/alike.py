"""Which sweeps can be chosen from together: the same work on the same kind of device; other ground is only named."""

from __future__ import annotations

from collections.abc import Sequence

from harness.base import Frozen
from harness.compare.collect import collect
from harness.compare.ground import AGREE, ground_key
from harness.errors import UsageError
from harness.recommend.field import Measured
from harness.recommend.objective import Objective
from harness.record import Ground

_DEVICE = ("device", "device_names")


class GroundDifference(Frozen):
    """A field in which sweeps differ though they are compared: (sweep, value) of each."""

    field: str
    values: tuple[tuple[str, str], ...]

    @property
    def text(self) -> str:
        """``torch (2.12.0 in a, 2.13.0 in b)``."""
        return f"{self.field} ({', '.join(f'{value} in {sweep}' for sweep, value in self.values)})"


def differences(sweeps: Sequence[Measured], objective: Objective) -> tuple[GroundDifference, ...]:
    """What differs between the sweeps without making them incomparable.

    Raises:
        UsageError: they did other work or ran on other devices, and so cannot be compared; the field is named.
    """
    grounds = [collect(one.plan, one.records).ground for one in sweeps]
    for one, ground in zip(sweeps[1:], grounds[1:], strict=True):
        _refuse(sweeps[0], grounds[0], one, ground, objective)
    fields = {name: [_value(ground, name) for ground in grounds] for name in AGREE if name not in _DEVICE}
    fields["hosts"] = _hosts(grounds)
    fields["global_batch"] = [str(one.plan.workload.global_batch) for one in sweeps]
    names = [one.name for one in sweeps]
    return tuple(
        GroundDifference(field=field, values=tuple(zip(names, values, strict=True)))
        for field, values in fields.items()
        if len(set(values)) > 1
    )


def _refuse(one: Measured, ground: Ground | None, other: Measured, other_ground: Ground | None, by: Objective) -> None:
    (work, ranks), (other_work, other_ranks) = ((m.plan.workload, m.plan.ranks) for m in (one, other))
    pairs: dict[str, tuple[object, object]] = {
        "model": (work.model.name, other_work.model.name),
        "seq_len": (work.seq_len, other_work.seq_len),
        "device": (ranks.device, other_ranks.device),
    }
    if work.model != other_work.model and work.model.name == other_work.model.name:
        pairs["model"] = (f"{work.model.name} of one shape", f"{work.model.name} of another")
    if ground is not None and other_ground is not None:
        pairs["device_names"] = (_value(ground, "device_names"), _value(other_ground, "device_names"))
        if ranks.device == "cpu":
            pairs["cpu"] = (_value(ground, "cpu"), _value(other_ground, "cpu"))
    if not by.per_rank:
        pairs["global_batch"] = (work.global_batch, other_work.global_batch)
    for field, (a, b) in pairs.items():
        if a != b:
            remedy = "give sweeps that agree in it"
            if field == "global_batch":
                remedy += ", or choose by --objective cost or per-gpu, which are of a token"
            raise UsageError(f"{one.name} and {other.name} cannot be compared: {field} is {a} and {b}; {remedy}")


def _value(ground: Ground | None, name: str) -> str:
    if ground is None:
        return "not recorded"
    return dict(zip(AGREE, ground_key(ground), strict=True))[name] or "not recorded"


def _hosts(grounds: Sequence[Ground | None]) -> list[str]:
    """Empty for all where each sweep's hosts are among those of another: a larger size needs more of them."""
    sets = [frozenset(ground.hosts if ground else ()) for ground in grounds]
    largest = max(sets, key=len)
    if all(one <= largest for one in sets):
        return [""] * len(sets)
    return [", ".join(sorted(one)) or "not recorded" for one in sets]
