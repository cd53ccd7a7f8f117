"""Sweeps of real Slurm jobs on the virtual cluster, and what clusters do to them, done for real."""

from __future__ import annotations

import contextlib
import json
import re
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from harness.failure import FailureClass
from harness.record import RunRecord
from harness.store import SweepStore
from tests.e2e.conftest import Command
from tests.slurm.cluster import VirtualCluster

pytestmark = [pytest.mark.distributed, pytest.mark.cluster_sweep, pytest.mark.timeout(900)]

SWEEP = ("--cluster", "slurm", "--profile", "virtual", "--nodes", "2", "--device", "cpu", "--no-checkpoint")
FAULTY = (
    "--model",
    "tests.e2e.faulty:model",
    "--ranks",
    "2",
    "--batch",
    "4",
    "--seq-len",
    "16",
    "--collective-timeout",
    "8",
)


class Sweep:
    """One sweep on the cluster."""

    def __init__(self, cluster: VirtualCluster, folder: Path, name: str) -> None:
        self.cluster, self.name = cluster, name
        self.command = Command(folder)
        self.env = {"SLURM_CONF": cluster.env["SLURM_CONF"]}
        self.process: subprocess.Popen[str] | None = None

    @property
    def folder(self) -> Path:
        return self.command.results / self.name

    def start(self, *arguments: str, **env: str) -> subprocess.Popen[str]:
        self.process = self.command.start(*arguments, **self.env, **env)
        return self.process

    def run(self, *arguments: str, timeout_s: float = 200) -> subprocess.CompletedProcess[str]:
        return self.command.run(*arguments, timeout_s=timeout_s, SLURM_CONF=self.env["SLURM_CONF"])

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
            process.kill()
        self.wait(lambda: not self.drivers(), 10)

    def records(self) -> tuple[RunRecord, ...]:
        return SweepStore(self.folder).records()

    def last(self, text: str, purpose: str = "verify") -> RunRecord:
        return [r for r in self.records() if r.spec.layout.text == text and r.spec.purpose == purpose][-1]

    def wait(self, condition: Callable[[], Any], within_s: float = 120) -> Any:
        """What ``condition`` gives once it gives something; a command that ended before is a failure."""
        deadline = time.monotonic() + within_s
        while not (found := condition()):
            if self.process is not None and self.process.poll() not in (None, 0):
                raise AssertionError(self.process.communicate())
            assert time.monotonic() < deadline, sorted(path.name for path in self.folder.glob("launches/*"))
            time.sleep(0.2)
        return found

    def job_of(self, label: str) -> str | None:
        """The job of the newest launch whose name holds ``label``, once its ranks have begun."""
        for folder in sorted(self.folder.glob(f"launches/*{label}*"), reverse=True):
            job_id = json.loads((folder / "job.json").read_text())["job_id"] if (folder / "job.json").exists() else None
            if job_id and list(folder.glob("rank*.jsonl")):
                return str(job_id)
        return None


def outcomes(stdout: str) -> dict[str, str]:
    return {cell["label"]: cell["outcome"] for cell in json.loads(stdout)["cells"]}


@pytest.fixture
def sweep(cluster: VirtualCluster, tmp_path: Path) -> Iterator[Sweep]:
    made = Sweep(cluster, tmp_path / "results", "s")
    yield made
    subprocess.run(["scancel", "--user=root"], env=cluster.env, check=False)
    for process in made.command.processes():
        process.kill()


def test_a_sweep_of_two_nodes_whose_submitter_is_killed_twice(sweep: Sweep) -> None:
    """The layout that keeps its sharding inside a node beats the flat one, and no record is missing or there twice."""
    layouts = "ddp:r8,fsdp:s8,hsdp:r2s4,fsdp_tp:s2t4,hsdp_tp:r2s2t2"
    arguments = (
        "--model",
        "tests.slurm.models:wide",
        "--batch",
        "8",
        "--seq-len",
        "16",
        "--rounds",
        "3",
        "--steps",
        "5",
    )
    process = sweep.start("run", *SWEEP, *arguments, "--layouts", layouts, "--name", "s", "--detach")
    stdout, _ = process.communicate(timeout=20)
    assert stdout == "s\n", "it returns at once with the sweep's name"
    sweep.wait(lambda: sweep.has_records(2), 200)
    sweep.kill_driver()
    assert "running: job" in sweep.run("status", "s").stdout
    again = sweep.start("resume", "s")
    sweep.wait(lambda: sweep.has_records(8), 200)
    sweep.kill_driver()
    again.communicate(timeout=20)
    done = sweep.run("resume", "s", "--json", timeout_s=300)
    assert done.returncode == 0, done.stderr

    records = sweep.records()
    assert [r.status for r in records] == ["measured"] * 21
    assert len({r.run_id for r in records}) == 21
    assert all(r.startup_s is not None and r.startup_s > 0 for r in records)
    cells = {cell["label"]: cell for cell in json.loads(done.stdout)["cells"]}
    hybrid, flat = cells["hsdp r2s4"], cells["fsdp s8"]
    assert hybrid["rank"] < flat["rank"]
    assert hybrid["tokens_per_s"]["low"] > flat["tokens_per_s"]["high"]
    hosts = {host for r in records if r.ground and r.spec.ranks.world_size == 8 for host in r.ground.hosts}
    assert hosts == set(sweep.cluster.nodes)
    scripts = sorted(sweep.folder.glob("launches/*/job/*_submission.sh"))
    assert len(scripts) == len(list(sweep.folder.glob("launches/*")))
    assert all("#SBATCH --partition=main" in script.read_text() for script in scripts)


def test_each_fault_ends_its_own_cell_in_its_class(sweep: Sweep) -> None:
    """A rank killed, a rank hung, a job cancelled, a job at its time limit; then a node dies under the timing job."""
    forever, cancelled = "fsdp:s2+activation_checkpointing=full", "fsdp:s2+reshard_after_forward=false"
    faults = f"fsdp:s2=kill@2,fsdp1:s2=hang@2,{forever}=everywhere@2,{cancelled}=everywhere@2"
    layouts = f"ddp:r2,tp:t2,fsdp:s2,fsdp1:s2,{forever},{cancelled}"
    process = sweep.start(
        *("run", *SWEEP, *FAULTY, "--rounds", "1", "--steps", "25", "--run-timeout", "300"),
        *("--allow-cross-node-tp", "--layouts", layouts, "--name", "s", "--json"), FAULTS=faults,
    )  # fmt: skip
    at_limit = sweep.wait(lambda: sweep.job_of("activation"))
    sweep.cluster.run("scontrol", "update", f"JobId={at_limit}", "TimeLimit=1")
    sweep.cluster.run("scancel", sweep.wait(lambda: sweep.job_of("reshard")))
    timing = sweep.wait(lambda: sweep.job_of("time-round0"), 200)
    node = sweep.cluster.nodes[1]
    sweep.cluster.kill_node(node)
    assert sweep.cluster.wait(int(timing)) == "NODE_FAIL"
    sweep.wait(lambda: [r for r in sweep.records() if r.spec.purpose == "time"])
    sweep.cluster.start_node(node)
    stdout, stderr = process.communicate(timeout=200)
    assert process.returncode == 1, stderr

    ended = outcomes(stdout)
    assert {ended["ddp r2"], ended["tp t2"]} == {"measured"}
    expected = {
        "fsdp:s2": FailureClass.CRASH,
        "fsdp1:s2": FailureClass.COLLECTIVE_TIMEOUT,
        forever: FailureClass.TIME_LIMIT,
        cancelled: FailureClass.CANCELLED,
    }
    found = {text: sweep.last(text).failure for text in expected}
    assert {text: failure and failure.failure_class for text, failure in found.items()} == expected
    killed = found["fsdp:s2"]
    assert killed is not None and killed.rank == 1 and killed.host == sweep.cluster.nodes[1]
    assert sweep.last("fsdp:s2").wall_s < 100, "the other node's ranks were ended, not waited for"
    lost = [r for r in sweep.records() if r.spec.purpose == "time" and r.status == "interrupted"]
    assert len(lost) == 2 and {r.failure.failure_class for r in lost if r.failure} == {FailureClass.NODE_FAILURE}
    assert {r.failure.host for r in lost if r.failure} == {node}
    assert sweep.last("ddp:r2", "time").status == "measured"


def test_a_requeued_job_starts_afresh_and_its_first_attempt_is_kept_apart(sweep: Sweep, tmp_path: Path) -> None:
    profile = tmp_path / "site's profile.toml"
    profile.write_text('partition = "main"\ngpus_per_node = 4\nrequeue = true\ncomment = "it\'s $(touch pwned)\\nßé"\n')
    arguments = ("run", *SWEEP, *FAULTY, "--profile", str(profile), "--layouts", "ddp:r2", "--rounds", "1")
    process = sweep.start(*arguments, "--steps", "80", "--name", "s", "--json")
    job = sweep.wait(lambda: sweep.job_of("time-round0"), 200)
    sweep.wait(lambda: len((sweep.folder / "launches" / "003-time-round0-ddp-r2" / "rank0.jsonl").read_text()) > 2000)
    shown = sweep.cluster.run("scontrol", "show", "job", job)
    assert "Comment=it's $(touch pwned)\nßé" in shown
    sweep.cluster.run("scontrol", "requeue", job)
    sweep.wait(lambda: sweep.cluster.job_state(int(job)) == "PENDING")
    # Slurm lets a requeued job rest for two minutes
    sweep.cluster.run("scontrol", "update", f"JobId={job}", "StartTime=now")
    stdout, stderr = process.communicate(timeout=200)
    assert process.returncode == 0, stderr
    folder = sweep.folder / "launches" / "003-time-round0-ddp-r2"
    first = next(folder.glob("attempt-*"))
    assert (first / "rank0.jsonl").stat().st_size > 2000
    record = sweep.last("ddp:r2", "time")
    assert record.status == "measured" and record.timing is not None
    assert record.timing.cycles == tuple(range(80))
    assert outcomes(stdout)["ddp r2"] == "measured"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            'partition = "main"\nsetup = ["no_such_command --x"]',
            r"\(config\): meshsweep: a set-up line failed .*no_such_c",
        ),
        ('partition = "none"', r"\(bad_request\): .*invalid partition"),
        ('partition = "main"\ngpus_per_node = 9', r"\(bad_request\): .*configuration is not available"),
    ],
    ids=["set-up", "partition", "gpus"],
)
def test_what_can_never_run_is_said_in_one_line(text: str, said: str, sweep: Sweep, tmp_path: Path) -> None:
    profile = tmp_path / "bad.toml"
    profile.write_text(text)
    done = sweep.run("run", *SWEEP, "--profile", str(profile), "--layouts", "ddp", "--name", "s")
    assert done.returncode == 2
    assert re.search(said, done.stderr.splitlines()[-1]), done.stderr
    assert "Traceback" not in done.stderr


def test_a_job_that_waits_for_a_failed_one_can_never_start(sweep: Sweep) -> None:
    failed = sweep.cluster.sbatch("--output=/dev/null", "--wrap=false")
    assert sweep.cluster.wait(failed) == "FAILED"
    done = sweep.run("run", *SWEEP, "--depend", str(failed), "--layouts", "ddp", "--name", "s")
    assert done.returncode == 2
    assert "(bad_request): the job can never start: DependencyNeverSatisfied" in done.stderr.splitlines()[-1]
    assert sweep.cluster.squeue() == {}


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    folder = tmp_path / "small disk"
    folder.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=4m", "tmpfs", str(folder)], check=True)
    yield folder
    subprocess.run(["umount", "--lazy", str(folder)], check=True)


def test_a_full_disk_ends_the_command_and_resume_goes_on(cluster: VirtualCluster, small_disk: Path) -> None:
    sweep = Sweep(cluster, small_disk, "s")
    arguments = (
        "run",
        *SWEEP,
        *FAULTY,
        "--layouts",
        "ddp:r2,fsdp:s2",
        "--max-jobs",
        "1",
        "--rounds",
        "1",
        "--steps",
        "8",
    )
    process = sweep.start(*arguments, "--name", "s")
    sweep.wait(lambda: sweep.job_of("verify-ddp"))
    filler = small_disk / "filler"
    with filler.open("wb", buffering=0) as file:
        try:
            while True:
                file.write(bytes(4096))
        except OSError:
            pass
    _, stderr = process.communicate(timeout=120)
    assert process.returncode == 2
    assert "No space left on device; free space" in stderr.splitlines()[-1]
    assert "Traceback" not in stderr
    filler.unlink()
    done = sweep.run("resume", "s", "--json")
    ended = outcomes(done.stdout)
    assert ended["fsdp s2"] == "measured", done.stderr
    failure = sweep.last("ddp:r2").failure
    assert ended["ddp r2"] == "measured" or (failure and failure.failure_class is FailureClass.CONFIG)
    runs = [r.run_id for r in sweep.records() if r.status == "measured"]
    assert len(runs) == len(set(runs))


def test_torchrun_starts_ranks_as_the_agent_does_and_tells_who_died(sweep: Sweep) -> None:
    arguments = ("run", *SWEEP, *FAULTY, "--layouts", "ddp:r2,fsdp:s2", "--launcher", "torchrun", "--rounds", "1")
    process = sweep.start(*arguments, "--steps", "8", "--name", "s", "--json", FAULTS="fsdp:s2=kill@2")
    stdout, stderr = process.communicate(timeout=200)
    assert process.returncode == 1, stderr
    assert outcomes(stdout).items() >= {"ddp r2": "measured", "fsdp s2": "failed"}.items()
    failure = sweep.last("fsdp:s2").failure
    assert failure is not None
    assert (failure.failure_class, failure.rank, failure.host) == (FailureClass.CRASH, 1, sweep.cluster.nodes[1])
    assert sweep.last("ddp:r2", "time").status == "measured"


def test_cancel_ends_jobs_and_command_and_keeps_what_was_measured(sweep: Sweep) -> None:
    arguments = ("run", *SWEEP, *FAULTY, "--layouts", "ddp:r2", "--rounds", "1", "--run-timeout", "300")
    process = sweep.start(*arguments, "--name", "s", FAULTS="ddp:r2=everywhere@3")
    job = sweep.wait(lambda: sweep.job_of("verify-ddp"))
    sweep.wait(lambda: sweep.has_records(1))
    done = sweep.run("cancel", "s")
    assert (done.returncode, done.stdout) == (0, f"sweep s: ended job {job}\n"), done.stderr
    _, stderr = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "sweep s was cancelled; 'meshsweep resume' runs what is missing" in stderr
    assert sweep.cluster.job_state(int(job)) == "CANCELLED"
    assert [(r.status, r.failure) for r in sweep.records()] == [("measured", None), ("interrupted", None)]
