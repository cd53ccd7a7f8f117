"""What saved files say, taken together: the topology, and what only some of the files know."""

from __future__ import annotations

from harness.base import Frozen
from harness.topology.model import Topology
from harness.topology.nccl_log import NcclFacts
from harness.topology.slurm_env import SlurmJob
from harness.topology.slurm_gres import GresNode
from harness.topology.slurm_topology import Fabric


class HostList(Frozen):
    """One host list as written and the hosts that it names."""

    text: str
    hosts: tuple[str, ...]


class ReadResult(Frozen):
    """The topology of all files read, with the kind of each file in turn."""

    topology: Topology
    kinds: tuple[str, ...] = ()
    job: SlurmJob | None = None
    gres: tuple[GresNode, ...] = ()
    fabric: Fabric | None = None
    nccl: NcclFacts | None = None
    hostlists: tuple[HostList, ...] = ()
