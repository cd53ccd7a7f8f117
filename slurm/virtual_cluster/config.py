"""The text of the configuration files, as pure functions of the cluster."""

from __future__ import annotations

from virtual_cluster.model import ACCOUNTING_PORT, CONTROLLER_PORT, Cluster

CPUS_PER_NODE = 64
MEMORY_PER_NODE_MB = 256_000


def slurm_conf(cluster: Cluster) -> str:
    controller = cluster.controller
    return f"""\
ClusterName={cluster.name}
SlurmctldHost={controller.name}({controller.address})
SlurmctldPort={CONTROLLER_PORT}
AuthType=auth/munge
AuthInfo=socket={cluster.munge_socket}
SlurmUser=root
SlurmdUser=root
StateSaveLocation={cluster.spool}/slurmctld
SlurmdSpoolDir={cluster.spool}/%n
SlurmctldPidFile={cluster.spool}/slurmctld.pid
SlurmdPidFile={cluster.spool}/%n.pid

# Without cgroups, and with more CPUs, memory and GPUs than the machine has.
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SlurmdParameters=config_overrides
ReturnToService=2
MpiDefault=none

# Jobs start and end without the pauses that spare a large controller.
SchedulerParameters=batch_sched_delay=0,sched_interval=2,bf_interval=2
KillWait=5
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE

{accounting_lines(cluster)}
{node_lines(cluster)}
PartitionName=main Nodes=ALL Default=YES PriorityTier=10 MaxTime=INFINITE
# Its jobs give way to those in main: requeued, or ended as PREEMPTED if they may not be.
PartitionName=low Nodes=ALL PriorityTier=1 MaxTime=INFINITE
"""


def accounting_lines(cluster: Cluster) -> str:
    if not cluster.accounting:
        return "AccountingStorageType=accounting_storage/none\nJobAcctGatherType=jobacct_gather/none\n"
    return f"""\
AccountingStorageType=accounting_storage/slurmdbd
AccountingStorageHost={cluster.controller.address}
AccountingStoragePort={ACCOUNTING_PORT}
AccountingStoragePass=socket={cluster.munge_socket}
{"AccountingStorageTRES=gres/gpu" if any(cluster.gpus) else ""}
JobAcctGatherType=jobacct_gather/linux
JobAcctGatherFrequency=1
"""


def node_lines(cluster: Cluster) -> str:
    nodes = []
    for host in cluster.compute:
        gres = f" Gres=gpu:{count}" if (count := cluster.gpus_of(host)) else ""
        shape = f"CPUs={CPUS_PER_NODE} RealMemory={MEMORY_PER_NODE_MB}{gres} State=UNKNOWN"
        nodes.append(f"NodeName={host.name} NodeHostname={host.name} NodeAddr={host.address} {shape}")
    return "\n".join([*(["GresTypes=gpu"] if any(cluster.gpus) else []), *nodes])


def gres_conf(cluster: Cluster) -> str:
    return "".join(
        f"NodeName={host.name} Name=gpu File={cluster.devices}/gpu{number}\n"
        for host in cluster.compute
        for number in range(cluster.gpus_of(host))
    )


def slurmdbd_conf(cluster: Cluster) -> str:
    controller = cluster.controller
    return f"""\
AuthType=auth/munge
AuthInfo=socket={cluster.munge_socket}
DbdHost={controller.name}
DbdAddr={controller.address}
DbdPort={ACCOUNTING_PORT}
SlurmUser=root
PidFile={cluster.spool}/slurmdbd.pid
StorageType=accounting_storage/mysql
StorageHost=localhost
StorageUser=root
StorageLoc=slurm_acct_db
"""
