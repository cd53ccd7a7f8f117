"""Up and down again, also after a crash, beside other clusters on the machine; nothing is left behind."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from tests.slurm.cluster import COMMAND, LONG_S, VirtualCluster, bring_up, virtual_cluster, wait_until

HOSTS = Path("/etc/hosts")
SMALL = ("--nodes", "1", "--gpus", "1", "--no-accounting")


@pytest.fixture
def folder(cluster: VirtualCluster, tmp_path: Path) -> Iterator[Path]:
    """For another cluster than the session's, taken down whatever a test does."""
    yield tmp_path / "other"
    virtual_cluster("down", "--dir", str(tmp_path / "other"))


def left_by(folder: Path, name: str) -> dict[str, list[str]]:
    """All on this machine that belongs to the cluster in ``folder``, by kind."""
    return {
        "processes": [text for text in map(process_text, Path("/proc").glob("[0-9]*")) if str(folder) in text],
        "mounts": [line for line in Path("/proc/mounts").read_text().splitlines() if str(folder) in line],
        "links": [
            link.name for link in Path("/sys/class/net").iterdir() if re.fullmatch(rf"{name}(n\d+|ctl)?", link.name)
        ],
        "hosts": [line for line in HOSTS.read_text().splitlines() if str(folder) in line or f" {name}" in line],
        "files": [str(path) for path in folder.rglob("*")],
    }


def process_text(entry: Path) -> str:
    """Arguments and environment; both name the cluster's folder in all that a cluster starts."""
    with suppress(OSError):
        return (entry / "cmdline").read_text(errors="replace") + (entry / "environ").read_text(errors="replace")
    return ""


def without_clusters(hosts: str) -> str:
    return re.sub(r"# begin: virtual cluster in (.*)\n(.*\n)*?# end: virtual cluster in \1\n", "", hosts)


def nothing(folder: Path, name: str) -> bool:
    return not folder.exists() and not any(left_by(folder, name).values())


def test_up_and_down_twice_leave_nothing(folder: Path) -> None:
    hosts, devices = HOSTS.read_text(), set(Path("/dev").iterdir())
    other = bring_up(folder, "--nodes", "3", "--gpus", "2")
    name, pids = other.status()["name"], other.status()["pids"]
    assert all(left_by(folder, name).values())

    assert virtual_cluster("up", "--dir", str(folder), "--nodes", "3", "--gpus", "2").returncode == 0
    assert other.status()["pids"] == pids, "nothing was started again"
    refused = virtual_cluster("up", "--dir", str(folder), "--nodes", "4", "--gpus", "2")
    assert refused.returncode == 1
    assert "nodes: 3, not 4" in refused.stderr

    job = other.sbatch("--nodes=3", "--output=/dev/null", "--wrap=srun sleep 600")
    other.wait(job, ["RUNNING"])
    assert "taken down" in other.control("down")
    assert {kind: found for kind, found in left_by(folder, name).items() if found} == {}
    assert not folder.exists()
    assert without_clusters(HOSTS.read_text()) == without_clusters(hosts)
    assert set(Path("/dev").iterdir()) == devices
    assert "no cluster" in other.control("down")


def test_two_clusters_at_once_without_accounting(cluster: VirtualCluster, folder: Path) -> None:
    other = bring_up(folder, *SMALL, "--rate", "none")
    assert set(other.addresses.values()).isdisjoint(cluster.addresses.values())
    assert other.run("srun", "hostname").split() == list(other.nodes)
    assert set(cluster.run("srun", "--nodes=2", "hostname").split()) == set(cluster.nodes)
    closed = subprocess.run(["sacct"], env=other.env, capture_output=True, text=True)
    assert closed.returncode != 0
    assert "disabled" in closed.stderr
    other.control("down")
    assert cluster.status()["up"]


def test_up_after_half_of_it_was_killed(folder: Path) -> None:
    other = bring_up(folder, *SMALL)
    name = other.status()["name"]
    for service in ("slurmctld", "slurmd"):
        os.kill(other.pid(service), signal.SIGKILL)
    # A pid file whose process is another one by now must not lead to that one's end.
    with subprocess.Popen(["sleep", "600"]) as bystander:
        (folder / "run" / f"slurmd.{other.nodes[0]}.pid").write_text(f"{bystander.pid} 1\n")
        again = bring_up(folder, *SMALL)
        assert again.run("srun", "hostname").split() == list(again.nodes)
        assert bystander.poll() is None
        bystander.kill()
    again.control("down")
    assert nothing(folder, name)


def begun(folder: Path) -> subprocess.Popen[bytes]:
    """An ``up`` that has got as far as making its database."""
    up = subprocess.Popen([sys.executable, COMMAND, "up", "--dir", folder], stdout=subprocess.DEVNULL)
    wait_until(lambda: list(folder.glob("run/mariadb*.pid")), every_s=0.02)
    return up


def test_an_up_that_was_killed_can_be_repeated(folder: Path) -> None:
    with begun(folder) as up:
        up.kill()
    other = bring_up(folder, *SMALL)
    name = other.status()["name"]
    assert other.run("srun", "hostname").split() == list(other.nodes)
    other.control("down")
    assert nothing(folder, name)


def test_an_up_that_was_killed_can_be_taken_down(folder: Path) -> None:
    with begun(folder) as up:
        up.kill()
    name = VirtualCluster(folder).status()["name"]
    assert virtual_cluster("down", "--dir", str(folder)).returncode == 0
    assert nothing(folder, name)


def test_an_interrupted_up_cleans_up(folder: Path) -> None:
    with begun(folder) as up:
        up.send_signal(signal.SIGSTOP)  # or it could be through before it is interrupted
        name = VirtualCluster(folder).status()["name"]
        up.terminate()
        up.send_signal(signal.SIGCONT)
        assert up.wait(timeout=LONG_S) == 128 + signal.SIGTERM
    assert nothing(folder, name)


def test_a_folder_with_other_files_is_left_alone(folder: Path) -> None:
    folder.mkdir()
    (folder / "precious").touch()
    for command in ("up", "down"):
        done = virtual_cluster(command, "--dir", str(folder))
        assert done.returncode == 1
        assert "precious" in done.stderr
    assert (folder / "precious").exists()
    (folder / "precious").unlink()
