"""The command as a user runs it, in processes that can be counted afterwards."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import psutil
import pytest

from harness.record import RunRecord
from harness.store import SweepStore

ROOT = Path(__file__).parents[2]
MARK = "MESHSWEEP_TEST_MARK"
QUICK = (
    *("--device", "cpu", "--ranks", "2", "--batch", "4", "--seq-len", "16", "--rounds", "1", "--steps", "8"),
    *("--exposure-steps", "0"),
)


def instead(options: Sequence[str], *more: str) -> tuple[str, ...]:
    """Options, each with its value, and ``more`` in the place of those that it names: each may be given once."""
    kept = [pair for pair in zip(options[::2], options[1::2], strict=True) if pair[0] not in more]
    return (*(word for pair in kept for word in pair), *more)


@dataclass
class Command:
    """Runs ``meshsweep`` with a results folder of its own and a mark in the environment of all that it starts."""

    results: Path
    mark: str = field(default_factory=lambda: uuid.uuid4().hex)

    def start(self, *arguments: str, **env: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, "-m", "harness.cli", *arguments, "--results", str(self.results)],
            cwd=ROOT,
            env={**os.environ, **env, MARK: self.mark},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
            # a shell that runs the tests in the background has Ctrl-C ignored, and that is inherited
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
        )

    def run(self, *arguments: str, timeout_s: float = 400, **env: str) -> subprocess.CompletedProcess[str]:
        process = self.start(*arguments, **env)
        stdout, stderr = process.communicate(timeout=timeout_s)
        return subprocess.CompletedProcess(arguments, process.returncode, stdout, stderr)

    def records(self, name: str) -> dict[tuple[str, str], RunRecord]:
        """The last record of each run, by (layout, purpose)."""
        found = SweepStore.open(self.results / name).records()
        return {(r.spec.layout.text, r.spec.purpose): r for r in found}

    def processes(self) -> list[psutil.Process]:
        """Living processes that this command or anything it started left."""
        found = []
        for process in psutil.process_iter():
            try:
                if process.environ().get(MARK) == self.mark and process.status() != psutil.STATUS_ZOMBIE:
                    found.append(process)
            except psutil.Error:
                continue
        return found

    def left(self, within_s: float = 5.0) -> list[psutil.Process]:
        """Processes that are still there after a moment."""
        deadline = time.monotonic() + within_s
        while (found := self.processes()) and time.monotonic() < deadline:
            time.sleep(0.1)
        return found


@pytest.fixture
def command(tmp_path: Path) -> Iterator[Command]:
    command = Command(tmp_path / "results")
    yield command
    for process in command.processes():
        process.kill()
