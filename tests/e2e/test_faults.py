"""Faults made for real in running sweeps: the cell that has one fails in its class, every other cell is measured."""

from __future__ import annotations

import json
import os
import signal
import time

import psutil
import pytest

from harness.execute.jobs import JobFile
from harness.failure import FailureClass
from harness.store import SweepStore
from tests.e2e.conftest import QUICK, Command, instead
from tests.unit.factories import make_store

pytestmark = [pytest.mark.distributed, pytest.mark.slow, pytest.mark.timeout(900)]

MODEL = ("--model", "tests.e2e.faulty:model", "--collective-timeout", "8")


def outcomes(stdout: str) -> dict[str, str]:
    cells = json.loads(stdout)["cells"]
    return {cell["label"]: cell["outcome"] for cell in cells}


def test_faults_before_timing_end_their_cell_alone(command: Command) -> None:
    faults = "fsdp:s2=kill@2,tp:t2=hang@2,fsdp1:s2=raise@2,ddp:r2=none@0"
    layouts = "ddp:r2,fsdp:s2,tp:t2,fsdp1:s2"
    done = command.run("run", *QUICK, *MODEL, "--layouts", layouts, "--name", "s", "--json", FAULTS=faults)
    assert done.returncode == 1, done.stderr
    expected = {"ddp r2": "measured", "fsdp s2": "failed", "tp t2": "failed", "fsdp1 s2": "failed"}
    assert outcomes(done.stdout).items() >= expected.items()
    records = command.records("s")
    killed, hung, raised = (records[text, "verify"].failure for text in ("fsdp:s2", "tp:t2", "fsdp1:s2"))
    assert killed is not None and hung is not None and raised is not None
    assert (killed.failure_class, killed.rank, killed.phase) == (FailureClass.CRASH, 1, "memory")
    assert "SIGKILL" in killed.message
    assert (hung.failure_class, hung.phase) == (FailureClass.COLLECTIVE_TIMEOUT, "memory")
    assert (raised.failure_class, raised.rank) == (FailureClass.CRASH, 1)
    assert "planted failure" in raised.log_tail
    assert records["tp:t2", "verify"].wall_s < 25
    assert command.left() == []


def test_faults_in_timed_steps_cost_their_cell_alone(command: Command) -> None:
    """A verify run makes 17 forward passes in a process (memory 2, traffic 5, gate 10); pass 19 is a timed step."""
    faults = "fsdp:s2=kill@19,tp:t2=hang@19"
    layouts = "ddp:r2,fsdp:s2,tp:t2"
    arguments = ("run", *instead(QUICK, "--steps", "20"), *MODEL, "--layouts", layouts, "--name", "s", "--json")
    done = command.run(*arguments, FAULTS=faults)
    assert done.returncode == 1, done.stderr
    expected = {"ddp r2": "measured", "fsdp s2": "failed", "tp t2": "failed"}
    assert outcomes(done.stdout).items() >= expected.items()
    records = command.records("s")
    killed, hung = (records[text, "time"].failure for text in ("fsdp:s2", "tp:t2"))
    assert killed is not None and hung is not None
    assert (killed.failure_class, killed.rank) == (FailureClass.CRASH, 1)
    assert (hung.failure_class, hung.rank) == (FailureClass.COLLECTIVE_TIMEOUT, 1)
    ddp = records["ddp:r2", "time"]
    assert ddp.status == "measured" and ddp.timing is not None
    assert len(ddp.timing.step_time_s[0]) == 20
    first = SweepStore.open(command.results / "s").records()
    broken = [r for r in first if r.status == "interrupted" and r.spec.layout.strategy == "ddp"]
    assert broken, "what ddp had measured beside the fault is kept"
    assert command.left() == []


def test_a_cell_that_never_ends_is_stopped_at_its_limit(command: Command) -> None:
    faults = "fsdp:s2=everywhere@2"
    done = command.run(
        *("run", *QUICK, *instead(MODEL, "--collective-timeout", "300"), "--run-timeout", "12"),
        *("--layouts", "ddp:r2,fsdp:s2", "--name", "s", "--json"),
        FAULTS=faults,
    )
    assert outcomes(done.stdout).items() >= {"ddp r2": "measured", "fsdp s2": "failed"}.items()
    failure = command.records("s")["fsdp:s2", "verify"].failure
    assert failure is not None
    assert failure.failure_class is FailureClass.TIME_LIMIT
    assert command.left() == []


def test_a_wrong_gradient_is_shown_as_diverged_and_not_ranked(command: Command) -> None:
    done = command.run(
        "run", *QUICK, *MODEL, "--layouts", "ddp:r2,fsdp:s2", "--name", "s", "--json", FAULTS="fsdp:s2=wrong@0"
    )
    assert done.returncode == 1, done.stderr
    cells = {cell["label"]: cell for cell in json.loads(done.stdout)["cells"]}
    assert cells["fsdp s2"]["outcome"] == "diverged"
    assert cells["fsdp s2"]["gate"]["first_bad_step"] == 0
    assert cells["fsdp s2"]["rank"] is None
    assert ("fsdp:s2", "time") not in command.records("s")
    assert "differs from single r1 first at step 0" in (command.results / "s" / "report" / "report.md").read_text()


def wait_for_records(command: Command, count: int) -> None:
    deadline = time.monotonic() + 60
    while len(list((command.results / "s" / "records").glob("*.json"))) < count:
        assert time.monotonic() < deadline
        time.sleep(0.1)


def test_ctrl_c_in_a_checkpoint_study_is_one_line_and_leaves_nothing(command: Command) -> None:
    """While ranks still import, too, and sent to all processes, as a terminal does."""
    store = make_store(command.results.parent)
    process = command.start("checkpoint", "measure", "--layouts", "ddp:r2")
    assert process.stderr is not None
    assert process.stderr.readline().startswith("[1/3] ddp r2: every way")
    os.killpg(process.pid, signal.SIGINT)
    _, stderr = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "Traceback" not in stderr
    assert stderr.strip().startswith("meshsweep: interrupted; parts that were measured are kept in sweep sweep")
    assert command.left(30.0) == []
    assert list(store.folder.glob(".checkpoint-study-*")) == []


@pytest.mark.parametrize("number", [signal.SIGINT, pytest.param(signal.SIGTERM, marks=pytest.mark.thorough)])
def test_ctrl_c_leaves_no_process_and_resume_runs_the_rest(command: Command, number: signal.Signals) -> None:
    process = command.start("run", *QUICK, "--layouts", "ddp:r2,fsdp:s2", "--name", "s")
    wait_for_records(command, 2)
    process.send_signal(number)
    _, stderr = process.communicate(timeout=30)
    assert process.returncode == 130
    assert "interrupted; what was measured is kept" in stderr
    assert "Traceback" not in stderr
    assert command.left() == []
    kept = {r.run_id for r in SweepStore.open(command.results / "s").records() if r.status == "measured"}
    assert len(kept) >= 2
    done = command.run("resume", "s", "--json")
    assert done.returncode == 0, done.stderr
    assert outcomes(done.stdout).items() >= {"ddp r2": "measured", "fsdp s2": "measured"}.items()
    measured = [r.run_id for r in SweepStore.open(command.results / "s").records() if r.status == "measured"]
    assert len(measured) == len(set(measured)) == 5


def test_a_killed_controller_takes_its_ranks_along_and_the_sweep_goes_on(command: Command) -> None:
    process = command.start("run", *QUICK, "--layouts", "ddp:r2", "--name", "s", "--json")
    wait_for_records(command, 1)
    controller = JobFile.model_validate_json((command.results / "s" / "job.json").read_text()).pid
    below = psutil.Process(controller).children(recursive=True)
    psutil.Process(controller).kill()
    assert psutil.wait_procs(below, timeout=10)[1] == []
    stdout, stderr = process.communicate(timeout=300)
    assert process.returncode == 0, stderr
    assert outcomes(stdout)["ddp r2"] == "measured"
    assert command.left() == []


def test_what_a_rank_started_ends_with_its_launch(command: Command) -> None:
    done = command.run("run", *QUICK, *MODEL, "--layouts", "ddp:r2", "--name", "s", "--json", FAULTS="ddp:r2=child@2")
    assert done.returncode == 0, done.stderr
    assert command.left() == []


def test_killing_the_command_loses_nothing(command: Command) -> None:
    """The job goes on; ``resume`` finds it, waits for it, and runs only what is missing."""
    process = command.start("run", *QUICK, "--layouts", "ddp:r2,fsdp:s2", "--name", "s")
    wait_for_records(command, 1)
    process.kill()
    process.communicate(timeout=30)
    assert command.processes(), "the job lives on"
    done = command.run("resume", "s", "--json")
    assert done.returncode == 0, done.stderr
    records = SweepStore.open(command.results / "s").records()
    assert [r.status for r in records] == ["measured"] * 5
    assert len({r.run_id for r in records}) == 5
    assert command.left() == []
