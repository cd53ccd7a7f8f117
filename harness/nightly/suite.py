"""A suite: what a nightly sweep runs, in one TOML file."""

from __future__ import annotations

import re
import tomllib
from datetime import UTC, datetime
from pathlib import Path

from pydantic import Field, ValidationError, field_validator

from harness.base import Frozen
from harness.errors import UnknownNameError, UsageError
from harness.layout import parse_layout

FOLDER = Path("slurm") / "suites"


class Suite(Frozen):
    """Options of ``meshsweep run``, by their names there; None leaves the default.

    ``slower``: a cell counts as slower only if it lost at least this share of its speed. ``alpha``: how often a night
    on which nothing changed may show any cell as changed, against each earlier sweep.
    """

    name: str
    description: str = ""
    model: str | None = None
    batch: int | None = Field(default=None, ge=1)
    seq_len: int | None = Field(default=None, ge=1)
    ranks: int | None = Field(default=None, ge=1)
    nodes: int | None = Field(default=None, ge=1)
    device: str = "auto"
    layouts: tuple[str, ...] = ()
    rounds: int = Field(default=5, ge=2)
    steps: int = Field(default=20, ge=1)
    seed: int = Field(default=0, ge=0)
    slower: float = Field(default=0.05, gt=0, lt=1)
    alpha: float = Field(default=0.025, gt=0, lt=1)
    keep_logs_days: int = Field(default=28, ge=0)
    keep_logs_count: int = Field(default=14, ge=0)

    @field_validator("name")
    @classmethod
    def _name_is_a_word(cls, name: str) -> str:
        if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_-]{0,59}", name):
            raise ValueError("use letters, digits, '_' and '-', at most 60")
        return name

    @field_validator("layouts")
    @classmethod
    def _layouts_are_layouts(cls, layouts: tuple[str, ...]) -> tuple[str, ...]:
        for text in layouts:
            try:
                parse_layout(text)
            except UsageError as error:
                raise ValueError(str(error)) from None
        return layouts

    def sweep_name(self, now: datetime | None = None) -> str:
        """Name of tonight's sweep, e.g. ``nightly-20260102-030405``."""
        return f"{self.name}-{now or datetime.now(UTC):%Y%m%d-%H%M%S}"

    def arguments(self, sweep: str, results: Path) -> list[str]:
        """The ``meshsweep run`` that the suite stands for."""
        found = ["run", "--name", sweep, "--results", str(results), "--rounds", str(self.rounds)]
        found += ["--steps", str(self.steps), "--seed", str(self.seed), "--device", self.device]
        for option in ("model", "batch", "seq_len", "ranks", "nodes"):
            value = getattr(self, option)
            if value is not None:
                found += [f"--{option.replace('_', '-')}", str(value)]
        if self.layouts:
            found += ["--layouts", ",".join(self.layouts)]
        return found


def read_suite(name: str) -> Suite:
    """A suite by path, or by name from ``slurm/suites/``.

    Raises:
        UsageError: there is none, or it is not a suite; the message names the key.
    """
    path = Path(name) if name.endswith(".toml") else FOLDER / f"{name}.toml"
    try:
        data = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        known = sorted(p.stem for p in FOLDER.glob("*.toml"))
        hint = f"; suites in {FOLDER}: {', '.join(known)}" if known else "; give the path of a .toml file"
        raise UsageError(f"cannot read suite {path}: {error.strerror or error}{hint}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise UsageError(f"suite {path} is not TOML: {error}") from error
    unknown = [key for key in data if key not in Suite.model_fields]
    if unknown:
        raise UnknownNameError(f"key in suite {path}", unknown[0], Suite.model_fields)
    try:
        return Suite(**{"name": path.stem, **data})
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"])
        raise UsageError(f"suite {path}: {where}: {first['msg']}") from None
