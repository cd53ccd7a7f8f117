"""The one base class of every value that is stored or sent: frozen, validated, no unknown fields."""

from __future__ import annotations

import hashlib
import json
from typing import Any

from pydantic import BaseModel, ConfigDict


class Frozen(BaseModel):
    """A frozen pydantic model; unknown fields and NaN/inf are refused."""

    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        allow_inf_nan=False,
        ser_json_inf_nan="constants",
        defer_build=True,  # at first use: building all models is a third of a command's start, and it uses few
    )


def digest(value: Any, length: int = 12) -> str:
    """Hex digest of the canonical JSON of ``value`` (sorted keys, no blanks), ``length`` digits."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=True)
    return hashlib.sha256(text.encode()).hexdigest()[:length]
