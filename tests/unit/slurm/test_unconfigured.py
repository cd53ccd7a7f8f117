"""A machine on which Slurm's commands find no configuration, and a controller that is silent for a while."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from harness.errors import UsageError
from harness.slurm import commands

# what squeue 22.05 says on a machine of no cluster, and on one whose configuration comes from a controller that is down
NO_SOURCE = "squeue: fatal: Could not establish a configuration source"


@pytest.fixture
def silence(monkeypatch: pytest.MonkeyPatch) -> commands.Silence:
    fresh = commands.Silence()
    monkeypatch.setattr(commands, "SILENCE", fresh)
    return fresh


def answers(monkeypatch: pytest.MonkeyPatch, code: int, errors: str) -> None:
    def run(command: Sequence[str], limit_s: float) -> tuple[int, str, str]:
        return code, "", errors

    monkeypatch.setattr(commands, "_run", run)


def test_a_machine_of_no_cluster_is_not_waited_for(monkeypatch: pytest.MonkeyPatch, silence: commands.Silence) -> None:
    answers(monkeypatch, 1, NO_SOURCE)
    with pytest.raises(UsageError, match="SLURM_CONF") as caught:
        commands.call("squeue")
    assert caught.value.exit_code == 2


def test_a_controller_that_answered_before_is(monkeypatch: pytest.MonkeyPatch, silence: commands.Silence) -> None:
    answers(monkeypatch, 0, "")
    commands.call("squeue")
    answers(monkeypatch, 1, NO_SOURCE)
    with pytest.raises(commands.ControllerSilent):
        commands.call("squeue")
