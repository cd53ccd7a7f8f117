"""Any value that a stored model's schema allows, as a hypothesis strategy derived from the model itself."""

from __future__ import annotations

import string
from collections.abc import Sequence
from enum import Enum
from types import UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

from annotated_types import Ge, Gt, MinLen
from hypothesis import strategies as st
from pydantic import BaseModel

from harness.layout.layout import LayoutOptions
from harness.memory_kinds import PeakMemory
from harness.workload import PRESETS, ModelShape

_MOST = 2  # items of a tuple or dict


def any_of(model: type[BaseModel]) -> st.SearchStrategy[Any]:
    """Any instance of a model, as far as its validators ask for no more than is known here."""
    fields = {name: _any(f.annotation, f.metadata) for name, f in model.model_fields.items()}
    if model is ModelShape:
        return st.sampled_from(list(PRESETS.values()))
    if model is LayoutOptions:
        fields["order"] = st.permutations(LayoutOptions().order).map(tuple)
    if model is PeakMemory:
        return st.fixed_dictionaries(fields).map(_with_its_sum)
    return st.builds(model, **fields)


def _with_its_sum(values: dict[str, Any]) -> PeakMemory:
    kinds = {kind: abs(held) for kind, held in values["bytes_by_kind"].items()}
    return PeakMemory(**{**values, "bytes_by_kind": kinds, "peak_bytes": sum(kinds.values())})


def _any(annotation: Any, metadata: Sequence[Any] = ()) -> st.SearchStrategy[Any]:
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        return _any(arguments[0], arguments[1:])
    if origin is Literal:
        return st.sampled_from(arguments)
    if origin in (Union, UnionType):
        return st.one_of(*(_any(one, metadata) for one in arguments))
    if origin is tuple:
        return _tuples(arguments, metadata)
    if origin is dict:
        return st.dictionaries(_any(arguments[0]), _any(arguments[1]), max_size=_MOST)
    if annotation is type(None):
        return st.none()
    if issubclass(annotation, Enum):
        return st.sampled_from(annotation)
    if issubclass(annotation, tuple):  # a NamedTuple
        return st.builds(annotation, **{name: _any(hint) for name, hint in get_type_hints(annotation).items()})
    if issubclass(annotation, BaseModel):
        return st.deferred(lambda: any_of(annotation))
    return _plain(annotation, metadata)


def _tuples(arguments: Sequence[Any], metadata: Sequence[Any]) -> st.SearchStrategy[Any]:
    if len(arguments) == 2 and arguments[1] is Ellipsis:
        least = max((one.min_length for one in metadata if isinstance(one, MinLen)), default=0)
        return st.lists(_any(arguments[0]), min_size=least, max_size=max(least, _MOST)).map(tuple)
    return st.tuples(*map(_any, arguments))


def _plain(kind: type, metadata: Sequence[Any]) -> st.SearchStrategy[Any]:
    least = max((float(str(one.ge)) for one in metadata if isinstance(one, Ge)), default=None)
    above = any(isinstance(one, Gt) for one in metadata)
    if kind is bool:
        return st.booleans()
    if kind is int:
        return st.integers(-(2**63) if least is None else int(least), 2**63 - 1)  # the store refuses others
    if kind is float:
        least = 0.0 if above else least
        return st.floats(least, allow_nan=False, allow_infinity=False, exclude_min=above)
    if kind is str:
        return st.text(max_size=8) | st.text(string.ascii_letters, max_size=8)
    raise TypeError(f"no strategy for {kind}")
