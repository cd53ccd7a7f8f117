"""A layout = strategy + mesh + options, and its text form ``hsdp:r2s4+precision=bf16``."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import StrictBool, StrictInt, ValidationError, field_validator

from harness.base import Frozen
from harness.errors import UnknownNameError, UsageError
from harness.layout.mesh import AXES, Mesh, parse_mesh
from harness.layout.strategies import get_strategy


class LayoutOptions(Frozen):
    """Options of a layout; which of them a strategy takes stands in the registry."""

    reshard_after_forward: StrictBool | StrictInt = True
    precision: Literal["fp32", "bf16"] = "fp32"
    activation_checkpointing: Literal["none", "selective", "full"] = "none"
    cpu_offload: StrictBool = False
    sequence_parallel: StrictBool = False
    loss_parallel: StrictBool = False
    compile: StrictBool = False
    order: tuple[str, ...] = AXES  # axes outermost first; the last one runs fastest over devices

    @field_validator("order")
    @classmethod
    def _order_names_each_axis(cls, order: tuple[str, ...]) -> tuple[str, ...]:
        if sorted(order) != sorted(AXES):
            raise ValueError(f"must name each of {'/'.join(AXES)} once, outermost first")
        return order

    def changed(self) -> dict[str, Any]:
        """The options that differ from their default, by name."""
        own, default = self.__dict__, _DEFAULT.__dict__
        return {
            k: v for k, v in own.items() if v is not default[k] and (v != default[k] or type(v) is not type(default[k]))
        }


_DEFAULT = LayoutOptions()


class Layout(Frozen):
    """One way to lay training out over ranks."""

    strategy: str
    mesh: Mesh
    options: LayoutOptions = LayoutOptions()

    @property
    def label(self) -> str:
        """Short name in tables, e.g. ``hsdp r2s2`` or ``fsdp s4 +precision=bf16``."""
        return " ".join([self.strategy, self.mesh.short, *(f"+{o}" for o in self._option_texts())])

    @property
    def text(self) -> str:
        """The form that ``parse_layout`` reads."""
        return "+".join([f"{self.strategy}:{self.mesh.short}", *self._option_texts()])

    def _option_texts(self) -> list[str]:
        return [f"{name}={option_text(value)}" for name, value in self.options.changed().items()]


class LayoutRequest(Frozen):
    """What a user asked for: a strategy, perhaps a mesh (else every legal one), and options."""

    strategy: str
    mesh: Mesh | None = None
    options: LayoutOptions = LayoutOptions()


def option_text(value: Any) -> str:
    """An option's value as it is written in a layout's text."""
    if isinstance(value, tuple):
        return "/".join(value)
    return str(value).lower() if isinstance(value, bool) else str(value)


def _option_value(name: str, text: str) -> Any:
    if text in ("true", "false"):
        return text == "true"
    if name == "reshard_after_forward" and text.isdecimal():
        return int(text)
    if name == "order":
        return tuple(text.split("/"))
    return text


def parse_options(texts: list[str]) -> LayoutOptions:
    """Read ``name=value`` pairs.

    Raises:
        UsageError: an unknown name, a value that does not fit, or no ``=``.
    """
    values: dict[str, Any] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if name not in LayoutOptions.model_fields:
            raise UnknownNameError("layout option", name, LayoutOptions.model_fields)
        if name in values:
            raise UsageError(f"layout option {name!r} is given twice; leave one out")
        if not equals:
            raise UsageError(f"layout option {name!r} has no value; write {name}=...")
        values[name] = _option_value(name, value)
    try:
        return LayoutOptions(**values)
    except ValidationError as error:
        first = error.errors()[0]
        bad = str(first["loc"][0])
        raise UsageError(
            f"layout option {bad}={option_text(values[bad])} does not fit: {first['msg']}; "
            f"the values stand in the README's table of options"
        ) from None


def parse_layout(text: str) -> LayoutRequest:
    """Read ``strategy[:signature][+option=value...]``, e.g. ``hsdp:r2s4+precision=bf16``.

    Raises:
        UsageError: an unknown strategy or option, or a mesh that is not a signature.
    """
    head, *options = text.strip().split("+")
    name, colon, signature = head.partition(":")
    get_strategy(name)
    mesh = parse_mesh(signature) if colon else None
    return LayoutRequest(strategy=name, mesh=mesh, options=parse_options(options))
