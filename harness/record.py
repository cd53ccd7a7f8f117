"""What came out of one run: raw samples, never statistics. Not measured is None, never 0."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from harness.base import Frozen
from harness.calibration import Calibration
from harness.checkpoint.measured import CheckpointParts
from harness.comms import Communicators
from harness.exposure import Exposure
from harness.failure import FailureClass
from harness.memory_kinds import RankMemory
from harness.spec import SCHEMA_VERSION, Design, RunSpec
from harness.startup import Startup
from harness.traffic import Traffic

Status = Literal["measured", "failed", "interrupted"]


class Ground(Frozen):
    """Where and with what a run was made."""

    hosts: tuple[str, ...]
    device: str
    device_names: tuple[str, ...] = ()
    device_memory_bytes: int | None = None
    driver: str | None = None
    cpu: str | None = None
    cpu_count: int | None = None
    memory_bytes: int | None = None
    platform: str
    python: str
    torch: str
    backend: str
    nccl: str | None = None
    commit: str | None = None
    version: str
    threads_per_rank: int | None = None
    load_average: float | None = None


class Timing(Frozen):
    """Step times of one round. Rows are ranks, columns steps; seconds."""

    design: Design
    companions: tuple[str, ...]  # labels of all layouts timed in the launch, this one included
    warmup_s: tuple[float, ...]  # the slowest rank's time of each warm-up step
    steady: bool  # whether warm-up ended because steps had become steady
    cycles: tuple[int, ...]  # the cycle of each timed step; equal cycles of one launch are neighbours in time
    step_time_s: tuple[tuple[float, ...], ...]


class GateSamples(Frozen):
    """Losses (mean over all tokens) and pre-clip global gradient norms of SGD steps from the common weights."""

    losses: tuple[float, ...]
    grad_norms: tuple[float, ...]
    first_grad_norm_by_parameter: dict[str, float] | None = None  # of the first step, by name in the bare model


class Memory(Frozen):
    """Peaks of one untimed AdamW step, a value a rank, bytes."""

    method: str
    peak_bytes: tuple[int, ...]  # CUDA: allocated; CPU: live tensor bytes
    peak_reserved_bytes: tuple[int, ...] | None = None  # CUDA only
    peak_rss_bytes: tuple[int, ...] | None = None
    ranks: tuple[RankMemory, ...] | None = None  # what the peaks are made of, and when they were


class Checkpoint(Frozen):
    """One sharded checkpoint with optimizer state."""

    folder: str
    total_bytes: int
    files: int
    save_time_s: float  # slowest rank
    restore_time_s: float  # slowest rank, into a fresh model
    equal: bool  # every restored tensor equals the saved one on every rank
    parts: CheckpointParts | None = None


class Failure(Frozen):
    """Why a run did not finish."""

    failure_class: FailureClass
    phase: str  # build, gate, memory, checkpoint, exposed, warmup, timing, launch
    message: str
    rank: int | None = None
    host: str | None = None
    log_tail: str = ""
    log: str | None = None  # path relative to the sweep's folder


class RunRecord(Frozen):
    """One attempt of one run."""

    schema_version: int = SCHEMA_VERSION
    run_id: str
    cell_id: str
    attempt: int = Field(ge=0)
    launch_id: str
    launch_design: Design
    spec: RunSpec
    status: Status
    failure: Failure | None = None
    started_at: str
    wall_s: float
    torn_ranks: tuple[int, ...] = ()  # whose file of samples holds a part of one, which is left out
    startup_s: float | None = None  # from the start of the launch to its first training step
    startup: Startup | None = None
    ground: Ground | None = None
    timing: Timing | None = None
    gate: GateSamples | None = None
    memory: Memory | None = None
    checkpoint: Checkpoint | None = None
    comms: Communicators | None = None  # with --debug-comms
    exposure: Exposure | None = None
    calibration: Calibration | None = None  # of a calibrate run
    traffic: Traffic | None = None
