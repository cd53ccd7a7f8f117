"""The text of a job: kept texts to compare with, and strings that mean something to a shell."""

from __future__ import annotations

import shlex
import subprocess
from pathlib import Path

import pytest

from harness.slurm.profile import Container, Profile, read_profile
from harness.slurm.script import SETUP_FAILED, SETUP_MESSAGE, JobRequest, Submission, job_name, submission

GOLDEN = Path(__file__).parent / "golden"
MODULE = ("submitit.core._submit", "/shared/results/s/launches/001/job")
PYTHON = "/opt/python/bin/python"
HOSTILE = (
    "a b",
    "it's",
    'say "x"',
    "$(touch pwned)",
    "`touch pwned`",
    "a\ntouch pwned\n",
    "größe ⊕",
    "a\\b",
    "#x; y",
    "",
)
HOSTILE_TEXT = 'it\'s "$(touch pwned)"\ntouch pwned\n`touch pwned` größe \\ #'


def request(**changes: object) -> JobRequest:
    values = {"name": job_name("s", "001-verify"), "folder": "/shared/results/s/launches/001/job", "nodes": 2}
    return JobRequest.model_validate({**values, "gpus_per_node": 4, "time_min": 7, **changes})


FULL = Profile(
    name="full",
    partition="gpu",
    account="project",
    qos="high",
    constraint="a100&ib",
    exclusive=True,
    requeue=True,
    time_min=30,
    gpus_per_node=8,
    gpu_type="a100",
    cpus_per_node=64,
    memory="0",
    comment="a sweep: it's $HOME\nsecond line",
    modules=("cuda/12.4",),
    setup=("# the site's", "source /shared/venv/bin/activate", 'if true; then\n  export SITE="x y"\nfi'),
    environment={"NCCL_SOCKET_IFNAME": "ib0", "NOTE": "it's $(id)\nnext"},
    python="/shared/venv/bin/python",
    srun=("--mpi=none",),
    directives={"reservation": "night", "contiguous": True, "mail-type": "FAIL,END"},
)
CASES = {
    "plain": (Profile(), request(gpus_per_node=None, nodes=1)),
    "virtual": (read_profile("virtual"), request()),
    "full": (FULL, request(depend="afterok:17", exclude="node[3-4]", nodelist="node1,node2")),
    "apptainer": (
        Profile(container=Container(runtime="apptainer", image="/images/a b.sif", mounts=("/shared", "/x:/data"))),
        request(),
    ),
    "pyxis": (Profile(container=Container(runtime="pyxis", image="site#image:1", mounts=("/shared",))), request()),
    "hostile": (
        Profile(comment=HOSTILE_TEXT, account=HOSTILE_TEXT, environment={"X": HOSTILE_TEXT}, python="/a b/python"),
        request(name=job_name("s", HOSTILE_TEXT), folder=f"/shared/{HOSTILE_TEXT}"),
    ),
}


def text_of(made: Submission) -> str:
    return made.text + "".join(f"argument {argument!r}\n" for argument in made.arguments)


@pytest.mark.parametrize("name", CASES)
def test_the_text_is_the_one_that_is_kept(name: str) -> None:
    profile, asked = CASES[name]
    path = GOLDEN / f"{name}.txt"
    assert path.is_file(), f"{path} is missing; write it by hand from a text that was checked"
    assert text_of(submission(profile, asked, MODULE, PYTHON)) == path.read_text(encoding="utf-8")


def run(made: Submission, folder: Path) -> tuple[subprocess.CompletedProcess[str], list[str]]:
    """Run a script with a srun that notes its arguments and what it finds in the environment."""
    tools = folder / "tools"
    tools.mkdir()
    srun = tools / "srun"
    srun.write_text('#!/bin/bash\nprintf "%s\\0" "$@" >"$OUT/arguments"\nprintf "%s" "$X" >"$OUT/x"\n')
    srun.chmod(0o755)
    script = folder / "script.sh"
    script.write_text(made.text)
    done = subprocess.run(
        ["bash", str(script)],
        capture_output=True,
        text=True,
        cwd=folder,
        env={"PATH": f"{tools}:/usr/bin:/bin", "OUT": str(folder)},
    )
    seen = folder / "arguments"
    return done, seen.read_text().split("\0")[:-1] if seen.exists() else []


@pytest.mark.parametrize("text", [*HOSTILE, HOSTILE_TEXT])
def test_hostile_text_arrives_unharmed_and_executes_nothing(text: str, tmp_path: Path) -> None:
    python = f"/bin/{text or 'python'}"
    profile = Profile(environment={"X": text}, comment=text, account=text, srun=(f"--label={text}",), python=python)
    made = submission(profile, request(name=text, folder=f"/f/{text}"), MODULE, PYTHON)
    done, arguments = run(made, tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    assert not (tmp_path / "pwned").exists()
    assert (tmp_path / "x").read_text() == text
    assert f"--label={text}" in arguments
    assert f"--output=/f/{text}/%j_%t_log.out" in arguments
    assert arguments[-5:] == [python, "-u", "-m", *MODULE]
    lines = [line for line in made.text.splitlines() if line.startswith("#SBATCH")]
    options = [*(line.removeprefix("#SBATCH ") for line in lines), *made.arguments]
    assert {f"--job-name={text}", f"--comment={text}", f"--account={text}"} <= set(options)
    # what a script's own parser of such lines would have to take apart is not in them
    assert all(shlex.split(line, comments=True) == line.split() for line in (one[1:] for one in lines))


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("false", "(exit code 1): false"),
        ("no_such_command_here --x", "(exit code 127): no_such_command_here --x"),
        ("(exit 7)", "(exit code 7): (exit 7)"),
        ("exit 5", "(exit code 5): one of them ended the shell"),
    ],
)
def test_a_set_up_line_that_fails_ends_the_job_and_says_which(line: str, said: str, tmp_path: Path) -> None:
    made = submission(Profile(setup=("true", line, "touch later")), request(), MODULE, PYTHON)
    done, arguments = run(made, tmp_path)
    assert done.returncode == SETUP_FAILED
    assert f"{SETUP_MESSAGE} {said}" in done.stderr
    assert arguments == [] and not (tmp_path / "later").exists()


def test_set_up_lines_change_the_environment_of_ranks(tmp_path: Path) -> None:
    made = submission(Profile(setup=("# a comment", "export X=from-setup")), request(), MODULE, PYTHON)
    done, _ = run(made, tmp_path)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "x").read_text() == "from-setup"


def test_gpus_of_nodes_that_differ_are_asked_for_as_a_sum() -> None:
    lines = submission(Profile(gpu_type="a100"), request(gpus_per_node=None, gpus=12), MODULE, PYTHON).text.splitlines()
    assert "#SBATCH --gpus=a100:12" in lines
    assert not [line for line in lines if "gpus-per-node" in line]
