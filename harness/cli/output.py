"""Where output goes: standard output, and the type of every option that names a file or folder to write."""

from __future__ import annotations

from pathlib import Path
from typing import Any, TextIO

import click

from harness.errors import UsageError

REPORT = "report"  # the part of a sweep's folder that is derived, so that it may be written anew


class Watched:
    """A stream that knows whether anything was written to it, be it only in part."""

    def __init__(self, stream: TextIO) -> None:
        self._stream, self.begun = stream, False

    def write(self, text: str) -> int:
        self.begun = self.begun or bool(text)
        return self._stream.write(text)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


class Output(click.Path):
    """A path to write to; a wrong one is refused while options are read, before any work is done."""

    def __init__(self, *, allow_dash: bool = False, folder: bool | None = False) -> None:
        """``folder``: whether it is a folder; None: either."""
        super().__init__(path_type=Path, allow_dash=allow_dash)
        self.folder = folder

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> Path:
        path = Path(str(value))
        name = param.opts[0] if param is not None else "output"
        if not (self.allow_dash and str(path) == "-"):
            check_output(path, name, folder=self.folder)
        return path


def check_output(path: Path, name: str, *, folder: bool | None = False) -> None:
    """
    Raises:
        UsageError: it is a folder instead of a file or the reverse, or lies in a sweep's folder outside of its report.
    """
    if folder is False and path.is_dir():
        raise UsageError(f"{name} {path} is a folder; name a file")
    if folder is True and path.is_file():
        raise UsageError(f"{name} {path} is a file; name a folder")
    # through links, and the link itself, which a write replaces
    for place in (path.resolve(), path.parent.resolve() / path.name):
        for parent in (place, *place.parents):
            if (parent / "sweep.json").is_file() and place.relative_to(parent).parts[:1] != (REPORT,):
                raise UsageError(
                    f"{name} {path} lies in the sweep {parent.name}, among measured data; "
                    f"choose another place, or its {REPORT} folder"
                )
