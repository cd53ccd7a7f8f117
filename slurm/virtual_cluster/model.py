"""What a cluster consists of: its settings, hosts, names, addresses and paths. Nothing here starts or changes anything
but the file that a cluster is kept in."""

from __future__ import annotations

import json
import re
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from virtual_cluster.system import ClusterError

DEFAULT_FOLDER = Path("/run/meshsweep-cluster")
STATE_FILE = "cluster.json"
# 198.18.0.0/15 is set aside for tests of network devices (RFC 2544) and routed nowhere; each cluster takes a /24.
NETWORK = "198.18"
SLOTS = 16
MAX_NODES = 64
MAX_GPUS = 16
CONTROLLER_PORT = 6817
ACCOUNTING_PORT = 6819


@dataclass(frozen=True)
class Host:
    """One machine of the cluster: a network namespace with a host name of its own."""

    name: str
    address: str
    namespaces: Path

    @property
    def net(self) -> Path:
        return self.namespaces / f"{self.name}.net"

    @property
    def uts(self) -> Path:
        return self.namespaces / f"{self.name}.uts"

    def enter(self, *argv: str) -> tuple[str, ...]:
        """The command line that runs ``argv`` on this host. Mounts are shared with the machine on purpose: slurmd needs
        its /sys, jobs its files."""
        return ("nsenter", f"--net={self.net}", f"--uts={self.uts}", "--", *argv)


@dataclass(frozen=True)
class Cluster:
    """Settings, and all that follows from them."""

    folder: Path
    nodes: int = 2
    gpus: tuple[int, ...] = (4,)  # of each node, or one number for all
    rate: str = "200mbit"
    accounting: bool = True
    names: bool = True  # whether hosts can be found by their names
    slot: int = 0

    def __post_init__(self) -> None:
        if not re.fullmatch(r"/[\w./+-]{1,79}", str(self.folder), re.ASCII):
            raise ClusterError(
                f"--dir {self.folder}: Slurm and its sockets need an absolute path of at most 80 plain characters"
            )
        if not 1 <= self.nodes <= MAX_NODES:
            raise ClusterError(f"--nodes {self.nodes}: from 1 to {MAX_NODES}")
        if not all(0 <= count <= MAX_GPUS for count in self.gpus) or len(self.gpus) not in (1, self.nodes):
            given = ",".join(map(str, self.gpus))
            raise ClusterError(f"--gpus {given}: from 0 to {MAX_GPUS}, for all nodes alike or for each as in 4,2")
        if not re.fullmatch(r"none|\d+(\.\d+)?[kmg]?bit", self.rate):
            raise ClusterError(f"rate {self.rate}: such as 200mbit or 1gbit, or 'none' for links at full speed")

    @property
    def name(self) -> str:
        """Of the cluster and of its bridge; the names of all hosts begin with it."""
        return f"ms{self.slot}"

    @property
    def network(self) -> str:
        return f"{NETWORK}.{self.slot}.0/24"

    @property
    def gateway(self) -> str:
        """The machine's own address on the bridge, from which users' commands reach the cluster."""
        return f"{NETWORK}.{self.slot}.254"

    @property
    def controller(self) -> Host:
        """Where munge, the database, slurmdbd and slurmctld run."""
        return Host(f"{self.name}ctl", f"{NETWORK}.{self.slot}.1", self.namespaces)

    @property
    def compute(self) -> tuple[Host, ...]:
        return tuple(
            Host(f"{self.name}n{number}", f"{NETWORK}.{self.slot}.{10 + number}", self.namespaces)
            for number in range(1, self.nodes + 1)
        )

    def gpus_of(self, host: Host) -> int:
        """Fake GPUs of a compute node."""
        return self.gpus[0] if len(self.gpus) == 1 else self.gpus[self.compute.index(host)]

    @property
    def hosts(self) -> tuple[Host, ...]:
        return (self.controller, *self.compute)

    def node(self, name: str) -> Host:
        """The compute node of that name, or of that number."""
        for number, host in enumerate(self.compute, 1):
            if name in (host.name, str(number)):
                return host
        raise ClusterError(f"no node {name}; there are {' '.join(host.name for host in self.compute)}")

    @property
    def namespaces(self) -> Path:
        return self.folder / "ns"

    @property
    def devices(self) -> Path:
        return self.folder / "dev"

    @property
    def logs(self) -> Path:
        return self.folder / "log"

    @property
    def spool(self) -> Path:
        return self.folder / "spool"

    @property
    def pids(self) -> Path:
        return self.folder / "run"

    @property
    def munge(self) -> Path:
        return self.folder / "munge"

    @property
    def munge_socket(self) -> Path:
        return self.munge / "socket"

    @property
    def database(self) -> Path:
        return self.folder / "db"

    @property
    def database_socket(self) -> Path:
        return self.folder / "db.socket"

    @property
    def slurm_conf(self) -> Path:
        return self.folder / "etc" / "slurm.conf"

    @property
    def env(self) -> dict[str, str]:
        """What sbatch, srun, sacct and the others need in their environment to talk to this cluster."""
        return {"SLURM_CONF": str(self.slurm_conf)}

    def differences(self, other: Cluster) -> list[str]:
        """Settings that cannot be changed while a cluster runs, as ``nodes: 2, not 3``."""
        names = ("nodes", "gpus", "accounting", "names")
        return [
            f"{name}: {getattr(self, name)}, not {getattr(other, name)}"
            for name in names
            if getattr(self, name) != getattr(other, name)
        ]

    def save(self) -> None:
        """Keep the settings in the cluster's folder, in one step."""
        text = json.dumps({**asdict(self), "folder": str(self.folder)}, indent=2)
        new = self.folder / f"{STATE_FILE}.new"
        new.write_text(text + "\n")
        new.rename(self.folder / STATE_FILE)

    def with_rate(self, rate: str) -> Cluster:
        return replace(self, rate=rate)

    @staticmethod
    def load(folder: Path) -> Cluster | None:
        """The cluster that was put into ``folder``, running or not."""
        try:
            fields = json.loads((folder / STATE_FILE).read_text())
        except FileNotFoundError:
            return None
        gpus = fields["gpus"]  # one number in files of earlier versions
        return Cluster(**{**fields, "folder": folder, "gpus": (gpus,) if isinstance(gpus, int) else tuple(gpus)})
