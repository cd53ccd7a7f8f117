"""Site profiles: what a cluster wants to be told, in one TOML file."""

from __future__ import annotations

import difflib
import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from pydantic import Field, ValidationError, ValidationInfo, field_validator

import harness
from harness.base import Frozen
from harness.errors import UsageError

FOLDER = Path("slurm") / "profiles"
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")
_DIRECTIVE = re.compile(r"[a-z][a-z0-9-]*\Z")
# What meshsweep itself decides for every job.
_OWN_DIRECTIVES = frozenset(
    {"array", "chdir", "error", "export", "job-name", "nodes", "ntasks", "ntasks-per-node", "output", "open-mode"}
    | {"parsable", "requeue", "no-requeue", "wait", "wrap", "test-only"}
)

Launcher = Literal["agent", "torchrun"]


class Container(Frozen):
    """The container that every node's agent runs in. ``mounts``: SOURCE or SOURCE:TARGET each."""

    runtime: Literal["apptainer", "pyxis"]
    image: str = Field(min_length=1)
    mounts: tuple[str, ...] = ()


class Profile(Frozen):
    """One site. None and empty: the cluster's own default."""

    name: str = "unnamed"
    partition: str | None = None
    account: str | None = None
    qos: str | None = None
    constraint: str | None = None
    exclusive: bool = False
    requeue: bool = False
    time_min: int | None = Field(default=None, ge=1)  # limit of each job, minutes
    gpus_per_node: int | None = Field(default=None, ge=1)
    gpus: int | None = Field(default=None, ge=1)  # of all nodes of a job together, where nodes differ
    gpu_type: str | None = None
    cpus_per_node: int | None = Field(default=None, ge=1)
    memory: str | None = None  # of a node, as sbatch --mem takes it
    comment: str | None = None
    modules: tuple[str, ...] = ()
    setup: tuple[str, ...] = ()
    environment: dict[str, str] = Field(default_factory=dict)
    python: str | None = None
    container: Container | None = None
    srun: tuple[str, ...] = ()
    directives: dict[str, str | int | bool] = Field(default_factory=dict)

    @field_validator("gpus")
    @classmethod
    def _counted_once(cls, value: int | None, found: ValidationInfo) -> int | None:
        if value is not None and found.data.get("gpus_per_node") is not None:
            raise ValueError("gpus_per_node says how many already; leave one of the two out")
        return value

    @field_validator("environment")
    @classmethod
    def _names_variables(cls, value: dict[str, str]) -> dict[str, str]:
        wrong = [name for name in value if not _VARIABLE.match(name)]
        if wrong:
            raise ValueError(f"{wrong[0]!r} is no name of a variable; use letters, digits and '_'")
        return value

    @field_validator("directives")
    @classmethod
    def _names_directives(cls, value: dict[str, str | int | bool]) -> dict[str, str | int | bool]:
        for name in value:
            if not _DIRECTIVE.match(name):
                raise ValueError(f"{name!r} is no option of sbatch; write its long name without dashes in front")
            if name in _OWN_DIRECTIVES:
                raise ValueError(f"{name!r} is decided by meshsweep for each job; take it out")
        return value


class SlurmOptions(Frozen):
    """How a sweep uses Slurm. ``pack``: layouts timed side by side in one job (None: all of them)."""

    profile: Profile
    nodes: int = Field(ge=1)
    pack: int | None = Field(default=None, ge=1)
    max_jobs: int | None = Field(default=None, ge=1)
    depend: str | None = None
    exclude: str | None = None
    nodelist: str | None = None
    launcher: Launcher = "agent"


def read_profile(name: str) -> Profile:
    """The profile of a path, or of a name in ``slurm/profiles`` here or beside the package.

    Raises:
        UsageError: there is none, it is no TOML, or a key or value in it is not valid.
    """
    path = _find(name)
    try:
        data = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise UsageError(f"cannot read profile {path}: {error.strerror or error}; give a readable file") from error
    except ValueError as error:
        raise UsageError(f"profile {path} is not TOML: {error}; see {FOLDER}/template.toml") from None
    return parse_profile({"name": path.stem, **data}, str(path))


def parse_profile(data: Mapping[str, Any], where: str) -> Profile:
    """A profile from its keys; ``where`` names it in messages.

    Raises:
        UsageError: an unknown key (valid ones are listed) or a wrong value.
    """
    _check_keys(data, Profile, where, "")
    if isinstance(data.get("container"), Mapping):
        _check_keys(data["container"], Container, where, "container.")
    nul = next((key for key, value in data.items() if "\0" in str(value)), None)
    if nul is not None:
        raise UsageError(f"profile {where}: {nul} holds a NUL character, which no command can be given; take it out")
    try:
        return Profile.model_validate(data)
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(str(part) for part in first["loc"])
        cause = first["msg"].removeprefix("Value error, ")
        raise UsageError(f"profile {where}: {place}: {cause}; see {FOLDER}/template.toml") from None


def _check_keys(data: Mapping[str, Any], model: type[Frozen], where: str, prefix: str) -> None:
    valid = list(model.model_fields)
    for key in data:
        if key not in valid:
            close = difflib.get_close_matches(key, valid, 1)
            hint = f" (did you mean {close[0]!r}?)" if close else ""
            raise UsageError(f"profile {where}: unknown key {prefix + key!r}{hint}; valid keys: {', '.join(valid)}")


def _find(name: str) -> Path:
    given = Path(name)
    if given.suffix == ".toml" or len(given.parts) > 1:
        if not given.is_file():
            raise UsageError(f"no profile {name}; give a TOML file, or a name in {FOLDER}")
        return given
    folders = (FOLDER, Path(harness.__file__).parents[1] / FOLDER)
    for folder in folders:
        if (folder / f"{name}.toml").is_file():
            return folder / f"{name}.toml"
    known = sorted({path.stem for folder in folders for path in folder.glob("*.toml")})
    raise UsageError(f"unknown profile {name!r}; choose one of: {', '.join(known) or 'none here'}, or give a TOML file")
