"""What a sweep on Slurm does next: how layouts are packed into jobs, and what the end of a whole job changes."""

from __future__ import annotations

import json
from math import log
from pathlib import Path

import pytest

from harness.cli import _run
from harness.compare import compare
from harness.execute.link_speed import NodeSpeeds
from harness.failure import FailureClass
from harness.mesh.contract import ANY_HOST
from harness.record import Failure, RunRecord
from harness.slurm.profile import Profile, SlurmOptions
from harness.spec import SweepPlan
from harness.sweep.steps import next_launches, rankable
from harness.topology.model import Device, Node, Topology
from tests.unit.factories import layout, make_failed_record, make_plan, make_time_record, make_verify_record

LAYOUTS = ("ddp:r4", "fsdp:s4", "hsdp:r2s2")


def slurm_plan(pack: int | None = None, rounds: int = 2) -> SweepPlan:
    options = SlurmOptions(profile=Profile(), nodes=1, pack=pack)
    return make_plan(LAYOUTS, rounds=rounds).model_copy(update={"slurm": options})


def verified(plan: SweepPlan) -> list[RunRecord]:
    return [make_verify_record(plan, text) for text in ("single", *LAYOUTS)]


def ended(record: RunRecord, failure: FailureClass, status: str = "interrupted") -> RunRecord:
    found = Failure(failure_class=failure, phase="timing", message="the job ended", host="n2")
    return record.model_copy(update={"status": status, "failure": found, "timing": None})


@pytest.mark.parametrize(
    ("pack", "expected", "design"),
    [
        (None, [(0, LAYOUTS), (1, LAYOUTS)], "alternated"),
        (2, [(0, LAYOUTS[:2]), (0, LAYOUTS[2:]), (1, LAYOUTS[:2]), (1, LAYOUTS[2:])], "alternated"),
        (1, [(r, (text,)) for r in (0, 1) for text in LAYOUTS], "launches"),
    ],
)
def test_layouts_are_packed_and_rounds_interleaved(
    pack: int | None, expected: list[tuple[int, tuple[str, ...]]], design: str
) -> None:
    plan = slurm_plan(pack)
    launches = next_launches(plan, verified(plan), 0)
    assert [(x.runs[0].repeat, tuple(run.layout.text for run in x.runs)) for x in launches] == expected
    assert {x.design for x in launches} == {design}


def test_jobs_may_land_on_any_host() -> None:
    contract = slurm_plan().contract_of(layout("hsdp:r2s2"))
    assert {host.host for host in contract.hosts} == {ANY_HOST}
    assert ANY_HOST not in {host.host for host in make_plan(LAYOUTS).contract_of(layout("hsdp:r2s2")).hosts}


@pytest.mark.parametrize("failure", [FailureClass.NODE_FAILURE, FailureClass.PREEMPTED, FailureClass.CANCELLED])
def test_after_the_end_of_a_whole_job_its_round_is_made_again_but_not_for_ever(failure: FailureClass) -> None:
    plan = slurm_plan(rounds=1)
    once = [ended(make_time_record(plan, text), failure) for text in LAYOUTS]
    twice = [record.model_copy(update={"attempt": 1}) for record in once]
    (again,) = next_launches(plan, [*verified(plan), *once], 5)
    assert again.design == "alternated" and len(again.runs) == 3
    assert next_launches(plan, [*verified(plan), *once, *twice], 6) == ()


@pytest.mark.parametrize(
    ("failure", "again"),
    [
        (FailureClass.NODE_FAILURE, True),
        (FailureClass.LOST, True),
        (FailureClass.CANCELLED, False),
        (FailureClass.CRASH, False),
    ],
)
def test_a_job_of_one_layout_is_made_again_by_its_class(failure: FailureClass, again: bool) -> None:
    plan = slurm_plan(pack=1, rounds=1)
    lost = ended(make_failed_record(plan, "fsdp:s4", "time"), failure, "failed")
    records = [*verified(plan), lost]
    assert (layout("fsdp:s4") in rankable(plan, records)) is again
    found = [run.layout.text for launch in next_launches(plan, records, 0) for run in launch.runs]
    assert ("fsdp:s4" in found) is again


def refused(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert _run(["run", *arguments]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    return line


def test_options_that_do_not_fit_are_refused_in_one_line(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert "--nodes goes with --cluster slurm" in refused(capsys, "--nodes", "2")
    assert "--max-jobs goes with --cluster slurm" in refused(capsys, "--max-jobs", "2")
    assert "--cluster slurm needs --profile" in refused(capsys, "--cluster", "slurm")
    assert "unknown profile 'x'" in refused(capsys, "--cluster", "slurm", "--profile", "x")
    assert not list(tmp_path.iterdir())


def test_a_dry_run_prints_the_job_and_writes_nothing(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    arguments = ["run", "--cluster", "slurm", "--profile", "virtual", "--nodes", "3", "--dry-run", "--name", "s"]
    assert _run(arguments) == 0
    text = capsys.readouterr().out
    assert text.startswith("#!/bin/bash\n") and "#SBATCH --nodes=3\n" in text and "meshsweep:s:probe" in text
    assert _run([*arguments, "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert text.startswith(document["probe"]["script"])
    # the profile asks for 4 GPUs a node
    assert "what follows is expected, if the probe finds 4 GPUs on each of 3 nodes" in text
    assert sum(document["plan"]["ranks"]["per_node"]) == 12
    names = [job["name"] for job in document["verify_jobs"]]
    assert names[0] == "meshsweep:s:001-verify-single-r1"
    assert any(name.endswith("verify-ddp-r12") for name in names)
    assert all(f"{name} " in text for name in names)
    assert "then 2 to 4 rounds, a job each, in which all layouts that passed are timed side by side" in text
    assert not list(tmp_path.iterdir())


def test_a_dry_run_says_what_depends_on_the_probe(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "site.toml").write_text('partition = "x"\n')
    arguments = ["run", "--cluster", "slurm", "--profile", "site.toml", "--nodes", "2", "--dry-run", "--name", "s"]
    assert _run([*arguments, "--json"]) == 0
    captured = capsys.readouterr()
    assert "what follows depends on the devices that it finds" in captured.err
    assert (json.loads(captured.out)["plan"], json.loads(captured.out)["verify_jobs"]) == (None, [])
    more = ["--device", "cpu", "--ranks", "4", "--pack", "1", "--layouts", "ddp,fsdp", "--exhaustive"]
    assert _run([*arguments, *more]) == 0
    text = capsys.readouterr().out
    assert "if the probe finds 2 CPU ranks on each of 2 nodes" in text
    assert "then 3 rounds, up to 2 jobs each, in which 1 of the layouts that passed" in text


def test_a_dry_run_after_the_probe_shows_what_it_found(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    probe = tmp_path / "results" / "s" / "probe"
    probe.mkdir(parents=True)
    for node in range(2):
        devices = tuple(Device(index=index, kind="cpu", name="Some CPU") for index in range(2))
        found = Topology(nodes=(Node(host=f"n{node}", devices=devices),), sources=("proc",))
        (probe / f"topology.node{node}.json").write_text(found.model_dump_json())
        (probe / f"speeds.node{node}.json").write_text(NodeSpeeds().model_dump_json())
    before = sorted(tmp_path.rglob("*"))
    arguments = ["run", "--cluster", "slurm", "--profile", "virtual", "--nodes", "2", "--dry-run", "--name", "s"]
    assert _run([*arguments, "--json"]) == 0
    captured = capsys.readouterr()
    document = json.loads(captured.out)
    assert document["probe"] is None
    assert [node["host"] for node in document["plan"]["topology"]["nodes"]] == ["n0", "n1"]
    assert document["plan"]["ranks"]["per_node"] == [2, 2]
    assert "its probe is done" in captured.err
    assert sorted(tmp_path.rglob("*")) == before


def test_a_cut_probe_is_started_again_with_the_same_options(tmp_path: Path) -> None:
    from harness.cli.cluster import COMMAND, started_before_its_plan

    folder = tmp_path / "s"
    folder.mkdir()
    assert started_before_its_plan(folder) is None
    saved = {
        "layout_texts": ["ddp"],
        "contract_file": None,
        "results": "elsewhere",
        "name": None,
        "detach": True,
        "nodes": 2,
    }
    (folder / COMMAND).write_text(json.dumps(saved))
    assert started_before_its_plan(folder) == {
        **saved,
        "layout_texts": ("ddp",),
        "results": tmp_path,
        "name": "s",
        "detach": False,
    }
    (folder / "sweep.json").write_text("{}")
    assert started_before_its_plan(folder) is None


@pytest.mark.parametrize(
    ("message", "again"),
    [("OSError: [Errno 28] No space left on device", True), ("Too many open files", False)],
)
def test_a_run_that_found_the_disk_full_is_made_again(message: str, again: bool) -> None:
    plan = slurm_plan(pack=1, rounds=1)
    full = Failure(failure_class=FailureClass.CONFIG, phase="build", message=message)
    failed = make_failed_record(plan, "fsdp:s4", "time").model_copy(update={"failure": full})
    others = [make_time_record(plan, text) for text in LAYOUTS if text != "fsdp:s4"]
    launches = next_launches(plan, [*verified(plan), *others, failed], 9)
    assert [run.layout.text for launch in launches for run in launch.runs] == ["fsdp:s4"] * again
    twice = [failed, failed.model_copy(update={"attempt": 1})]
    assert next_launches(plan, [*verified(plan), *others, *twice], 9) == ()


def timed_in(plan: SweepPlan, launch: str) -> list[RunRecord]:
    """Two rounds of all layouts; ddp is fastest, and rounds differ by a fifth."""
    times = {"ddp:r4": 0.10, "fsdp:s4": 0.13, "hsdp:r2s2": 0.12}
    return [
        make_time_record(
            plan, text, repeat, step_time_s=time * (1 + 0.2 * repeat), launch_id=launch.format(text, repeat)
        )
        for text, time in times.items()
        for repeat in (0, 1)
    ]


def test_layouts_of_separate_jobs_are_compared_with_wider_intervals_and_the_report_says_so() -> None:
    alone, together = slurm_plan(pack=1), slurm_plan()
    apart = compare(alone, [*verified(alone), *timed_in(alone, "{}-{}")])
    beside = compare(together, [*verified(together), *timed_in(together, "all-{1}")])
    widths = [
        {c.label: log(c.ratio_to_best.high / c.ratio_to_best.low) for c in found.cells if c.ratio_to_best}
        for found in (apart, beside)
    ]
    assert all(widths[0][label] > 3 * widths[1][label] for label in ("fsdp s4", "hsdp r2s2"))
    said = [w.text for w in apart.warnings if w.kind == "unpaired"]
    assert len(said) == 1 and "so their intervals are wider" in said[0] and "--pack" in said[0]
    assert not [w for w in beside.warnings if w.kind == "unpaired"]
