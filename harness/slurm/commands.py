"""Slurm's commands, called with an environment in which only the cluster's address is left of Slurm's variables."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from harness.errors import ExecutionError, UsageError
from harness.slurm import state
from harness.slurm.state import UNKNOWN, JobStatus

CALL_LIMIT_S = 60.0
NOTICE_S = 5.0  # a command that takes longer is told of
_AMBIENT = ("SBATCH_", "SLURM_", "SQUEUE_", "SACCT_", "SINFO_", "SCANCEL_", "SCONTROL_", "SRUN_", "SALLOC_", "SLURMD_")
# Where the cluster is and how one proves who one is.
_KEPT = ("SLURM_CONF", "SLURM_CONF_SERVER", "SLURM_JWT", "SLURM_SACK_KEY")
# of a machine of no cluster; or of a silent controller, where nodes fetch their configuration from it
_UNCONFIGURED = "could not establish a configuration source"
_SILENT = (
    "unable to contact slurm controller",
    "unable to contact",
    "socket timed out",
    "connection refused",
    "connection timed out",
    "zero bytes were transmitted",
    "communication connection failure",
    "slurm backup controller in standby mode",
    "unexpected message received",
    _UNCONFIGURED,
)


class ControllerSilent(ExecutionError):
    """The controller did not answer; jobs go on without it."""


class CommandFailed(ExecutionError):
    """A command of Slurm's said no. ``output`` is what it said."""

    def __init__(self, command: str, output: str) -> None:
        self.output = output.strip()
        super().__init__(f"{command} failed: {' '.join(self.output.split()) or 'no message'}")


class Silence:
    """Tells a person on stderr, once each time, that the controller does not answer and that it does again."""

    def __init__(self) -> None:
        self._told = False
        self._unsaid = False
        self.answered = False  # any command, ever

    @contextlib.contextmanager
    def unsaid(self) -> Iterator[None]:
        """Nothing is told meanwhile, by one that shows it in its own way."""
        before, self._unsaid = self._unsaid, True
        try:
            yield
        finally:
            self._unsaid = before

    def begins(self, command: str) -> None:
        """``command`` waits, or has waited in vain."""
        if not self._told and not self._unsaid:
            self._told = True
            _tell(f"Slurm does not answer {command}; waiting for it, jobs go on meanwhile")

    def ends(self) -> None:
        """Some command was answered."""
        self.answered = True
        if self._told:
            self._told = False
            _tell("Slurm answers again")


def _tell(text: str) -> None:
    print(f"meshsweep: {text}", file=sys.stderr, flush=True)


SILENCE = Silence()


def ambient(environ: Mapping[str, str]) -> tuple[str, ...]:
    """Names of variables that would change what a command of Slurm's does or a job finds."""
    return tuple(sorted(n for n in environ if n.startswith(_AMBIENT) and n not in _KEPT))


def clean_environ(environ: Mapping[str, str] = os.environ) -> dict[str, str]:
    """``environ`` without ambient variables."""
    dropped = set(ambient(environ))
    return {name: value for name, value in environ.items() if name not in dropped}


def is_silence(output: str) -> bool:
    """Whether a command's output says that the controller did not answer."""
    low = output.lower()
    return any(text in low for text in _SILENT)


def call(*command: str, limit_s: float = CALL_LIMIT_S) -> str:
    """Standard output of one command.

    Raises:
        ControllerSilent: no answer within ``limit_s`` seconds, or the command says so.
        CommandFailed: any other failure.
        ExecutionError: the command is not installed.
        UsageError: this machine is of no cluster.
    """
    code, output, errors = _run(command, limit_s)
    if code != 0 and _UNCONFIGURED in errors.lower() and not SILENCE.answered:
        raise UsageError(
            f"{command[0]} finds no configuration of Slurm on this machine; run this on a login node of the cluster, "
            "or name its slurm.conf with SLURM_CONF"
        )
    if code != 0 and is_silence(errors):
        SILENCE.begins(command[0])
        raise ControllerSilent(f"{command[0]}: {' '.join(errors.split())}; the controller does not answer")
    SILENCE.ends()
    if code == 0:
        return output
    raise CommandFailed(command[0], errors or output)


def _run(command: Sequence[str], limit_s: float) -> tuple[int, str, str]:
    """Exit code, output and errors of a command; that it is waited for is said after a moment."""
    pipe = subprocess.PIPE
    try:
        process = subprocess.Popen(
            command, stdout=pipe, stderr=pipe, env=clean_environ(), text=True, encoding="utf-8", errors="replace"
        )
    except OSError as error:
        raise ExecutionError(f"cannot run {command[0]}: {error.strerror}; run this where Slurm is installed") from error
    with process:
        try:
            with contextlib.suppress(subprocess.TimeoutExpired):
                return _answer(process, min(NOTICE_S, limit_s))
            SILENCE.begins(command[0])
            return _answer(process, max(0.0, limit_s - NOTICE_S))
        except subprocess.TimeoutExpired:
            raise ControllerSilent(
                f"{command[0]} did not answer within {limit_s:.0f} s; the controller is busy"
            ) from None
        finally:
            process.kill()


def _answer(process: subprocess.Popen[str], within_s: float) -> tuple[int, str, str]:
    output, errors = process.communicate(timeout=within_s)
    return process.returncode, output, errors


def queue(job_ids: Iterable[str]) -> dict[str, JobStatus]:
    """Status of those of ``job_ids`` that the queue still knows."""
    ids = ",".join(job_ids)
    if not ids:
        return {}
    try:
        text = call("squeue", "-h", "-a", "-t", "all", "-j", ids, "-o", state.SQUEUE_FORMAT)
    except CommandFailed as error:
        if "invalid job id" in error.output.lower():
            return {}
        raise
    return state.parse_squeue(text)


def details(job_id: str) -> JobStatus:
    """All that is known of one job: from the controller while it remembers, else from accounting.

    State UNKNOWN where neither says more, as with accounting that is closed to users.

    Raises:
        ControllerSilent: the controller does not answer.
    """
    status = None
    with contextlib.suppress(CommandFailed):
        status = state.parse_scontrol(call("scontrol", "show", "job", job_id))
    if status is not None and status.final:
        return status
    try:
        # where accounting is closed, it is for good: nobody waits for it
        with SILENCE.unsaid():
            text = call("sacct", "-n", "-P", "-X", "-D", "-j", job_id, "-o", state.SACCT_FIELDS)
        accounted = state.parse_sacct(text).get(job_id)
    except ExecutionError:
        accounted = None
    if accounted is not None and (status is None or accounted.final):
        return accounted
    return status or JobStatus(job_id=job_id, state=UNKNOWN, source="none")


def named(name: str, folder: Path) -> list[str]:
    """Ids of this user's jobs of that name, oldest first, that the queue still knows and whose script is in ``folder``.

    A sweep of the same name may have other jobs of that name, with scripts elsewhere.
    """
    lines = call("squeue", "-h", "-a", "-t", "all", "--me", "-n", name, "-o", "%i").split()
    return sorted((line for line in lines if line.isdigit() and _runs_from(line, folder)), key=int)


def _runs_from(job_id: str, folder: Path) -> bool:
    try:
        return f"\n   Command={folder}/" in call("scontrol", "show", "job", job_id)
    except CommandFailed:
        return False


def down(nodes: Sequence[str]) -> tuple[str, ...]:
    """Those of ``nodes`` that are down; empty where nobody says."""
    if not nodes:
        return ()
    try:
        return state.parse_down_nodes(call("sinfo", "-h", "-N", "-n", ",".join(nodes), "-o", "%N|%T"))
    except ExecutionError:
        return ()


def cancel(job_id: str) -> None:
    """Ask the controller to end a job; one that has ended already is no error.

    Raises:
        ControllerSilent: it did not answer.
    """
    try:
        call("scancel", job_id)
    except CommandFailed as error:
        if "invalid job id" not in error.output.lower() and "already" not in error.output.lower():
            raise
