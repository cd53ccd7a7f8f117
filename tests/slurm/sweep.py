"""A sweep on a virtual cluster, as a test drives and watches it."""

from __future__ import annotations

import contextlib
import json
import subprocess
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import psutil

from harness.record import RunRecord
from harness.store import SweepStore
from tests.e2e.conftest import Command
from tests.slurm.cluster import VirtualCluster

# a machine that does other work makes a sweep slow, not wrong
LONG_S = 500

PLACE = ("--cluster", "slurm", "--profile", "virtual", "--device", "cpu")
PATIENT = ("--run-timeout", "600", "--collective-timeout", "200")
SLURM = (*PLACE, *PATIENT, "--no-checkpoint", "--exposure-steps", "0", "--exhaustive")
SMALL = ("--batch", "4", "--seq-len", "16", "--warmup-min", "1", "--warmup-max", "2")
FAULTY = ("--model", "tests.e2e.faulty:model", "--ranks", "2", *SMALL, "--collective-timeout", "20")
SHORT = ("--rounds", "1", "--steps", "4")


def last_counts(arguments: Sequence[str]) -> list[str]:
    """``arguments`` with each option once, as last given: a test may refine what the constants here say."""
    found: dict[str, list[str]] = {"": []}
    name = ""
    for word in arguments:
        if word.startswith("--"):
            name = word
            found.pop(name, None)
        found.setdefault(name, []).append(word)
    return [word for words in found.values() for word in words]


class Sweep:
    """One sweep on the cluster."""

    def __init__(self, cluster: VirtualCluster, folder: Path, name: str = "s") -> None:
        self.cluster, self.name = cluster, name
        self.command = Command(folder)
        self.env = {"SLURM_CONF": cluster.env["SLURM_CONF"]}
        self.process: subprocess.Popen[str] | None = None

    @property
    def folder(self) -> Path:
        return self.command.results / self.name

    def start(self, *arguments: str, **env: str) -> subprocess.Popen[str]:
        self.process = self.command.start(*last_counts(arguments), **self.env, **env)
        return self.process

    def run(self, *arguments: str, timeout_s: float = LONG_S, **env: str) -> subprocess.CompletedProcess[str]:
        return self.command.run(*last_counts(arguments), timeout_s=timeout_s, **self.env, **env)

    def has_records(self, count: int) -> bool:
        return len(list(self.folder.glob("records/*.json"))) >= count

    def drivers(self) -> list[psutil.Process]:
        """The commands that drive the sweep, not what they started."""
        found = []
        for process in self.command.processes():
            with contextlib.suppress(psutil.Error):
                found += [process] if {"harness.cli", self.name} <= set(process.cmdline()) else []
        return found

    def kill_driver(self) -> None:
        """End the command that drives the sweep, as a crash would."""
        self.process = None
        for process in self.drivers():
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
        self.wait(lambda: not self.drivers())

    def records(self) -> tuple[RunRecord, ...]:
        return SweepStore(self.folder).records()

    def last(self, text: str, purpose: str = "verify") -> RunRecord:
        return [r for r in self.records() if r.spec.layout.text == text and r.spec.purpose == purpose][-1]

    def wait(self, condition: Callable[[], Any], within_s: float = LONG_S) -> Any:
        """What ``condition`` gives once it gives something; a command that ended before is a failure."""
        deadline = time.monotonic() + within_s
        while not (found := condition()):
            if self.process is not None and self.process.poll() not in (None, 0):
                raise AssertionError(self.process.communicate())
            assert time.monotonic() < deadline, sorted(path.name for path in self.folder.glob("launches/*"))
            time.sleep(0.2)
        return found

    def launch(self, label: str) -> Path | None:
        """The newest launch whose name holds ``label``."""
        return next(iter(sorted(self.folder.glob(f"launches/*{label}*"), reverse=True)), None)

    def job_of(self, label: str) -> str | None:
        """The job of that launch, once its ranks have begun."""
        folder = self.launch(label)
        if folder is None or not (folder / "job.json").exists() or not list(folder.glob("rank*.jsonl")):
            return None
        job_id = json.loads((folder / "job.json").read_text())["job_id"]
        return str(job_id) if job_id else None

    def timed_steps(self, label: str) -> int:
        """Steps that rank 0 of that launch has noted."""
        folder = self.launch(label)
        file = folder / "rank0.jsonl" if folder else None
        return file.read_text().count('"kind": "step"') if file is not None and file.exists() else 0

    def end(self) -> None:
        """End whatever is left of it."""
        subprocess.run(["scancel", "--user=root"], env=self.cluster.env, check=False)
        for process in self.command.processes():
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()


def outcomes(stdout: str) -> dict[str, str]:
    return {cell["label"]: cell["outcome"] for cell in json.loads(stdout)["cells"]}
