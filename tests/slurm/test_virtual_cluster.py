"""The virtual cluster does what a real one does, for real."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.slurm.cluster import COMMAND, MISSING, VirtualCluster, wait_until

TRANSFER = Path(__file__).with_name("transfer.py")
MEGABYTES = 8
TOTAL = MEGABYTES << 20
RATE_MBIT = 200


def transfer_mbit(cluster: VirtualCluster, source: str, target: str, total: int = TOTAL) -> float:
    """How fast bytes go from one node to another."""
    address = cluster.addresses[target]
    command = (sys.executable, str(TRANSFER), "receive", address, str(total))
    with subprocess.Popen(cluster.on_node(target, *command), stdout=subprocess.PIPE, text=True) as receiver:
        assert receiver.stdout is not None
        assert receiver.stdout.readline() == "listening\n"
        cluster.run(*cluster.on_node(source, sys.executable, TRANSFER, "send", address, str(total)))
        return float(receiver.stdout.read())


def best_mbit(cluster: VirtualCluster, source: str, target: str, enough: float, total: int = TOTAL) -> float:
    """The best of three, and of more where none is fast enough: a busy machine makes a transfer slower, nothing makes
    it faster than the link."""
    best = 0.0
    for tried in range(20):
        if tried >= 3 and best >= enough:
            break
        best = max(best, transfer_mbit(cluster, source, target, total))
    return best


def written(path: Path) -> str:
    """The first line of a file once it is whole."""
    line, end, _ = (path.read_text() if path.exists() else "").partition("\n")
    return line if end else ""


def test_a_step_runs_on_both_nodes(cluster: VirtualCluster) -> None:
    assert set(cluster.run("srun", "--nodes=2", "hostname").split()) == set(cluster.nodes)


def test_nodes_find_each_other_by_name(cluster: VirtualCluster) -> None:
    lookup = "import socket, os; print(*(socket.gethostbyname(n) for n in os.environ['NODES'].split()))"
    seen = cluster.run("srun", "--nodes=2", sys.executable, "-c", lookup, NODES=" ".join(cluster.nodes))
    assert seen.splitlines() == [" ".join(cluster.addresses.values())] * 2


def test_each_step_sees_its_own_gpus(cluster: VirtualCluster) -> None:
    shown = "echo $SLURMD_NODENAME $CUDA_VISIBLE_DEVICES"
    whole = cluster.run("srun", "--nodes=2", "--gres=gpu:4", "sh", "-c", shown)
    assert set(whole.splitlines()) == {f"{node} 0,1,2,3" for node in cluster.nodes}
    assert cluster.run("srun", "--gres=gpu:1", "--nodelist", cluster.nodes[0], "sh", "-c", shown).split()[1] == "0"


def test_jobs_share_a_node_and_not_its_gpus(cluster: VirtualCluster, tmp_path: Path) -> None:
    script = tmp_path / "job.sh"
    script.write_text("#!/bin/sh\necho $CUDA_VISIBLE_DEVICES\nsleep 600\n")
    options = ("--gres=gpu:2", f"--nodelist={cluster.nodes[0]}", f"--output={tmp_path}/%j.out")
    jobs = [cluster.sbatch(*options, script) for _ in range(2)]
    for job in jobs:
        assert cluster.wait(job, ["RUNNING"]) == "RUNNING"
    third = cluster.sbatch(*options, script)
    shown = [wait_until(lambda: written(tmp_path / f"{job}.out")) for job in jobs]  # noqa: B023
    assert sorted(shown) == ["0,1", "2,3"]
    queue = cluster.squeue()
    assert [queue[job] for job in [*jobs, third]] == ["RUNNING", "RUNNING", "PENDING"]
    cluster.run("scancel", *map(str, [third, *jobs]))
    assert {cluster.wait(job) for job in [third, *jobs]} == {"CANCELLED"}


def test_accounting_tells_how_a_job_ended(cluster: VirtualCluster) -> None:
    job = cluster.sbatch("--output=/dev/null", "--wrap=srun hostname; exit 3")
    assert cluster.wait(job) == "FAILED"
    rows = wait_until(lambda: (rows := cluster.sacct(job)) and rows[0]["State"] == "FAILED" and len(rows) > 2 and rows)
    assert rows[0]["ExitCode"] == "3:0"
    assert rows[0]["NodeList"] in cluster.nodes
    assert [row["JobID"] for row in rows] == [f"{job}", f"{job}.batch", f"{job}.0"]


def test_links_between_nodes_are_slow_and_those_inside_are_not(cluster: VirtualCluster) -> None:
    first, second = cluster.nodes
    assert best_mbit(cluster, first, second, 0.75 * RATE_MBIT) == pytest.approx(RATE_MBIT, rel=0.25)
    assert best_mbit(cluster, first, first, 2 * RATE_MBIT) > 2 * RATE_MBIT


def test_a_message_as_long_as_a_bucket_of_gradients_takes_its_time_too(cluster: VirtualCluster) -> None:
    """Also after a pause, in which a link must not save up what it did not send."""
    first, second = cluster.nodes
    assert best_mbit(cluster, first, second, 0.75 * RATE_MBIT, total=1 << 20) == pytest.approx(RATE_MBIT, rel=0.25)


def test_the_rate_can_be_changed(cluster: VirtualCluster) -> None:
    first, second = cluster.nodes
    try:
        cluster.set_rate("none")
        assert best_mbit(cluster, first, second, 2 * RATE_MBIT) > 2 * RATE_MBIT
        cluster.set_rate("100mbit")
        assert best_mbit(cluster, first, second, 75) == pytest.approx(100, rel=0.25)
    finally:
        cluster.set_rate("200mbit")


def test_counters_count_what_crosses_the_link(cluster: VirtualCluster) -> None:
    first, second = cluster.nodes
    before = cluster.wire_bytes(first), cluster.wire_bytes(second)
    transfer_mbit(cluster, first, second)
    crossed = cluster.wire_bytes(first) - before[0], cluster.wire_bytes(second) - before[1]
    assert TOTAL < crossed[0].sent < 1.1 * TOTAL
    assert TOTAL < crossed[1].received < 1.1 * TOTAL
    before = cluster.wire_bytes(first), cluster.wire_bytes(second)
    transfer_mbit(cluster, first, first)
    assert (cluster.wire_bytes(first) - before[0]).sent < 0.01 * TOTAL


def test_a_killed_node_fails_its_job_and_comes_back(cluster: VirtualCluster, tmp_path: Path) -> None:
    node = cluster.nodes[1]
    job = cluster.sbatch(
        f"--nodelist={node}", "--no-requeue", f"--output={tmp_path}/out", "--wrap=echo $$; exec sleep 600"
    )
    pid = wait_until(lambda: written(tmp_path / "out"))
    cluster.kill_node(node)
    try:
        assert cluster.wait(job) == "NODE_FAIL"
        assert cluster.node_state(node) == "down"
        assert not cluster.status()["up"]
        assert not Path(f"/proc/{pid}/exe").exists(), "the job's process is gone with its node"
    finally:
        cluster.start_node(node)
    assert cluster.status()["up"]
    assert cluster.run("srun", f"--nodelist={node}", "hostname").strip() == node


def test_a_job_in_the_low_partition_is_preempted(cluster: VirtualCluster) -> None:
    everything = ("--nodes=2", "--exclusive", "--output=/dev/null")
    low = cluster.sbatch(*everything, "--partition=low", "--no-requeue", "--wrap=sleep 600")
    cluster.wait(low, ["RUNNING"])
    main = cluster.sbatch(*everything, "--wrap=true")
    assert cluster.wait(low) == "PREEMPTED"
    assert cluster.wait(main) == "COMPLETED"


def test_what_is_missing_is_said_in_one_line(cluster: VirtualCluster) -> None:
    without_network = ("setpriv", "--bounding-set=-net_admin", "--inh-caps=-net_admin")
    done = subprocess.run(
        [*without_network, sys.executable, COMMAND, "up", "--dir", str(cluster.folder)], capture_output=True, text=True
    )
    assert done.returncode == MISSING
    assert len(done.stderr.splitlines()) == 1
    assert "needs root and the Debian packages slurm-wlm" in done.stderr
    assert "CAP_NET_ADMIN" in done.stderr
