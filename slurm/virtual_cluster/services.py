"""The daemons: how each is started, and when it is ready."""

from __future__ import annotations

import os
import socket
import stat
from functools import partial
from pathlib import Path

from virtual_cluster import config
from virtual_cluster.model import ACCOUNTING_PORT, CONTROLLER_PORT, Cluster, Host
from virtual_cluster.processes import PATIENCE_S, Service, failure, pid_file, running, start, wait_ready
from virtual_cluster.system import run, wait_for

# The database is thrown away on tear-down: small, and no waiting for the disk.
DATABASE_OPTIONS = (
    "--no-defaults",
    "--user=root",
    "--innodb-log-file-size=4M",
    "--innodb-buffer-pool-size=16M",
    "--innodb-autoextend-increment=1",
    "--innodb-temp-data-file-path=ibtmp1:2M:autoextend",
    "--innodb-flush-log-at-trx-commit=0",
    "--innodb-flush-method=nosync",
    "--performance-schema=off",
)
USABLE = {"idle", "mixed", "allocated", "completing"}
NULL_DEVICE = os.makedev(1, 3)


def write_files(cluster: Cluster) -> None:
    """Folders, configuration, munge's key, and the device files of the GPUs."""
    spools = [cluster.spool / name for name in ("slurmctld", *(host.name for host in cluster.compute))]
    for folder in (cluster.logs, cluster.pids, cluster.munge, cluster.devices, cluster.slurm_conf.parent, *spools):
        folder.mkdir(parents=True)
    etc = cluster.slurm_conf.parent
    cluster.slurm_conf.write_text(config.slurm_conf(cluster))
    (etc / "gres.conf").write_text(config.gres_conf(cluster))
    write_private(etc / "slurmdbd.conf", config.slurmdbd_conf(cluster).encode())
    write_private(cluster.munge / "key", os.urandom(128))
    for number in range(max(cluster.gpus)):
        os.mknod(cluster.devices / f"gpu{number}", stat.S_IFCHR | 0o666, NULL_DEVICE)


def write_private(path: Path, content: bytes) -> None:
    path.touch(mode=0o600)
    path.write_bytes(content)


def munged(cluster: Cluster) -> Service:
    files = {"key-file": "key", "seed-file": "seed", "pid-file": "pid", "log-file": "log"}
    options = [f"--{option}={cluster.munge}/{name}" for option, name in files.items()]
    # Forced, because the cluster's folder may lie in one that only its owner can enter.
    argv = ("munged", "--foreground", "--force", "--num-threads=4", f"--socket={cluster.munge_socket}", *options)
    return Service("munged", cluster.controller, argv)


def mariadbd(cluster: Cluster) -> Service:
    place = (f"--datadir={cluster.database}", f"--socket={cluster.database_socket}", "--skip-networking")
    return Service("mariadbd", cluster.controller, ("mariadbd", *DATABASE_OPTIONS, *place))


def database_maker(cluster: Cluster) -> Service:
    """Fills the database's folder, and ends."""
    options = ("--skip-test-db", "--skip-name-resolve", "--auth-root-authentication-method=socket")
    argv = ("mariadb-install-db", *DATABASE_OPTIONS, *options, f"--datadir={cluster.database}")
    return Service("mariadb-install-db", cluster.controller, argv)


def slurmdbd(cluster: Cluster) -> Service:
    env = {"MYSQL_UNIX_PORT": str(cluster.database_socket)}
    return Service("slurmdbd", cluster.controller, ("slurmdbd", "-D"), env)


def slurmctld(cluster: Cluster) -> Service:
    return Service("slurmctld", cluster.controller, ("slurmctld", "-D", "-f", str(cluster.slurm_conf)))


def slurmd(cluster: Cluster, node: Host) -> Service:
    return Service("slurmd", node, ("slurmd", "-D", "-f", str(cluster.slurm_conf), "-N", node.name))


def services(cluster: Cluster) -> tuple[Service, ...]:
    """All of them, in the order in which they are started."""
    database = (mariadbd(cluster), slurmdbd(cluster)) if cluster.accounting else ()
    return (munged(cluster), *database, slurmctld(cluster), *(slurmd(cluster, node) for node in cluster.compute))


def pids(cluster: Cluster) -> dict[str, int | None]:
    """The process of each service, by ``service.host``; None where it does not run."""
    return {f"{each.name}.{each.host.name}": running(pid_file(cluster, each)) for each in services(cluster)}


def start_munge(cluster: Cluster) -> None:
    service = munged(cluster)
    start(cluster, service)
    wait_ready(cluster, service, lambda: accepts(cluster.munge_socket))


def start_accounting(cluster: Cluster) -> None:
    """The database, slurmdbd, and the cluster's own entry there."""
    maker = database_maker(cluster)
    if code := start(cluster, maker).wait(timeout=120):
        raise failure(cluster, maker, f"exit code {code}")
    database, daemon = mariadbd(cluster), slurmdbd(cluster)
    start(cluster, database)
    wait_ready(cluster, database, lambda: accepts(cluster.database_socket))
    start(cluster, daemon)
    wait_ready(cluster, daemon, lambda: accepts((cluster.controller.address, ACCOUNTING_PORT)))
    run("sacctmgr", "--immediate", "add", "cluster", cluster.name, env=cluster.env)


def start_controller(cluster: Cluster) -> None:
    service = slurmctld(cluster)
    start(cluster, service)
    wait_ready(cluster, service, lambda: accepts((cluster.controller.address, CONTROLLER_PORT)))


def start_nodes(cluster: Cluster, nodes: tuple[Host, ...]) -> None:
    """Start slurmd on these nodes and return when Slurm can use them all."""
    for node in nodes:
        start(cluster, slurmd(cluster, node))
    for node in nodes:
        wait_ready(cluster, slurmd(cluster, node), partial(usable, cluster, node))


def node_states(cluster: Cluster) -> dict[str, str]:
    """Slurm's word for each node; nothing while the controller does not answer."""
    text = run("sinfo", "--noheader", "--Node", "--partition=main", "--format=%N %T", env=cluster.env, check=False)
    return dict(line.split() for line in text.splitlines())


def usable(cluster: Cluster, node: Host) -> bool:
    return node_states(cluster).get(node.name) in USABLE


def wait_usable(cluster: Cluster) -> None:
    """Return when Slurm can use all nodes, or does already."""
    for node in cluster.compute:
        wait_for(f"{node.name} usable", partial(usable, cluster, node), timeout_s=PATIENCE_S, every_s=0.2)


def accepts(address: Path | tuple[str, int]) -> bool:
    """Whether someone listens at a socket file or at an address and port."""
    family, target = (socket.AF_UNIX, str(address)) if isinstance(address, Path) else (socket.AF_INET, address)
    with socket.socket(family, socket.SOCK_STREAM) as client:
        client.settimeout(1)
        return client.connect_ex(target) == 0
