"""Sweeps of real Slurm jobs on the virtual cluster, and what clusters do to them, done for real."""

from __future__ import annotations

import json
import re
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from harness.failure import FailureClass, disk_was_full
from harness.topology.model import LinkClass
from tests.slurm.cluster import VirtualCluster
from tests.slurm.sweep import FAULTY, SHORT, SLURM, SMALL, Sweep, outcomes

pytestmark = [pytest.mark.distributed, pytest.mark.timeout(1200)]

TWO_NODES = (*SLURM, "--nodes", "2")
ONE_NODE = (*SLURM, "--nodes", "1")
SILENT_S = 60.0
TEN = (
    "ddp:r2,ddp:r2+activation_checkpointing=full,fsdp:s2,fsdp:s2+activation_checkpointing=full,"
    "fsdp:s2+reshard_after_forward=false,fsdp1:s2,fsdp1:s2+activation_checkpointing=full,tp:t2,"
    "tp:t2+activation_checkpointing=full,tp:t2+loss_parallel=true"
)


@pytest.fixture
def sweep(cluster: VirtualCluster, tmp_path: Path) -> Iterator[Sweep]:
    made = Sweep(cluster, tmp_path / "results")
    yield made
    made.end()


@pytest.fixture
def odd_sweep(cluster: VirtualCluster, tmp_path: Path) -> Iterator[Sweep]:
    """One whose results lie where a shell and sbatch's parser would find something to do."""
    made = Sweep(cluster, tmp_path / 'it\'s $(touch pwned) "ß"')
    yield made
    made.end()


@pytest.mark.cluster_sweep
def test_ten_configurations_whose_submitter_is_killed_twice_and_whose_controller_is_silent(odd_sweep: Sweep) -> None:
    """No record is missing, none is there twice."""
    sweep = odd_sweep
    arguments = ("run", *ONE_NODE, "--ranks", "2", *SMALL, "--rounds", "3", "--steps", "2", "--pack", "5")
    process = sweep.start(*arguments, "--max-jobs", "3", "--layouts", TEN, "--name", "s", "--detach")
    stdout, _ = process.communicate(timeout=60)
    assert stdout == "s\n", "it returns at once with the sweep's name"
    sweep.wait(lambda: sweep.has_records(2))
    sweep.kill_driver()
    assert "running: job" in sweep.run("status", "s").stdout
    again = sweep.start("resume", "s")
    sweep.wait(lambda: sweep.has_records(6))
    with sweep.cluster.silent_controller():
        time.sleep(SILENT_S)
    sweep.wait(lambda: sweep.has_records(12))
    sweep.kill_driver()
    again.communicate(timeout=60)
    done = sweep.run("resume", "s", "--json")
    assert done.returncode == 0, done.stderr

    records = sweep.records()
    assert {r.status for r in records} == {"measured"}
    assert len([r for r in records if r.spec.purpose == "time"]) == 30
    assert len([r for r in records if r.spec.purpose == "verify"]) == 11
    assert len({r.run_id for r in records}) == 41
    assert not list(sweep.command.results.parent.glob("**/pwned"))


@pytest.mark.cluster_sweep
def test_a_layout_that_shards_inside_its_nodes_beats_the_flat_one(sweep: Sweep) -> None:
    layouts = "ddp:r8,fsdp:s8,hsdp:r2s4,fsdp_tp:s2t4,hsdp_tp:r2s2t2"
    model = ("--model", "tests.slurm.models:wide", "--batch", "8", "--seq-len", "16")
    timing = ("--rounds", "3", "--steps", "4", "--warmup-min", "1", "--warmup-max", "2")
    watched = ("--debug-comms", "--max-jobs", "2")
    done = sweep.run("run", *TWO_NODES, *model, *timing, "--layouts", layouts, "--name", "s", "--json", *watched)
    assert done.returncode == 0, done.stderr

    cells = {cell["label"]: cell for cell in json.loads(done.stdout)["cells"]}
    hybrid, flat = cells["hsdp r2s4"], cells["fsdp s8"]
    assert hybrid["rank"] < flat["rank"]
    assert hybrid["tokens_per_s"]["low"] > flat["tokens_per_s"]["high"]
    records = sweep.records()
    hosts = {host for r in records if r.ground and r.spec.ranks.world_size == 8 for host in r.ground.hosts}
    assert hosts == set(sweep.cluster.nodes)
    assert all(r.startup and r.startup.ranks_s and r.startup.first_timed_s for r in records if r.timing)
    scripts = sorted(sweep.folder.glob("launches/*/job/*_submission.sh"))
    assert len(scripts) == len(list(sweep.folder.glob("launches/*")))
    assert all("#SBATCH --partition=main" in script.read_text() for script in scripts)
    links_were_measured(sweep)
    communicators_were_seen(sweep)


def links_were_measured(sweep: Sweep) -> None:
    """Between nodes at most the rate of the virtual links, which is 25 MB/s."""
    plan = json.loads((sweep.folder / "sweep.json").read_text())
    by_class = {one["link_class"]: one["bandwidth_bytes_per_s"] for one in plan["topology"]["measured"]}
    assert set(by_class) == {LinkClass.HOST_MEMORY, LinkClass.NETWORK}
    assert 10e6 < by_class[LinkClass.NETWORK] < 27e6
    assert by_class[LinkClass.HOST_MEMORY] > by_class[LinkClass.NETWORK]
    assert "- measured: network: " in (sweep.folder / "report" / "report.md").read_text()


def communicators_were_seen(sweep: Sweep) -> None:
    """Every group of the mesh was found, connected through the interface that the profile names."""
    comms = sweep.last("hsdp:r2s4").comms
    assert comms is not None
    found = {one.ranks: one.transports for one in comms.found}
    assert {(0, 1, 2, 3), (4, 5, 6, 7), (0, 4), (3, 7), tuple(range(8))} <= set(found)
    assert set(found.values()) == {("TCP eth0",)}


@pytest.mark.cluster_sweep
def test_each_fault_ends_its_own_cell_in_its_class(sweep: Sweep) -> None:
    """A rank killed, a rank hung, a job cancelled, a job at its time limit; then a node dies under the timing job."""
    forever, cancelled = "fsdp:s2+activation_checkpointing=full", "fsdp:s2+reshard_after_forward=false"
    faults = f"fsdp:s2=kill@2,fsdp1:s2=hang@2,{forever}=everywhere@2,{cancelled}=everywhere@2,ddp:r2=slow,tp:t2=slow"
    layouts = f"{forever},{cancelled},ddp:r2,tp:t2,fsdp:s2,fsdp1:s2"
    process = sweep.start(
        *("run", *TWO_NODES, *FAULTY, "--rounds", "1", "--steps", "40", "--max-jobs", "4"),
        *("--allow-cross-node-tp", "--layouts", layouts, "--name", "s", "--json"), FAULTS=faults,
    )  # fmt: skip
    at_limit = sweep.wait(lambda: sweep.job_of("activation"))
    sweep.cluster.run("scontrol", "update", f"JobId={at_limit}", "TimeLimit=1")
    sweep.cluster.run("scancel", sweep.wait(lambda: sweep.job_of("reshard")))
    timing = sweep.wait(lambda: sweep.job_of("time-round0"))
    node = sweep.cluster.nodes[1]
    sweep.cluster.kill_node(node)
    assert sweep.cluster.wait(int(timing)) == "NODE_FAIL"
    sweep.wait(lambda: [r for r in sweep.records() if r.spec.purpose == "time"])
    sweep.cluster.start_node(node)
    stdout, stderr = process.communicate(timeout=500)
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
    lost = [r for r in sweep.records() if r.spec.purpose == "time" and r.status == "interrupted"]
    assert len(lost) == 2 and {r.failure.failure_class for r in lost if r.failure} == {FailureClass.NODE_FAILURE}
    assert {r.failure.host for r in lost if r.failure} == {node}
    assert sweep.last("ddp:r2", "time").status == "measured"


def in_low_partition(folder: Path, requeue: bool) -> str:
    """A profile of jobs that give way to others, with a comment that is hard to carry."""
    profile = folder / "site's profile.toml"
    profile.write_text(
        f'partition = "low"\ngpus_per_node = 4\nrequeue = {str(requeue).lower()}\n'
        'comment = "it\'s $(touch pwned)\\nßé"\n'
    )
    return str(profile)


def preempted(sweep: Sweep, folder: Path, requeue: bool) -> tuple[subprocess.Popen[str], int]:
    """A sweep of one layout in the low partition, and its timing job: that was held in its 40th pass until another job,
    of the partition that goes first, had taken all nodes."""
    released = folder / "released"
    arguments = ("run", *ONE_NODE, *FAULTY, "--profile", in_low_partition(folder, requeue), "--layouts", "ddp:r2")
    timing = ("--rounds", "1", "--steps", "60", "--name", "s", "--json")
    process = sweep.start(*arguments, *timing, FAULTS="ddp:r2=until@40", FAULTS_UNTIL=str(released))
    sweep.wait(lambda: sweep.timed_steps("time-round0") > 30)
    job = int(str(sweep.job_of("time-round0")))
    first = sweep.cluster.sbatch("--nodes=2", "--exclusive", "--output=/dev/null", "--wrap=true")
    assert sweep.cluster.wait(first) == "COMPLETED"
    released.touch()
    return process, job


def test_a_preempted_job_is_made_again(sweep: Sweep, tmp_path: Path) -> None:
    process, job = preempted(sweep, tmp_path, requeue=False)
    assert sweep.cluster.wait(job) == "PREEMPTED"
    stdout, stderr = process.communicate(timeout=500)
    assert process.returncode == 0, stderr
    first, second = (r for r in sweep.records() if r.spec.purpose == "time")
    assert first.failure is not None and first.failure.failure_class is FailureClass.PREEMPTED
    assert second.status == "measured"
    assert outcomes(stdout)["ddp r2"] == "measured"


@pytest.mark.cluster_sweep
def test_a_requeued_job_starts_afresh_and_its_first_attempt_is_kept_apart(sweep: Sweep, tmp_path: Path) -> None:
    process, job = preempted(sweep, tmp_path, requeue=True)
    shown = sweep.cluster.run("scontrol", "show", "job", str(job))
    assert "Comment=it's $(touch pwned)\nßé" in shown
    sweep.wait(lambda: sweep.cluster.job_state(job) in ("PENDING", "RUNNING"))
    # Slurm lets a requeued job rest for two minutes
    subprocess.run(["scontrol", "update", f"JobId={job}", "StartTime=now"], env=sweep.cluster.env, check=False)
    stdout, stderr = process.communicate(timeout=500)
    assert process.returncode == 0, stderr
    folder = sweep.launch("time-round0")
    assert folder is not None
    aside = next(folder.glob("attempt-*"))
    assert (aside / "rank0.jsonl").read_text().count('"kind": "step"') > 30
    record = sweep.last("ddp:r2", "time")
    assert record.status == "measured" and record.timing is not None
    assert record.timing.cycles == tuple(range(60))
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
    done = sweep.run("run", *TWO_NODES, "--profile", str(profile), "--layouts", "ddp", "--name", "s")
    assert done.returncode == 2
    assert re.search(said, done.stderr.splitlines()[-1]), done.stderr
    assert "Traceback" not in done.stderr


def test_a_job_that_waits_for_a_failed_one_can_never_start(sweep: Sweep) -> None:
    failed = sweep.cluster.sbatch("--output=/dev/null", "--wrap=false")
    assert sweep.cluster.wait(failed) == "FAILED"
    done = sweep.run("run", *TWO_NODES, "--depend", str(failed), "--layouts", "ddp", "--name", "s")
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


def test_a_full_disk_ends_the_command_and_resume_tries_again(cluster: VirtualCluster, small_disk: Path) -> None:
    sweep = Sweep(cluster, small_disk)
    arguments = ("run", *ONE_NODE, *FAULTY, *SHORT, "--layouts", "ddp:r2,fsdp:s2", "--max-jobs", "1")
    process = sweep.start(*arguments, "--name", "s", FAULTS="ddp:r2=slow")
    sweep.wait(lambda: sweep.job_of("verify-ddp"))
    filler = small_disk / "filler"
    with filler.open("wb", buffering=0) as file:
        try:
            while True:
                file.write(bytes(4096))
        except OSError:
            pass
    _, stderr = process.communicate(timeout=500)
    assert process.returncode == 2
    assert "No space left on device; free space" in stderr.splitlines()[-1]
    assert "Traceback" not in stderr
    filler.unlink()
    done = sweep.run("resume", "s", "--json")
    assert done.returncode == 0, done.stderr
    assert {outcomes(done.stdout)[label] for label in ("ddp r2", "fsdp s2")} == {"measured"}
    records = sweep.records()
    assert all(disk_was_full(r.failure.failure_class, r.failure.message) for r in records if r.failure)
    runs = [r.run_id for r in records if r.status == "measured"]
    assert len(runs) == len(set(runs))


@pytest.mark.cluster_sweep
def test_torchrun_starts_ranks_as_the_agent_does_and_tells_who_died(sweep: Sweep) -> None:
    arguments = ("run", *TWO_NODES, *FAULTY, *SHORT, "--layouts", "ddp:r2,fsdp:s2", "--launcher", "torchrun")
    done = sweep.run(*arguments, "--name", "s", "--json", FAULTS="fsdp:s2=kill@2")
    assert done.returncode == 1, done.stderr
    assert outcomes(done.stdout).items() >= {"ddp r2": "measured", "fsdp s2": "failed"}.items()
    failure = sweep.last("fsdp:s2").failure
    assert failure is not None
    assert (failure.failure_class, failure.rank, failure.host) == (FailureClass.CRASH, 1, sweep.cluster.nodes[1])
    assert sweep.last("ddp:r2", "time").status == "measured"


def test_cancel_ends_jobs_and_command_and_keeps_what_was_measured(sweep: Sweep) -> None:
    arguments = ("run", *ONE_NODE, *FAULTY, *SHORT, "--layouts", "ddp:r2")
    process = sweep.start(*arguments, "--name", "s", FAULTS="ddp:r2=everywhere@3")
    job = sweep.wait(lambda: sweep.job_of("verify-ddp"))
    sweep.wait(lambda: sweep.has_records(1))
    done = sweep.run("cancel", "s")
    assert (done.returncode, done.stdout) == (0, f"sweep s: ended job {job}\n"), done.stderr
    _, stderr = process.communicate(timeout=500)
    assert process.returncode == 130
    assert "sweep s was cancelled; 'meshsweep resume' runs what is missing" in stderr
    assert sweep.cluster.job_state(int(job)) == "CANCELLED"
    assert [(r.status, r.failure) for r in sweep.records()] == [("measured", None), ("interrupted", None)]


@pytest.mark.cluster_sweep
def test_commands_wait_for_a_controller_that_is_silent_for_a_minute(sweep: Sweep, tmp_path: Path) -> None:
    """One sweep is looked at and cancelled meanwhile, another one begins."""
    other = Sweep(sweep.cluster, tmp_path / "other", name="t")
    arguments = (*ONE_NODE, *FAULTY, *SHORT, "--layouts", "ddp:r2")
    process = sweep.start("run", *arguments, "--name", "s", FAULTS="ddp:r2=everywhere@3")
    job = sweep.wait(lambda: sweep.job_of("verify-ddp"))
    sweep.wait(lambda: sweep.has_records(1))
    try:
        with sweep.cluster.silent_controller():
            end = time.monotonic() + SILENT_S
            begins = other.start("run", *arguments, "--name", "t", "--json")
            cancel = sweep.command.start("cancel", "s", **sweep.env)
            status = sweep.run("status", "s")
            assert (status.returncode, f"job {job} unknown: Slurm does not answer" in status.stdout) == (0, True)
            assert status.stderr == "meshsweep: Slurm does not answer squeue; waiting for it, jobs go on meanwhile\n"
            assert "its probe job is being submitted" in other.run("status", "t").stdout
            time.sleep(max(0.0, end - time.monotonic()))
            assert [command.poll() for command in (process, begins, cancel)] == [None] * 3
        ended, told = cancel.communicate(timeout=500)
        assert (cancel.returncode, ended) == (0, f"sweep s: ended job {job}\n"), told
        _, stderr = process.communicate(timeout=500)
        stdout, begun = begins.communicate(timeout=500)
    finally:
        other.end()
    assert (process.returncode, begins.returncode) == (130, 0), stderr + begun
    for text in (told, stderr, begun):
        assert "Slurm does not answer" in text and "Slurm answers again" in text, text
        assert "Traceback" not in text
    assert [(r.status, r.failure) for r in sweep.records()] == [("measured", None), ("interrupted", None)]
    assert outcomes(stdout)["ddp r2"] == "measured"
    assert len({r.run_id for r in other.records()}) == len(other.records()) == 3
    assert len(sweep.cluster.squeue("--states=all", "--name=meshsweep:t:probe")) == 1
