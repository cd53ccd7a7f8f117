"""Values of options as click types: what cannot be used is refused before anything is done with it."""

from __future__ import annotations

from math import isnan
from pathlib import Path
from typing import Any

import click


class NumberRange(click.FloatRange):
    """A range that holds no NaN, which no comparison with a bound refuses."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """The number.

        Raises:
            click.BadParameter: it is none, or out of range.
        """
        found = super().convert(value, param, ctx)
        if isnan(found):
            self.fail(f"{value} is no number; give one: it is not in the range {self._describe_range()}.", param, ctx)
        return found


class Positive(NumberRange):
    """A rate or a time: finite, above 0, and with room so that nothing computed from it becomes 0 or infinite."""

    def __init__(self) -> None:
        super().__init__(1e-6, 1e9)


class PngPath(click.Path):
    """A file for a picture, which is a PNG."""

    def __init__(self) -> None:
        super().__init__(dir_okay=False, path_type=Path)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """The path.

        Raises:
            click.BadParameter: another kind of file, or a folder.
        """
        found = super().convert(value, param, ctx)
        if Path(str(found)).suffix.lower() != ".png":
            self.fail(f"{value}: only PNG is drawn; end the name in .png", param, ctx)
        return found


def given(ctx: click.Context) -> dict[str, str]:
    """The options that the command line names: parameter to its option, as ``files`` to ``--from``."""
    named = [
        p for p in ctx.command.params if ctx.get_parameter_source(str(p.name)) is click.core.ParameterSource.COMMANDLINE
    ]
    return {str(one.name): one.opts[0] for one in named}
