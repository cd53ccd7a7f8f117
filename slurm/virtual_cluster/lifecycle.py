"""Up, down, status, and the changes to a running cluster."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

from virtual_cluster import network, services
from virtual_cluster.model import STATE_FILE, Cluster, Host
from virtual_cluster.processes import end
from virtual_cluster.system import ClusterError, machine_lock, require_packages, run


def up(wanted: Cluster) -> Cluster:
    """A complete cluster with these settings: the one that runs, else a new one in place of whatever is left."""
    require_packages(wanted.accounting)
    with machine_lock():
        found = Cluster.load(wanted.folder)
        if found is not None and complete(found):
            return adapt(found, wanted)
        remove(wanted.folder)
        return build(network.on_free_slot(wanted))


def adapt(found: Cluster, wanted: Cluster) -> Cluster:
    """The running cluster, at the wanted rate."""
    if differences := found.differences(wanted):
        raise ClusterError(
            f"in {found.folder} a cluster runs with {'; '.join(differences)}: take it down first, or use another --dir"
        )
    services.wait_usable(found)
    return found if found.rate == wanted.rate else change_rate(found, wanted.rate)


def build(cluster: Cluster) -> Cluster:
    """Bring everything up; take everything down again if that fails or is interrupted."""
    cluster.folder.mkdir(parents=True, exist_ok=True)
    cluster.folder.chmod(0o755)
    cluster.save()
    try:
        services.write_files(cluster)
        network.create(cluster)
        services.start_munge(cluster)
        if cluster.accounting:
            services.start_accounting(cluster)
        services.start_controller(cluster)
        services.start_nodes(cluster, cluster.compute)
    except BaseException:
        remove(cluster.folder)
        raise
    return cluster


def complete(cluster: Cluster) -> bool:
    """Whether all services run and all links are there."""
    return None not in services.pids(cluster).values() and network.complete(cluster)


def down(folder: Path) -> bool:
    """Take the cluster in this folder down, with the folder; False if there was none."""
    with machine_lock():
        return remove(folder)


def remove(folder: Path) -> bool:
    """End and delete all that belongs to the cluster in ``folder``. The file that names it goes last, so that an
    interrupted removal can be done again."""
    cluster = Cluster.load(folder)
    if cluster is None:
        others = sorted(path.name for path in folder.iterdir()) if folder.is_dir() else []
        if set(others) - {f"{STATE_FILE}.new"}:
            raise ClusterError(f"{folder} holds no virtual cluster but other files ({others[0]}): left as it is")
        return False
    end(cluster, cluster.hosts)
    network.remove(cluster)
    for path in folder.iterdir():
        if path.is_dir():
            shutil.rmtree(path)
        elif path.name != STATE_FILE:
            path.unlink()
    shutil.rmtree(folder)
    return True


def load(folder: Path) -> Cluster:
    cluster = Cluster.load(folder)
    if cluster is None:
        raise ClusterError(f"no cluster in {folder}: bring one up with 'virtual-cluster up --dir {folder}'")
    return cluster


def status(folder: Path) -> dict[str, Any]:
    """Settings, services and nodes of a cluster, as plain values."""
    cluster = load(folder)
    pids = services.pids(cluster)
    answers = pids[f"slurmctld.{cluster.controller.name}"] is not None
    states = services.node_states(cluster) if answers else {}
    return {
        "name": cluster.name,
        "folder": str(cluster.folder),
        "up": complete(cluster),
        "env": cluster.env,
        "network": cluster.network,
        "rate": cluster.rate,
        "accounting": cluster.accounting,
        "pids": pids,
        "nodes": {
            host.name: {
                "address": host.address,
                "gpus": cluster.gpus_of(host),
                "state": states.get(host.name),
                **network.counters(host),
            }
            for host in cluster.compute
        },
    }


def set_rate(folder: Path, rate: str) -> Cluster:
    """Change the rate of all links between nodes, under running jobs too."""
    with machine_lock():
        return change_rate(load(folder), rate)


def change_rate(cluster: Cluster, rate: str) -> Cluster:
    cluster = cluster.with_rate(rate)
    for host in cluster.compute:
        network.shape(host, rate)
    cluster.save()
    return cluster


def kill_node(folder: Path, name: str) -> Host:
    """End all that runs on a node as a power cut does, and tell Slurm, which would find out by itself only after
    minutes."""
    with machine_lock():
        cluster = load(folder)
        node = cluster.node(name)
        end(cluster, [node])
        reason = "reason=killed by virtual-cluster"
        run("scontrol", "update", f"nodename={node.name}", "state=down", reason, env=cluster.env)
        return node


def start_node(folder: Path, name: str) -> Host:
    """Start a killed node; return when Slurm can use it."""
    with machine_lock():
        cluster = load(folder)
        node = cluster.node(name)
        if services.pids(cluster)[f"slurmd.{node.name}"] is None:
            services.start_nodes(cluster, (node,))
        return node
