"""A Slurm of shell scripts: what it is asked is written down, what it answers is in files."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from harness.slurm import commands

_ANSWER = """\
#!/bin/bash
name=$(basename "$0")
printf '%s\\0' "$@" >>"{folder}/$name.asked"; printf '\\n' >>"{folder}/$name.asked"
env >"{folder}/$name.env"
[ -f "{folder}/$name.do" ] && . "{folder}/$name.do"
[ -f "{folder}/$name.err" ] && cat "{folder}/$name.err" >&2
[ -f "{folder}/$name.out" ] && cat "{folder}/$name.out"
[ -f "{folder}/$name.rc" ] && exit "$(cat "{folder}/$name.rc")"
exit 0
"""
COMMANDS = ("sbatch", "srun", "squeue", "scontrol", "sacct", "scancel", "sinfo")


@dataclass
class FakeSlurm:
    """Commands on PATH. ``say`` sets what one answers until it is told otherwise."""

    folder: Path

    def say(self, command: str, out: str = "", err: str = "", rc: int = 0, do: str = "") -> None:
        for suffix, text in (("out", out), ("err", err), ("rc", str(rc)), ("do", do)):
            (self.folder / f"{command}.{suffix}").write_text(text)

    def asked(self, command: str) -> list[list[str]]:
        """The arguments of each call so far."""
        path = self.folder / f"{command}.asked"
        lines = path.read_text().split("\0\n")[:-1] if path.exists() else []
        return [line.split("\0") for line in lines]

    def environ(self, command: str) -> list[str]:
        """Names of the variables of the last call."""
        return [line.partition("=")[0] for line in (self.folder / f"{command}.env").read_text().splitlines()]


@pytest.fixture
def slurm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeSlurm]:
    folder = tmp_path / "fake-slurm"
    folder.mkdir()
    for name in COMMANDS:
        path = folder / name
        path.write_text(_ANSWER.format(folder=folder))
        path.chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    monkeypatch.setattr(commands, "SILENCE", commands.Silence())
    yield FakeSlurm(folder)
