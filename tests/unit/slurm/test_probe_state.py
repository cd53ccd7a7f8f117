"""A sweep whose probe job has not told yet what there is: status and cancel say and do what they can."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from harness.cli import _run
from harness.cli.cluster import COMMAND, DETACHED_LOG, without_plan
from harness.launch.job_file import SlurmJobFile, write_job_file
from harness.sweep.drive import CANCEL
from tests.unit.slurm.conftest import FakeSlurm


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    made = tmp_path / "results" / "s"
    (made / "probe").mkdir(parents=True)
    (made / COMMAND).write_text("{}")
    return made


def submitted(folder: Path) -> None:
    write_job_file(folder / "probe", SlurmJobFile(name="meshsweep:s:probe", job_id="41", submitted_at="now"))


def test_status_says_what_the_probe_waits_for(
    folder: Path, slurm: FakeSlurm, capsys: pytest.CaptureFixture[str]
) -> None:
    assert _run(["status", "s"]) == 0
    assert "has no plan yet: its probe job is not submitted yet" in capsys.readouterr().out
    submitted(folder)
    (folder / DETACHED_LOG).write_text("sweep s: a probe job looks at 2 nodes\n")
    slurm.say("squeue", "41|PENDING|Priority|\n")
    assert _run(["status", "s"]) == 0
    out = capsys.readouterr().out
    assert "its probe job 41 is PENDING (Priority)" in out
    assert "its output: sweep s: a probe job looks at 2 nodes" in out
    assert "'meshsweep resume s'" in out
    slurm.say("squeue", err="slurm_load_jobs error: Unable to contact slurm controller (connect failure)", rc=1)
    assert _run(["status", "s"]) == 0
    assert "of its probe job 41 Slurm says nothing now" in capsys.readouterr().out


def test_cancel_ends_a_probe_that_nobody_waits_for(
    folder: Path, slurm: FakeSlurm, capsys: pytest.CaptureFixture[str]
) -> None:
    submitted(folder)
    slurm.say("squeue", "41|PENDING|Priority|\n")
    slurm.say("scancel", do=f"printf '' >'{slurm.folder}/squeue.out'")
    slurm.say("scontrol", "JobId=41 JobName=x\n   JobState=CANCELLED Reason=None ExitCode=0:15\n")
    assert _run(["cancel", "s"]) == 0
    assert capsys.readouterr().out == "sweep s: ended its probe job 41\n"
    assert slurm.asked("scancel") == [["41"]]
    assert (folder / CANCEL).exists()
    assert _run(["cancel", "s"]) == 0
    assert "nothing, no probe job ran" in capsys.readouterr().out
    assert _run(["cancel", "s", "--json"]) == 0
    out, err = capsys.readouterr()
    assert json.loads(out) == {"sweep": "s", "ended_jobs": []}
    assert "nothing, no probe job ran" in err


def test_the_newest_sweep_may_be_one_that_has_no_plan_yet(folder: Path) -> None:
    results = folder.parent
    assert without_plan(results, None) == folder
    assert without_plan(results, str(folder)) == folder
    assert without_plan(Path("elsewhere"), "results/s") == Path("results/s")
    assert without_plan(results, "other") is None
    planned = results / "older" / "sweep.json"
    planned.parent.mkdir()
    planned.write_text("{}")
    os.utime(planned, (1_000, 1_000))
    assert without_plan(results, None) == folder
    os.utime(planned, None)
    os.utime(folder / COMMAND, (1_000, 1_000))
    assert without_plan(results, None) is None
    (folder / "sweep.json").write_text("{}")
    assert without_plan(results, "s") is None


def test_a_folder_whose_name_slurm_changes_is_refused_before_anything_is_submitted(
    tmp_path: Path, slurm: FakeSlurm, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["--cluster", "slurm", "--profile", "virtual", "--name", "s", "--device", "cpu"]
    assert _run(["run", *arguments, "--results", str(tmp_path / "100%")]) == 2
    assert 'holds "%", which Slurm replaces; use another --results' in capsys.readouterr().err
    assert slurm.asked("sbatch") == []
