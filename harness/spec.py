"""What is to run: one RunSpec a run, several of them in a Launch, a SweepPlan around all."""

from __future__ import annotations

import json
from functools import lru_cache
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

Purpose = Literal["verify", "time", "calibrate"]
Calibrate = Literal["never", "first", "only"]
Design = Literal["alternated", "blocks", "launches"]
DeviceKind = Literal["cpu", "cuda"]


class Settings(Frozen):
    """How runs are made. Times in seconds, counts in steps."""

    rounds: int = Field(default=3, ge=1)
    timed_steps: int = Field(default=20, ge=1)
    warmup_min_steps: int = Field(default=3, ge=1)
    warmup_max_steps: int = Field(default=15, ge=1)
    gate_steps: int = Field(default=10, ge=10)
    exposure_steps: int = Field(default=8, ge=0)  # 0: exposed communication is not measured
    checkpoint: bool = True
    keep_checkpoints: bool = False
    learning_rate: float = Field(default=1e-3, gt=0)
    gate_learning_rate: float = Field(default=0.1, gt=0)
    max_grad_norm: float = Field(default=1.0, gt=0)
    run_timeout_s: float = Field(default=120.0, gt=0)
    collective_timeout_s: float = Field(default=60.0, gt=0)
    max_attempts: int = Field(default=2, ge=1)


class Race(Frozen):
    """How plainly slower layouts are stopped early; ``harness/race.py`` has the rule.

    Attributes:
        error: chance that the fastest layout is stopped, over all looks together.
        opening_rounds: rounds that all layouts are timed in, of ``opening_steps`` steps each.
        later_steps: timed steps of each round after them.
        least_rounds: rounds that the two fastest are timed in whatever the rule says, so that their figures have
            intervals.
        most_rounds: rounds after which the race ends undecided.
        tie_margin: layouts whose ratio lies within this of 1, interval and all, are a tie and need no more rounds.
    """

    error: float = Field(default=0.05, gt=0, lt=0.5)
    opening_rounds: int = Field(default=2, ge=2)
    opening_steps: int = Field(default=5, ge=1)
    later_steps: int = Field(default=10, ge=1)
    least_rounds: int = Field(default=3, ge=2)
    most_rounds: int = Field(default=4, ge=3)
    tie_margin: float = Field(default=0.02, ge=0)

    def steps(self, repeat: int) -> int:
        """Timed steps of a layout in a round, counted from 0."""
        return self.opening_steps if repeat < self.opening_rounds else self.later_steps

    @property
    def looks(self) -> int:
        """How often the rule is asked at most: after the opening rounds and after each later one."""
        return self.most_rounds - self.opening_rounds + 1


LEAST_RACED_ROUNDS = 3  # a sweep of fewer rounds is short enough


def make_race(settings: Settings) -> Race | None:
    """The race of a sweep: one round more than ``settings`` say, of a quarter and then half as many steps.

    It never takes more than about half of the sweep's steps. None for sweeps of one or two rounds.
    """
    if settings.rounds < LEAST_RACED_ROUNDS:
        return None
    return Race(
        opening_steps=max(-(-settings.timed_steps // 4), min(settings.timed_steps, 5)),
        later_steps=max(-(-settings.timed_steps // 2), min(settings.timed_steps, 5)),
        most_rounds=settings.rounds + 1,
    )


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
    one round of timed steps. ``repeat`` counts rounds from 0. ``steps``: timed steps of this round where they are
    not the settings'.
    """

    layout: Layout
    workload: Workload
    ranks: Ranks
    settings: Settings
    seed: int = Field(default=0, ge=0)
    purpose: Purpose
    repeat: int = Field(default=0, ge=0)
    steps: int | None = Field(default=None, ge=1)

    @property
    def timed_steps(self) -> int:
        """Timed steps of this round."""
        return self.settings.timed_steps if self.steps is None else self.steps

    @property
    def run_id(self) -> str:
        """Content hash of the whole spec."""
        return _digest_of_json(self.model_dump_json(), 16)

    @property
    def cell_id(self) -> str:
        """Content hash without seed, repeat, steps and purpose: runs with the same cell_id are the same cell."""
        return _digest_of_json(self.model_dump_json(exclude={"seed", "repeat", "steps", "purpose"}), 12)


@lru_cache(maxsize=8192)
def _digest_of_json(text: str, length: int) -> str:
    """The digest of what ``text`` says, remembered: nights of one suite have the same specs."""
    return digest(json.loads(text), length)


class Launch(Frozen):
    """Runs that share one set of rank processes.

    ``contracts``: what each run's mesh must find, checked on ranks. ``debug_comms``: keep the logs of what
    communicators use. ``layouts``: whose axes a calibrate run times.
    """

    launch_id: str
    runs: tuple[RunSpec, ...] = Field(min_length=1)
    design: Design
    contracts: tuple[MeshContract, ...] = ()
    debug_comms: bool = False
    layouts: tuple[Layout, ...] = ()

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
    race: Race | None = None  # None: every layout is timed in every round
    reference: Layout
    layouts: tuple[Layout, ...]
    pruned: tuple[Pruned, ...] = ()
    contract: MeshContract | None = None  # the user's own; else each layout's follows from the topology
    env: dict[str, str] = Field(default_factory=dict)  # set for the ranks
    slurm: SlurmOptions | None = None  # None: on this host
    debug_comms: bool = False  # in verify launches; timed ones carry nothing
    calibrate: Calibrate = "never"  # whether links are timed before all else, or nothing but them

    @property
    def most_rounds(self) -> int:
        """Rounds of timing at most."""
        return self.settings.rounds if self.race is None else self.race.most_rounds

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
            steps=self.race.steps(repeat) if self.race is not None and purpose == "time" else None,
        )
