"""Texts of squeue, scontrol, sacct and sinfo as clusters print them, read into one status."""

from __future__ import annotations

import pytest

from harness.failure import FailureClass as F
from harness.failure import disk_was_full
from harness.slurm.script import DISK_FULL
from harness.slurm.state import (
    UNKNOWN,
    JobStatus,
    parse_down_nodes,
    parse_sacct,
    parse_scontrol,
    parse_squeue,
)
from harness.slurm.verdict import setup_failure, weigh

SQUEUE = """\
4711|RUNNING|None|gpu[01-02]
4712|PENDING|Resources|
4713|PENDING|BadConstraints|
4714|COMPLETING|NodeDown|gpu03
4715_2|RUNNING|None|gpu04
slurm_load_jobs: warning of some kind
"""
SACCT = """\
4711|NODE_FAIL|0:0|gpu[01-02]|None
4711|COMPLETED|0:0|gpu[03-04]|None
4712|CANCELLED by 1000|0:15|gpu01|None
4713|OUT_OF_MEMORY|0:125|gpu01|None
4713.batch|OUT_OF_MEMORY|0:125|gpu01|
4714|CANCELLED by 0|0:0|None assigned|
4715|FAILED|78:0|gpu01
"""
SCONTROL = """\
JobId=17 JobName=a JobState=FAILED Reason=None
   UserId=root(0) GroupId=root(0) MCS_label=N/A
   Priority=4294901756 Nice=0 Account=(null) QOS=normal
   JobState=TIMEOUT Reason=TimeLimit Dependency=(null)
   Requeue=1 Restarts=2 BatchFlag=1 Reboot=0 ExitCode=0:15
   RunTime=00:01:04 TimeLimit=00:01:00 TimeMin=N/A
   ReqNodeList=(null) ExcNodeList=(null)
   NodeList=ms0n[1-2]
   BatchHost=ms0n1
   Command=/results/x JobState=COMPLETED Reason=None
   Comment=JobState=RUNNING
"""


def test_squeue_lines_and_nothing_else_are_read() -> None:
    found = parse_squeue(SQUEUE)
    assert set(found) == {"4711", "4712", "4713", "4714", "4715_2"}
    assert found["4711"].active and found["4711"].nodes == ("gpu01", "gpu02") and found["4711"].reason is None
    assert [found[job].never for job in ("4711", "4712", "4713")] == [False, False, True]
    assert found["4714"].state == "COMPLETING"


def test_the_last_of_several_starts_counts_in_sacct() -> None:
    found = parse_sacct(SACCT)
    assert found["4711"].state == "COMPLETED" and found["4711"].nodes == ("gpu03", "gpu04")
    assert (found["4712"].state, found["4712"].exit_signal) == ("CANCELLED", 15)
    assert (found["4713"].state, found["4713"].exit_signal) == ("OUT_OF_MEMORY", 125)
    assert found["4714"].nodes == ()
    assert (found["4715"].state, found["4715"].exit_code) == ("FAILED", 78)
    assert parse_sacct("sacct: error: You are not allowed\n") == {}


def test_what_a_user_wrote_does_not_pass_for_a_state() -> None:
    found = parse_scontrol(SCONTROL)
    assert found == JobStatus(
        job_id="17",
        state="TIMEOUT",
        reason="TimeLimit",
        exit_code=0,
        exit_signal=15,
        nodes=("ms0n1", "ms0n2"),
        restarts=2,
        source="scontrol",
    )
    assert parse_scontrol("") is None
    assert parse_scontrol("slurm_load_jobs error: Invalid job id specified") is None


@pytest.mark.parametrize("word", ["REQUEUED", "REQUEUE_HOLD", "SPECIAL_EXIT", "CONFIGURING", "COMPLETING", "SUSPENDED"])
def test_a_job_that_will_run_again_is_not_over(word: str) -> None:
    status = JobStatus(job_id="1", state=word)
    assert status.active and not status.final


def test_unknown_is_neither_active_nor_final() -> None:
    status = JobStatus(job_id="1", state=UNKNOWN)
    assert not status.active and not status.final


def test_down_nodes_are_found_by_word_or_star() -> None:
    text = "n1|idle\nn2|down*\nn3|mixed\nn4|idle*\nn4|idle*\nn5|drained\nn6|fail\n"
    assert parse_down_nodes(text) == ("n2", "n4", "n6")


NOTHING = (F.LOST, "no output")
KILLED = (F.CRASH, "killed by signal 9 (SIGKILL)")
PEER = (F.NETWORK, "Connection closed by peer")
OOM = (F.DEVICE_OOM, "CUDA out of memory")


@pytest.mark.parametrize(
    ("state", "ranks", "log", "expected"),
    [
        ("TIMEOUT", KILLED, NOTHING, F.TIME_LIMIT),
        ("DEADLINE", NOTHING, NOTHING, F.TIME_LIMIT),
        ("NODE_FAIL", OOM, NOTHING, F.NODE_FAILURE),
        ("BOOT_FAIL", NOTHING, NOTHING, F.NODE_FAILURE),
        ("PREEMPTED", PEER, NOTHING, F.PREEMPTED),
        ("CANCELLED", KILLED, NOTHING, F.CANCELLED),
        ("CANCELLED", OOM, NOTHING, F.DEVICE_OOM),
        ("OUT_OF_MEMORY", KILLED, NOTHING, F.HOST_OOM),
        ("REFUSED", NOTHING, NOTHING, F.BAD_REQUEST),
        ("NEVER", NOTHING, NOTHING, F.BAD_REQUEST),
        ("FAILED", KILLED, PEER, F.CRASH),
        ("FAILED", NOTHING, (F.CONFIG, "ModuleNotFoundError: No module named 'harness'"), F.CONFIG),
        ("FAILED", KILLED, (F.PREEMPTED, "CANCELLED AT 2026-11-30T03:49:54 DUE TO PREEMPTION"), F.PREEMPTED),
        ("FAILED", OOM, (F.PREEMPTED, "CANCELLED AT 2026-11-30T03:49:54 DUE TO PREEMPTION"), F.DEVICE_OOM),
        ("FAILED", NOTHING, NOTHING, F.CRASH),
        ("COMPLETED", NOTHING, NOTHING, F.LOST),
        (UNKNOWN, KILLED, NOTHING, F.CRASH),
        (UNKNOWN, NOTHING, NOTHING, F.LOST),
    ],
)
def test_the_cause_goes_before_its_symptoms(state: str, ranks: tuple[F, str], log: tuple[F, str], expected: F) -> None:
    code = 1 if state == "FAILED" else None
    status = JobStatus(job_id="1", state=state, exit_code=code)
    assert weigh(status, ranks, log, "").failure is expected


def test_a_set_up_line_that_failed_is_found_in_the_output() -> None:
    line = "meshsweep: a set-up line failed (exit code 1): module load x"
    assert setup_failure(f"noise\n{line}\nmore\n") == line
    assert setup_failure("all is well\n") is None


def test_a_job_that_could_not_even_write_why_says_it_by_its_exit_code() -> None:
    cause = weigh(JobStatus(job_id="1", state="FAILED", exit_code=DISK_FULL), NOTHING, NOTHING, "")
    assert disk_was_full(cause.failure, cause.message)
