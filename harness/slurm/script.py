"""The text of a job: a pure function of a profile and a request, so that it can be read, compared and kept.

Only plain words stand in ``#SBATCH`` lines. Whatever else a value holds (blanks, quotes, line breaks, letters beyond
ASCII) goes to sbatch as an argument of its own, which no shell and no parser of comments ever reads.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from pydantic import Field

from harness.base import Frozen
from harness.slurm.profile import Container, Profile

SETUP_FAILED = 78  # EX_CONFIG
DISK_FULL = 74  # EX_IOERR: what a task ends with when it cannot even write why
SETUP_MESSAGE = "meshsweep: a set-up line failed"
CALL_FILE = "call.pkl"  # in a job's folder: what its tasks are to call
_PLAIN = re.compile(r"[A-Za-z0-9_./:,@%+\[\]=^~-]+\Z")


class JobRequest(Frozen):
    """What one job asks for beside its profile. ``folder`` takes the job's output; ``time_min`` is in minutes."""

    name: str
    folder: str
    nodes: int = Field(ge=1)
    gpus_per_node: int | None = None
    gpus: int | None = None
    time_min: int = Field(ge=1)
    depend: str | None = None
    exclude: str | None = None
    nodelist: str | None = None


class Submission(NamedTuple):
    """A batch script, and the options of sbatch that a script cannot carry."""

    text: str
    arguments: tuple[str, ...]


def submission(profile: Profile, request: JobRequest, module: Sequence[str], python: str) -> Submission:
    """The job that runs ``python -u -m module...`` once on every node.

    ``python`` is used where the profile names none and has no container.
    """
    options = _options(profile, request)
    plain = {name: value for name, value in options.items() if value is True or _PLAIN.match(str(value))}
    arguments = tuple(f"--{name}={value}" for name, value in options.items() if name not in plain)
    lines = ["#!/bin/bash"]
    lines += [f"#SBATCH --{name}" + ("" if value is True else f"={value}") for name, value in plain.items()]
    if arguments:
        lines += ["", "# given to sbatch beside this file:", *(f"#   {json.dumps(one)}" for one in arguments)]
    lines += ["", *_environment(profile.environment), *_setup(profile)]
    command = _command(profile, request, module, python)
    lines += [
        "# submitit names the call after the job only when sbatch has answered, and may not live to see that",
        f'ln -s {CALL_FILE} {shlex.quote(request.folder)}/"$SLURM_JOB_ID"_submitted.pkl 2>/dev/null || true',
        "export SUBMITIT_EXECUTOR=slurm",
        "export MESHSWEEP_JOB_START=$(date +%s.%N)",
        f"exec {command}",
        "",
    ]
    return Submission("\n".join(lines), arguments)


def _options(profile: Profile, request: JobRequest) -> dict[str, str | int | bool]:
    options: dict[str, str | int | bool | None] = {
        "job-name": request.name,
        "partition": profile.partition,
        "account": profile.account,
        "qos": profile.qos,
        "constraint": profile.constraint,
        "exclusive": profile.exclusive,
        "nodes": request.nodes,
        "ntasks-per-node": 1,
        "cpus-per-task": profile.cpus_per_node,
        "gpus-per-node": _typed(profile, request.gpus_per_node),
        "gpus": _typed(profile, request.gpus),
        "mem": profile.memory,
        "time": profile.time_min or request.time_min,
        "dependency": request.depend,
        "exclude": request.exclude,
        "nodelist": request.nodelist,
        "comment": profile.comment,
        "export": "ALL",
        "requeue" if profile.requeue else "no-requeue": True,
        "open-mode": "append",
        "output": f"{request.folder}/%j_batch.log",
        **profile.directives,
    }
    return {name: value for name, value in options.items() if value is not None and value is not False}


def _typed(profile: Profile, gpus: int | None) -> str | int | None:
    return f"{profile.gpu_type}:{gpus}" if gpus is not None and profile.gpu_type else gpus


def _environment(variables: Mapping[str, str]) -> list[str]:
    lines = [f"export {name}={shlex.quote(value)}" for name, value in variables.items()]
    return ["# environment of the profile", *lines, ""] if lines else []


def _setup(profile: Profile) -> list[str]:
    """Set-up lines, each checked: what fails there is the site's set-up, not a layout."""
    commands = [f"module load {shlex.quote(name)}" for name in profile.modules]
    commands += profile.setup
    commands = [line for line in commands if line.strip() and not line.lstrip().startswith("#")]
    if not commands:
        return []
    lines = [
        "# set-up lines of the profile",
        "setup_failed() {",
        "  trap - EXIT",
        f'  printf \'{SETUP_MESSAGE} (exit code %s): %s\\n\' "$1" "$2" >&2',
        f"  exit {SETUP_FAILED}",
        "}",
        'trap \'setup_failed "$?" "one of them ended the shell"\' EXIT',
    ]
    for command in commands:
        lines += ["{", command, f'}} || setup_failed "$?" {shlex.quote(command)}']
    return [*lines, "trap - EXIT", ""]


def _command(profile: Profile, request: JobRequest, module: Sequence[str], python: str) -> str:
    """srun with one task a node; a task that fails ends them all, for none can go on alone."""
    srun = ["srun", "--unbuffered", "--kill-on-bad-exit=1", "--cpu-bind=none"]
    srun += [f"--output={request.folder}/%j_%t_log.out", f"--error={request.folder}/%j_%t_log.err", *profile.srun]
    inside: list[str] = []
    if profile.container is not None:
        flags, inside = _container(profile.container)
        srun += flags
        python = "python3"
    return shlex.join([*srun, *inside, profile.python or python, "-u", "-m", *module])


def _container(container: Container) -> tuple[list[str], list[str]]:
    """Options of srun, and the command that goes before python."""
    mounts = [mount if ":" in mount else f"{mount}:{mount}" for mount in container.mounts]
    if container.runtime == "pyxis":
        flags = [f"--container-image={container.image}"]
        return flags + ([f"--container-mounts={','.join(mounts)}"] if mounts else []), []
    binds = [flag for mount in mounts for flag in ("--bind", mount)]
    return [], ["apptainer", "exec", "--nv", *binds, container.image]


def job_name(*parts: str) -> str:
    """A job's name: which sweep it belongs to, and which launch."""
    return ":".join(("meshsweep", *parts))
