"""Records with anything inside that the schema allows, made from the schema itself: a new field is in them at once."""

from __future__ import annotations

import types
from collections.abc import Mapping
from enum import EnumType
from random import Random
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

from pydantic import BaseModel, ValidationError

from harness.memory_kinds import MEMORY_KINDS, PeakMemory
from harness.record import RunRecord
from harness.spec import SweepPlan
from tests.unit.factories import make_plan

VALUES: Mapping[type, tuple[Any, ...]] = {
    str: ("", "layers.0.ffn", "a|b <c> \x1b[31m", "$x_", "é", "ddp:r4", "ddp r4", "2026-01-02T03:04:05", "node0"),
    int: (0, 1, 3, 4, 2**20, 2**40),
    float: (0.0, 1e-9, 0.01, 0.1, 0.2, 1.0, 1e6, -1.0, float("nan"), float("inf")),
    bool: (True, False),
    type(None): (None,),
}
TRIES = 20


class Refused(Exception):
    """A model's own validators took none of some tries."""


def anything(kind: Any, random: Random) -> Any:
    """A value of an annotation, as pydantic models use them.

    Raises:
        Refused: there was none that a model inside takes.
    """
    origin, inner = get_origin(kind), get_args(kind)
    if origin is Annotated:
        return anything(inner[0], random)
    if origin is Literal:
        return random.choice(inner)
    if origin in (Union, types.UnionType):
        return _one_of(inner, random)
    if origin is tuple and inner[-1:] == (Ellipsis,):
        return tuple(anything(inner[0], random) for _ in range(random.choice((0, 1, 2, 4))))
    if origin is tuple:
        return tuple(anything(one, random) for one in inner)
    if origin in (dict, Mapping):
        return {anything(inner[0], random): anything(inner[1], random) for _ in range(random.randrange(4))}
    if isinstance(kind, type) and issubclass(kind, BaseModel):
        return any_model(kind, random)
    if hasattr(kind, "_fields"):  # a NamedTuple
        return kind(*(anything(one, random) for one in get_type_hints(kind).values()))
    if kind not in VALUES and not isinstance(kind, EnumType):
        raise TypeError(f"no values of {kind}")
    return random.choice(VALUES[kind] if kind in VALUES else tuple(kind))


def _one_of(kinds: tuple[Any, ...], random: Random) -> Any:
    chosen = random.choice([one for one in kinds if one is not type(None)] if random.random() < 0.8 else kinds)
    try:
        return anything(chosen, random)
    except Refused:
        if type(None) in kinds:
            return None
        raise


def any_model(kind: type[BaseModel], random: Random, **given: Any) -> Any:
    """An instance of a model with ``given`` fields as they are.

    Raises:
        Refused: its validators took none.
    """
    for _ in range(TRIES):
        fields = {name: field for name, field in kind.model_fields.items() if name not in given}
        values = {name: anything(field.annotation, random) for name, field in fields.items()}
        if kind is PeakMemory:  # by chance its kinds would never make its peak
            kinds = {one: random.choice((0, 2**20)) for one in MEMORY_KINDS}
            values |= {"bytes_by_kind": kinds, "peak_bytes": sum(kinds.values())}
        try:
            return kind.model_validate({**values, **given})
        except ValidationError:
            continue
    raise Refused(kind.__name__)


def any_sweep(seed: int) -> tuple[SweepPlan, list[RunRecord]]:
    """A plan, and records of its runs with anything inside."""
    random = Random(seed)
    words = VALUES[str]
    pruned = [("tp:t4", random.choice(words), random.choice(words))]
    plan = make_plan(["ddp:r4", "fsdp:s4+precision=bf16", "hsdp:r2s2"], pruned=pruned)
    specs = [plan.run(layout, "verify") for layout in (plan.reference, *plan.layouts)]
    specs += [plan.run(layout, "time", repeat) for layout in plan.layouts for repeat in range(2)]
    records = []
    for spec in random.choices(specs, k=random.randrange(1, 12)):
        status = random.choice(("measured", "measured", "measured", "failed", "interrupted"))
        given = {"run_id": spec.run_id, "cell_id": spec.cell_id, "spec": spec, "schema_version": 1, "status": status}
        records.append(any_model(RunRecord, random, **given))
    return plan, records
