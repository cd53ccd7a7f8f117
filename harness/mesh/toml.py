"""The contract as a TOML file: written so that a diff shows one line a device."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from harness.errors import UsageError
from harness.mesh.contract import MeshContract

_HEADER = """\
# The mesh that every rank of a job must find. `meshsweep mesh show` draws it, `meshsweep mesh check` compares it with
# this machine; jobs check it on every rank at start-up. Facts that are left out are not checked.
"""


def contract_toml(contract: MeshContract) -> str:
    """The file's text; :func:`parse_contract` gives the same contract back."""
    lines = [_HEADER, f"schema = {contract.schema_version}", f"name = {_text(contract.name)}"]
    lines.append("# axes outermost first; the last one runs fastest over the devices below")
    lines.append(f"order = [{', '.join(map(_text, contract.order))}]")
    for axis, one in contract.axes.items():
        lines += ["", f"[axes.{axis}]", *(f"{k} = {_value(v)}" for k, v in _known(one).items())]
    for host in contract.hosts:
        lines += ["", "[[hosts]]", f"host = {_text(host.host)}", "devices = ["]
        for device in host.devices:
            facts = ", ".join(f"{k} = {_value(v)}" for k, v in _known(device).items())
            lines.append(f"  {{ {facts} }},")
        lines.append("]")
    return "\n".join(lines) + "\n"


def parse_contract(text: str, source: str = "contract") -> MeshContract:
    """Read a contract's text; ``source`` names it in errors.

    Raises:
        UsageError: not TOML, or no contract.
    """
    try:
        return MeshContract.model_validate(tomllib.loads(text))
    except tomllib.TOMLDecodeError as error:
        raise UsageError(f"{source} is not TOML ({error}); write a new one with 'meshsweep mesh init'") from None
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(map(str, first["loc"])) or "the mesh"
        cause = first["msg"].removeprefix("Value error, ")
        raise UsageError(
            f"{source}: {place}: {cause}; correct it, or write a new one with 'meshsweep mesh init'"
        ) from None


def read_contract(path: Path) -> MeshContract:
    """Read a contract's file.

    Raises:
        UsageError: unreadable, not TOML, or no contract.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        cause = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise UsageError(f"cannot read {path}: {cause}; 'meshsweep mesh init --out {path}' writes one") from None
    return parse_contract(text, str(path))


def _known(model: Any) -> dict[str, Any]:
    return {key: value for key, value in model.model_dump(mode="json").items() if value is not None}


def _value(value: Any) -> str:
    return _text(value) if isinstance(value, str) else str(value)


def _text(value: str) -> str:
    # JSON's escapes are TOML's, but for the one control character that JSON lets stand
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
