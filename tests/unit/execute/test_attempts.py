"""A launch on several nodes, and one whose job is started again: files of attempts are never mixed."""

from __future__ import annotations

import socket
from collections import namedtuple
from pathlib import Path

import pytest

from harness.execute import network
from harness.execute.agent import Place, is_own
from harness.launch import folder as files
from harness.launch.folder import LaunchOutcome, RankEnd, Rendezvous
from harness.launch.job_file import SlurmJobFile, write_job_file
from harness.launch.progress import ProgressWriter, create, read, started
from harness.spec import Launch, Ranks
from tests.unit.factories import layout, make_plan

PLAN = make_plan(("ddp:r3",), world_size=3).model_copy(update={"ranks": Ranks(device="cpu", per_node=(2, 1))})
LAUNCH = Launch(launch_id="l", runs=(PLAN.run(layout("ddp:r3"), "verify"),), design="launches")


def outcome(node: int, attempt: str, *ends: RankEnd) -> LaunchOutcome:
    return LaunchOutcome(
        host=f"n{node}", node=node, attempt=attempt, started_at="", started_unix=1, wall_s=1, timed_out=False, ends=ends
    )


def test_positions_of_nodes_with_different_counts_are_in_rank_order(tmp_path: Path) -> None:
    assert read(tmp_path, (2, 1)) == [] and not started(tmp_path)
    create(tmp_path, (2, 1), node=1)
    ProgressWriter(tmp_path, 2, (2, 1)).at(0, "gate", 5.0)
    assert [position.phase for position in read(tmp_path, (2, 1))] == ["start", "start", "gate"]
    create(tmp_path, (2, 1), node=0)
    ProgressWriter(tmp_path, 1, (2, 1)).at(0, "build", 5.0)
    assert [position.phase for position in read(tmp_path, (2, 1))] == ["start", "build", "gate"]


def test_a_launch_has_ended_when_every_node_says_so(tmp_path: Path) -> None:
    files.begin_attempt(tmp_path, "7.0")
    files.write_outcome(tmp_path, outcome(0, "7.0", RankEnd(rank=0), RankEnd(rank=1)), nodes=2)
    assert not files.has_ended(tmp_path, LAUNCH)
    files.write_outcome(tmp_path, outcome(1, "7.0", RankEnd(rank=2, exit_code=-9)), nodes=2)
    assert files.has_ended(tmp_path, LAUNCH) and not files.ended_well(tmp_path, LAUNCH)
    files.write_outcome(tmp_path, outcome(1, "7.0", RankEnd(rank=2)), nodes=2)
    assert files.ended_well(tmp_path, LAUNCH)


def test_a_job_that_starts_again_puts_the_earlier_attempt_aside(tmp_path: Path) -> None:
    files.write_launch(tmp_path, LAUNCH)
    files.begin_attempt(tmp_path, "7.0")
    files.publish(tmp_path, Rendezvous(attempt="7.0", addresses=("198.18.0.1",), port=1))
    (tmp_path / "rank0.jsonl").write_text('{"kind": "step"}\n')
    with (tmp_path / "rank1.jsonl").open("w") as straggler:
        files.tell_broken(tmp_path, "7.0")
        files.write_outcome(tmp_path, outcome(1, "7.0", RankEnd(rank=2)), nodes=2)
        files.begin_attempt(tmp_path, "7.0")
        assert (tmp_path / "rank0.jsonl").exists(), "the same attempt changes nothing"
        files.begin_attempt(tmp_path, "7.1")
        straggler.write("late\n")
    assert files.read_samples(tmp_path, 0) == ([], 0) and not (tmp_path / "rank1.jsonl").exists()
    assert (tmp_path / "attempt-7.0" / "rank1.jsonl").read_text() == "late\n"
    assert files.read_rendezvous(tmp_path, "7.1") is None
    assert files.read_outcomes(tmp_path, LAUNCH) == (None, None)
    assert not files.is_broken(tmp_path, "7.1")
    # an agent of the earlier attempt that outlived its job
    files.write_outcome(tmp_path, outcome(0, "7.0", RankEnd(rank=0)), nodes=2)
    assert files.read_outcomes(tmp_path, LAUNCH) == (None, None)


def test_a_job_that_was_taken_late_leaves_alone_what_is_another_jobs_or_over(tmp_path: Path) -> None:
    assert is_own(tmp_path, "12.0"), "nobody has noted a job yet"
    write_job_file(tmp_path, SlurmJobFile(name="x", submitted_at="now"))
    assert is_own(tmp_path, "12.0")
    write_job_file(tmp_path, SlurmJobFile(name="x", job_id="12", submitted_at="now"))
    assert is_own(tmp_path, "12.0") and is_own(tmp_path, "12.1")
    assert not is_own(tmp_path, "11.0")
    (tmp_path / "collected").touch()
    assert not is_own(tmp_path, "12.1")


def test_a_task_knows_its_node_and_attempt() -> None:
    environ = {"SLURM_PROCID": "3", "SLURMD_NODENAME": "n3", "SLURM_JOB_ID": "12", "SLURM_RESTART_COUNT": "2"}
    assert Place.of_task(environ) == Place(node=3, host="n3", attempt="12.2")
    assert Place.of_task({**environ, "MESHSWEEP_JOB_START": "17.25"}).allocated_unix == 17.25


Entry = namedtuple("Entry", "family address")


def test_the_interface_that_is_named_comes_first_and_local_ones_never(monkeypatch: pytest.MonkeyPatch) -> None:
    inet, inet6 = socket.AF_INET, socket.AF_INET6
    found = {
        "lo": [Entry(inet, "127.0.0.1"), Entry(inet6, "::1")],
        "docker0": [Entry(inet, "172.17.0.1")],
        "eth0": [Entry(inet6, "fe80::1%eth0"), Entry(inet6, "2001:db8::1"), Entry(inet, "198.18.0.5")],
        "ib0": [Entry(inet, "198.19.0.5"), Entry(socket.AF_PACKET, "00:11")],
    }
    monkeypatch.setattr("psutil.net_if_addrs", lambda: found)
    texts = [one.text for one in network.addresses({})]
    assert texts == ["198.18.0.5", "198.19.0.5", "2001:db8::1", "172.17.0.1"]
    assert network.addresses({"GLOO_SOCKET_IFNAME": "ib0"})[0] == ("198.19.0.5", "ib0")
    assert network.addresses({"NCCL_SOCKET_IFNAME": "^docker,ib"})[0].interface == "ib0"


def test_the_first_address_that_answers_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        assert network.reach(["not an address", "127.0.0.1"], port) == ("127.0.0.1", "lo")
    assert network.reach(["127.0.0.1"], port) is None
