"""Three nights of a small suite: clean, with a layout made slower, with a layout that dies."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.e2e.conftest import Command

pytestmark = [pytest.mark.distributed, pytest.mark.slow, pytest.mark.timeout(900)]

SUITE = """
model = "tests.e2e.faulty:model"
device = "cpu"
ranks = 2
batch = 4
seq_len = 16
layouts = ["ddp:r2", "fsdp:s2"]
rounds = 4
steps = 10
# this machine is shared: only a change as large as the planted one counts
slower = 0.4
"""


def test_exit_codes_tell_a_clean_night_from_a_slower_and_a_broken_one(command: Command, tmp_path: Path) -> None:
    suite = tmp_path / "small.toml"
    suite.write_text(SUITE)
    first = command.run("nightly", str(suite), "--json")
    assert first.returncode == 0, first.stderr
    assert json.loads(first.stdout)["verdicts"] == []
    slow = command.run("nightly", str(suite), "--json", FAULTS="ddp:r2=slow@0")
    assert slow.returncode == 1, slow.stderr
    (verdict,) = json.loads(slow.stdout)["verdicts"]
    assert {c["label"]: c["change"] for c in verdict["cells"]}["ddp r2"] == "slower"
    broken = command.run("nightly", str(suite), "--json", FAULTS="ddp:r2=kill@2")
    assert broken.returncode == 2, broken.stderr
    assert "BROKEN" in broken.stderr
    assert command.left() == []
