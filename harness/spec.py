"""What is to run: one RunSpec a run, several of them in a Launch, a SweepPlan around all."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from harness.base import Frozen, digest
from harness.layout import Layout
from harness.layout.subset import first_devices
from harness.mesh.contract import MeshContract, make_contract
from harness.slurm.profile import SlurmOptions
from harness.topology.model import Topology
from harness.workload import Workload

SCHEMA_VERSION = 1

Purpose = Literal["verify", "time"]
Design = Literal["alternated", "blocks", "launches"]
DeviceKind = Literal["cpu", "cuda"]


class Settings(Frozen):
    """How runs are made. Times in seconds, counts in steps."""

    rounds: int = Field(default=3, ge=1)
    timed_steps: int = Field(default=20, ge=1)
    warmup_min_steps: int = Field(default=3, ge=1)
    warmup_max_steps: int = Field(default=15, ge=1)
    gate_steps: int = Field(default=10, ge=10)
    checkpoint: bool = True
    keep_checkpoints: bool = False
    learning_rate: float = Field(default=1e-3, gt=0)
    gate_learning_rate: float = Field(default=0.1, gt=0)
    max_grad_norm: float = Field(default=1.0, gt=0)
    run_timeout_s: float = Field(default=120.0, gt=0)
    collective_timeout_s: float = Field(default=60.0, gt=0)
    max_attempts: int = Field(default=2, ge=1)


class Ranks(Frozen):
    """Where a launch runs: device kind and ranks on each node, in rank order."""

    device: DeviceKind
    per_node: tuple[int, ...] = Field(min_length=1)

    @property
    def world_size(self) -> int:
        return sum(self.per_node)


class RunSpec(Frozen):
    """One run of one cell, with every default filled in.

    ``purpose`` "verify" is the run in processes of the cell's own (equivalence, memory, checkpoint); "time" is
    one round of timed steps. ``repeat`` counts rounds from 0.
    """

    layout: Layout
    workload: Workload
    ranks: Ranks
    settings: Settings
    seed: int = Field(default=0, ge=0)
    purpose: Purpose
    repeat: int = Field(default=0, ge=0)

    @property
    def run_id(self) -> str:
        """Content hash of the whole spec."""
        return digest(self.model_dump(mode="json"), 16)

    @property
    def cell_id(self) -> str:
        """Content hash without seed, repeat and purpose: runs with the same cell_id are the same cell."""
        return digest(self.model_dump(mode="json", exclude={"seed", "repeat", "purpose"}), 12)


class Launch(Frozen):
    """Runs that share one set of rank processes. ``contracts``: what each run's mesh must find, checked on ranks."""

    launch_id: str
    runs: tuple[RunSpec, ...] = Field(min_length=1)
    design: Design
    contracts: tuple[MeshContract, ...] = ()

    @property
    def ranks(self) -> Ranks:
        return self.runs[0].ranks


class Pruned(Frozen):
    """A candidate that will not run, with the rule that excludes it and the rule's numbers."""

    layout: Layout
    rule: str
    reason: str


class SweepPlan(Frozen):
    """Everything that a sweep will do; with the records it is all that ``resume`` needs."""

    schema_version: int = SCHEMA_VERSION
    name: str
    created_at: str
    command: str
    topology: Topology
    workload: Workload
    ranks: Ranks
    settings: Settings
    seed: int = 0
    design: Design | Literal["auto"] = "auto"
    reference: Layout
    layouts: tuple[Layout, ...]
    pruned: tuple[Pruned, ...] = ()
    contract: MeshContract | None = None  # the user's own; else each layout's follows from the topology
    env: dict[str, str] = Field(default_factory=dict)  # set for the ranks
    slurm: SlurmOptions | None = None  # None: on this host

    def contract_of(self, layout: Layout) -> MeshContract:
        """What the layout's mesh must find where it runs."""
        if self.contract is not None and self.contract.mesh == layout.mesh:
            return self.contract
        topology = first_devices(self.topology, layout.mesh.world_size)
        # a job may land on other nodes than those that were looked at
        any_host = self.slurm is not None
        return make_contract(topology, layout.mesh, layout.options.order, name=layout.text, any_host=any_host)

    def run(self, layout: Layout, purpose: Purpose, repeat: int = 0) -> RunSpec:
        """The spec of one run of one of the plan's layouts; ``single`` runs on one rank."""
        ranks = self.ranks
        if layout.mesh.world_size != ranks.world_size:
            ranks = Ranks(device=ranks.device, per_node=(layout.mesh.world_size,))
        return RunSpec(
            layout=layout,
            workload=self.workload,
            ranks=ranks,
            settings=self.settings,
            seed=self.seed,
            purpose=purpose,
            repeat=repeat,
        )
