"""Phases that ranks name are phases that their progress files can hold."""

from __future__ import annotations

import re
from pathlib import Path

import harness
from harness.launch.progress import PHASES

NAMED = re.compile(r"\.at\([^()\"]*, \"(\w+)\"\)")


def test_every_phase_that_a_rank_names_has_a_place() -> None:
    sources = [path.read_text(encoding="utf-8") for path in (Path(harness.__file__).parent / "train").glob("*.py")]
    named = {phase for text in sources for phase in NAMED.findall(text)}
    assert {"build", "gate", "traffic"} <= named
    assert named <= set(PHASES)
