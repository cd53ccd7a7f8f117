"""Jobs against a Slurm that answers as it is told: refused, silent, lost, found again, ended."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from harness.errors import ExecutionError, UsageError
from harness.execute import slurm_jobs, slurm_queue
from harness.execute.collect import collect
from harness.execute.slurm_jobs import SlurmJobs, leaves_room
from harness.execute.slurm_queue import SlurmJob
from harness.failure import FailureClass
from harness.launch.job_file import read_job_file
from harness.slurm import commands
from harness.slurm.commands import ControllerSilent
from harness.slurm.profile import Profile, SlurmOptions
from harness.spec import Launch, Ranks, SweepPlan
from harness.store import SweepStore
from tests.unit.factories import layout, make_plan
from tests.unit.slurm.conftest import FakeSlurm

PLAN = make_plan(("ddp:r2", "fsdp:s2"), world_size=2)
OPTIONS = SlurmOptions(profile=Profile(partition="main", comment="a b"), nodes=1, exclude="bad1")
ACCEPTED = "Submitted batch job 41\n"


@pytest.fixture
def plan() -> SweepPlan:
    return PLAN.model_copy(update={"slurm": OPTIONS})


@pytest.fixture
def store(tmp_path: Path, plan: SweepPlan) -> SweepStore:
    return SweepStore.create(tmp_path / "results", plan)


def launch(name: str = "001-verify", *texts: str) -> Launch:
    runs = tuple(PLAN.run(layout(text), "verify" if len(texts) < 2 else "time") for text in texts or ("ddp:r2",))
    return Launch(launch_id=name, runs=runs, design="launches" if len(runs) == 1 else "alternated")


def jobs_in(store: SweepStore) -> SlurmJobs:
    jobs = SlurmJobs(store, OPTIONS, {})
    jobs.queue = slurm_queue.Queue(every_s=0)
    return jobs


def submitted(store: SweepStore, slurm: FakeSlurm, one: Launch | None = None) -> SlurmJob:
    slurm.say("sbatch", ACCEPTED)
    job = jobs_in(store).submit([one or launch()])
    assert isinstance(job, SlurmJob)
    return job


def test_a_job_is_submitted_with_its_script_kept(
    store: SweepStore, slurm: FakeSlurm, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("SBATCH_PARTITION", "SLURM_JOB_ID", "SQUEUE_FORMAT", "SLURM_CLUSTERS"):
        monkeypatch.setenv(name, "ambient")
    monkeypatch.setenv("SLURM_CONF", "/etc/slurm.conf")
    job = submitted(store, slurm)
    assert job.poll is not None and job.job_id == "41"
    folder = store.launch_folder("001-verify")
    file = read_job_file(folder)
    assert file is not None and file.arguments == ("--comment=a b",)
    text = (folder / file.script).read_text()
    assert "#SBATCH --partition=main\n" in text and "#SBATCH --exclude=bad1\n" in text
    (asked,) = slurm.asked("sbatch")
    assert asked[0] == "--comment=a b"
    assert "SLURM_CONF" in slurm.environ("sbatch")
    assert not {"SBATCH_PARTITION", "SLURM_JOB_ID", "SQUEUE_FORMAT", "SLURM_CLUSTERS"} & set(slurm.environ("sbatch"))


def test_a_refused_job_is_recorded_as_a_bad_request(store: SweepStore, slurm: FakeSlurm) -> None:
    slurm.say("sbatch", err="sbatch: error: invalid partition specified: none\n", rc=1)
    job = jobs_in(store).submit([launch()])
    assert job is not None and not job.poll()
    (record,) = collect(store.launch_folder("001-verify"), {})
    assert record.status == "failed" and record.failure is not None
    assert record.failure.failure_class is FailureClass.BAD_REQUEST
    assert "invalid partition specified: none" in record.failure.message


def test_a_silent_controller_is_waited_for_and_gets_nothing_twice(
    store: SweepStore, slurm: FakeSlurm, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(slurm_queue, "SILENT_POLL_S", 0.0)
    jobs = jobs_in(store)
    monkeypatch.setattr(slurm_jobs, "SETTLE_S", 0.0)
    slurm.say(
        "sbatch", err="sbatch: error: Batch job submission failed: Socket timed out on send/recv operation\n", rc=1
    )
    assert jobs.submit([launch()]) is None
    slurm.say("squeue", "41\n")  # the job was taken, the answer was lost
    shows_scripts(slurm, {"41": store.launch_folder("001-verify") / "job"})
    job = jobs.submit([launch()])
    assert job is not None and job.job_id == "41"
    assert len(slurm.asked("sbatch")) == 1
    slurm.say("squeue", err="slurm_load_jobs error: Unable to contact slurm controller (connect failure)\n", rc=1)
    assert job.poll() and job.poll(), "jobs go on while nobody answers"
    monkeypatch.setattr(slurm_queue, "SILENT_LIMIT_S", -1.0)
    with pytest.raises(ControllerSilent, match="jobs go on, 'meshsweep resume' collects them"):
        job.poll()


def test_a_job_that_nobody_noted_is_found_by_its_name(store: SweepStore, slurm: FakeSlurm) -> None:
    slurm.say("sbatch", do="kill -9 $PPID")
    pid = subprocess_submit(store)
    assert pid != 0, "the submitter died between sbatch and its note"
    file = read_job_file(store.launch_folder("001-verify"))
    assert file is not None and file.job_id is None
    slurm.say("squeue", "17\n41\n43\n")
    # a sweep of the same name elsewhere has jobs of the same name
    own = store.launch_folder("001-verify") / "job"
    shows_scripts(slurm, {"17": own, "41": own, "43": Path("/elsewhere") / own.relative_to(own.anchor)})
    (job,) = jobs_in(store).find()
    assert job.job_id == "41"
    assert ["-n", f"meshsweep:{store.folder.name}:001-verify"] == slurm.asked("squeue")[0][5:7]


def shows_scripts(slurm: FakeSlurm, folders: dict[str, Path]) -> None:
    """Let scontrol say from where each job was submitted."""
    cases = "".join(f"{job}) c='{folder}/submission_file_x.sh';;\n" for job, folder in folders.items())
    shown = 'printf "JobId=%s JobName=x\\n   JobState=PENDING Reason=None\\n   Command=%s\\n" "$3" "$c"'
    slurm.say("scontrol", do=f'case "$3" in\n{cases}esac\n{shown}')


def test_what_is_submitted_anew_is_not_what_a_controller_takes_late(
    store: SweepStore, slurm: FakeSlurm, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The controller answers before it looks at what it was given while it was silent."""
    monkeypatch.setattr(slurm_jobs, "SETTLE_S", 0.1)
    monkeypatch.setattr(slurm_queue, "SILENT_POLL_S", 0.0)
    jobs = jobs_in(store)
    slurm.say("sbatch", err="sbatch: error: Batch job submission failed: Socket timed out\n", rc=1)
    assert jobs.submit([launch()]) is None
    shows_scripts(slurm, {"41": store.launch_folder("001-verify") / "job"})
    slurm.say("squeue", "41\n", do=f"[ -e '{slurm.folder}/asked' ] || {{ touch '{slurm.folder}/asked'; exit 0; }}")
    job = jobs.submit([launch()])
    assert job is not None and job.job_id == "41"
    assert len(slurm.asked("sbatch")) == 1


def test_a_silent_controller_is_told_of_once_and_so_is_its_return(
    store: SweepStore, slurm: FakeSlurm, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    job = submitted(store, slurm)
    silent = "slurm_load_jobs error: Unable to contact slurm controller (connect failure)\n"
    slurm.say("squeue", err=silent, rc=1)
    assert job.poll() and job.poll()
    told = "meshsweep: Slurm does not answer squeue; waiting for it, jobs go on meanwhile\n"
    assert capsys.readouterr().err == told
    slurm.say("squeue", "41|RUNNING|None|n1\n")
    assert job.poll() and job.poll()
    assert capsys.readouterr().err == "meshsweep: Slurm answers again\n"
    monkeypatch.setattr(commands, "NOTICE_S", 0.05)
    slurm.say("squeue", "41|RUNNING|None|n1\n", do="sleep 0.5")
    assert job.poll()
    assert capsys.readouterr().err == told + "meshsweep: Slurm answers again\n"
    with pytest.raises(ControllerSilent, match=r"squeue did not answer within 0\.?\d* s"):
        commands.call("squeue", limit_s=0.2)


def test_accounting_that_is_closed_is_no_silence(
    store: SweepStore, slurm: FakeSlurm, capsys: pytest.CaptureFixture[str]
) -> None:
    job = submitted(store, slurm)
    slurm.say("scontrol", err="slurm_load_jobs error: Invalid job id specified\n", rc=1)
    slurm.say("sacct", err="sacct: error: Sending PersistInit msg: Connection refused\n", rc=1)
    assert job.poll() and not job.poll()
    assert job.state == "UNKNOWN"
    assert capsys.readouterr().err == ""


def test_a_silent_controller_is_not_asked_again_for_each_job(store: SweepStore, slurm: FakeSlurm) -> None:
    queue = slurm_queue.Queue(every_s=0.4)
    for job_id in ("41", "42", "43"):
        queue.watch(job_id)
    slurm.say("squeue", err="Unable to contact slurm controller\n", rc=1, do="sleep 0.5")
    assert [queue.status(job_id) for job_id in ("41", "42", "43")] == [None] * 3
    assert len(slurm.asked("squeue")) == 1


def test_a_cancel_waits_for_a_silent_controller(
    store: SweepStore, slurm: FakeSlurm, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(slurm_queue, "SILENT_POLL_S", 0.0)
    monkeypatch.setattr(slurm_queue, "END_WITHIN_S", 1.0)
    job = submitted(store, slurm)
    second = (
        f"[ -e '{slurm.folder}/first' ] || {{ touch '{slurm.folder}/first'; echo Connection refused >&2; exit 1; }}"
    )
    slurm.say("scancel", do=f"{second}\nrm '{slurm.folder}/first'")
    # silent again for longer than an end may take, then it says that the job is gone
    gone = f"echo x >>'{slurm.folder}/count'; [ $(wc -l <'{slurm.folder}/count') -gt 8 ] && exit 0"
    slurm.say("squeue", err="Unable to contact slurm controller\n", rc=1, do=gone)
    slurm.say("scontrol", "JobId=41 JobName=x\n   JobState=CANCELLED Reason=None\n")
    job.cancel()
    assert slurm.asked("scancel") == [["41"], ["41"]]
    assert job.state == "CANCELLED"


def subprocess_submit(store: SweepStore) -> int:
    """Submit in a process of its own, which its sbatch kills; no fork, which would copy locks of other threads."""
    code = (
        "import sys; from pathlib import Path; from harness.store import SweepStore;"
        "from tests.unit.slurm.test_jobs import jobs_in, launch;"
        "jobs_in(SweepStore.open(Path(sys.argv[1]))).submit([launch()])"
    )
    root = Path(__file__).parents[3]
    return subprocess.run([sys.executable, "-c", code, str(store.folder)], cwd=root, timeout=120).returncode


@pytest.mark.parametrize(
    ("scontrol", "sacct", "expected"),
    [
        ("JobId=41 JobName=x\n   JobState=TIMEOUT Reason=TimeLimit\n", "", FailureClass.TIME_LIMIT),
        ("", "41|PREEMPTED|0:0|n1|\n", FailureClass.PREEMPTED),
        (
            "JobId=41 JobName=x\n   JobState=RUNNING Reason=None\n",
            "41|CANCELLED by 3|0:0|n1|\n",
            FailureClass.CANCELLED,
        ),
        ("", "", FailureClass.LOST),
    ],
    ids=["scontrol", "sacct", "late", "closed"],
)
def test_how_a_job_ended_is_asked_where_it_is_known(
    scontrol: str, sacct: str, expected: FailureClass, store: SweepStore, slurm: FakeSlurm
) -> None:
    job = submitted(store, slurm)
    slurm.say("squeue", "41|RUNNING|None|n1\n")
    assert job.poll() and job.state == "RUNNING"
    slurm.say("squeue", err="slurm_load_jobs error: Invalid job id specified\n", rc=1)
    error = "slurm_load_jobs error: Invalid job id specified"
    slurm.say("scontrol", scontrol, err="" if scontrol else error, rc=0 if scontrol else 1)
    slurm.say("sacct", sacct, err="" if sacct else "sacct: error: Access denied\n", rc=0 if sacct else 1)
    assert job.poll(), "missed once may be a hiccup"
    assert not job.poll()
    (record,) = collect(store.launch_folder("001-verify"), {})
    assert record.failure is not None and record.failure.failure_class is expected


def test_a_job_that_waits_for_what_cannot_come_is_cancelled(store: SweepStore, slurm: FakeSlurm) -> None:
    job = submitted(store, slurm)
    slurm.say("squeue", "41|PENDING|DependencyNeverSatisfied|\n")
    assert not job.poll()
    assert slurm.asked("scancel") == [["41"]]
    (record,) = collect(store.launch_folder("001-verify"), {})
    assert record.failure is not None and record.failure.failure_class is FailureClass.BAD_REQUEST
    assert "DependencyNeverSatisfied" in record.failure.message


def test_the_end_of_a_whole_job_blames_no_layout_of_several(store: SweepStore, slurm: FakeSlurm) -> None:
    job = submitted(store, slurm, launch("002-time", "ddp:r2", "fsdp:s2"))
    slurm.say("squeue", "")
    slurm.say("scontrol", "JobId=41 JobName=x\n   JobState=NODE_FAIL Reason=NodeDown\n   NodeList=n[1-2]\n")
    slurm.say("sinfo", "n1|idle\nn2|down*\n")
    assert job.poll() and not job.poll()
    records = collect(store.launch_folder("002-time"), {})
    assert [r.status for r in records] == ["interrupted", "interrupted"]
    assert {(r.failure.failure_class, r.failure.host) for r in records if r.failure} == {("node_failure", "n2")}
    for record in records:
        store.add(record)
    assert slurm_jobs.failed_hosts(store, launch("003-time", "ddp:r2", "fsdp:s2")) == ("n2",)
    jobs_in(store).submit([launch("003-time", "ddp:r2", "fsdp:s2")])
    script = sorted(store.launch_folder("003-time").glob("job/*_submission.sh"))[-1]
    assert "#SBATCH --exclude=bad1,n2\n" in script.read_text()


def test_where_too_few_nodes_are_left_the_failed_one_is_used_again(store: SweepStore, slurm: FakeSlurm) -> None:
    test_the_end_of_a_whole_job_blames_no_layout_of_several(store, slurm)
    refuse = (
        'for a in "$@"; do :; done; if grep -q "exclude=bad1,n2" "$a"; then echo "sbatch: error: no" >&2; exit 1; fi'
    )
    slurm.say("sbatch", ACCEPTED, do=refuse)
    job = jobs_in(store).submit([launch("004-time", "ddp:r2", "fsdp:s2")])
    assert isinstance(job, SlurmJob) and job.file.end is None and job.job_id == "41"


def test_no_more_jobs_than_allowed_at_a_time(store: SweepStore) -> None:
    jobs = SlurmJobs(store, OPTIONS.model_copy(update={"max_jobs": 2}), {})
    assert [jobs.take(waiting=3, running=running) for running in (0, 1, 2)] == [1, 1, 0]
    assert [jobs_in(store).take(waiting=3, running=running) for running in (0, 1)] == [1, 0], "nodes may be shared"
    alone = SlurmJobs(store, OPTIONS.model_copy(update={"profile": Profile(exclusive=True)}), {})
    assert alone.take(waiting=3, running=50) == 1


@pytest.mark.parametrize(
    ("profile", "per_node", "room"),
    [
        (Profile(), (4, 4), True),
        (Profile(exclusive=True), (1,), False),
        (Profile(gpus_per_node=4), (4, 4), False),
        (Profile(gpus_per_node=4), (4, 2), True),
        (Profile(gpus=6), (4, 2), False),
        (Profile(gpus=6), (2, 2), True),
    ],
)
def test_which_jobs_leave_room_for_another_on_their_nodes(
    profile: Profile, per_node: tuple[int, ...], room: bool
) -> None:
    assert leaves_room(profile, Ranks(device="cpu", per_node=per_node)) is room


def test_without_slurm_or_with_a_path_that_slurm_rewrites_one_line_says_so(
    store: SweepStore, tmp_path: Path, plan: SweepPlan, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ExecutionError, match="no srun here; run this where Slurm is installed"):
        jobs_in(store).submit([launch()])
    with pytest.raises(ExecutionError, match="cannot run squeue"):
        commands.queue(["1"])
    with pytest.raises(UsageError, match='"%", which Slurm replaces; use another --results'):
        SlurmJobs(SweepStore.create(tmp_path / "100%", plan), OPTIONS, {})
