"""The columns of the frames that ``harness.load`` gives: name -> (type, definition). Units end a name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

Dtype = Literal["string", "int64", "double", "bool", "timestamp"]
Columns = Mapping[str, tuple[Dtype, str]]

RUN_COLUMNS: Columns = {
    "sweep": ("string", "name of the sweep"),
    "cell": ("string", "label of the layout"),
    "purpose": ("string", "verify (equivalence, memory, checkpoint) or time (one round of timed steps)"),
    "round": ("int64", "round, counted from 0; of a verify run 0"),
    "attempt": ("int64", "attempt of that run, counted from 0"),
    "run_id": ("string", "content hash of what was to run; attempts of a run share it"),
    "launch_id": ("string", "runs of one launch shared their rank processes"),
    "status": ("string", "measured, failed or interrupted"),
    "failure_class": ("string", "what kind of failure ended it"),
    "failure_phase": ("string", "what it was doing then"),
    "started_at": ("timestamp", "start of its launch, UTC"),
    "wall_s": ("double", "duration of its launch, seconds"),
    "startup_s": ("double", "from the start of the launch to its first training step, seconds"),
    "design": ("string", "how layouts were timed against each other: alternated, blocks or launches"),
    "steady": ("bool", "whether warm-up ended because steps had become steady"),
    "steps": ("int64", "timed steps"),
    "step_time_s": ("double", "median over the round's timed steps of the slowest rank's time, seconds"),
    "tokens_per_s": ("double", "tokens of a global batch over step_time_s, all ranks together"),
    "peak_memory_bytes": ("int64", "peak of one untimed step, largest over ranks, bytes"),
    "peak_reserved_bytes": ("int64", "peak reserved by the device allocator, largest over ranks, bytes"),
    "peak_rss_bytes": ("int64", "peak resident set of a rank's process, largest over ranks, bytes"),
    "checkpoint_bytes": ("int64", "sharded checkpoint with optimizer state on disk, bytes"),
    "checkpoint_save_s": ("double", "time to save it, slowest rank, seconds"),
    "checkpoint_restore_s": ("double", "time to restore it into a fresh model, slowest rank, seconds"),
    "world_size": ("int64", "ranks"),
    "hosts": ("string", "hosts, comma-separated"),
    "device_names": ("string", "distinct names of devices, comma-separated"),
    "driver": ("string", "version of the device driver"),
    "torch": ("string", "version of torch"),
    "backend": ("string", "backend of collectives"),
    "nccl": ("string", "version of NCCL"),
    "commit": ("string", "commit of meshsweep's checkout, -dirty if it had changes"),
    "load_average": ("double", "load average of the first host over one minute before the run"),
}

CELL_COLUMNS: Columns = {
    "sweep": ("string", "name of the sweep"),
    "created_at": ("timestamp", "when the sweep was planned, UTC"),
    "work": ("string", "model, global batch x sequence length, ranks: sweeps of equal work can be compared"),
    "ground": ("string", "digest of the fields of the ground that must agree, the commit left out"),
    "commit": ("string", "commit of meshsweep's checkout"),
    "torch": ("string", "version of torch"),
    "device_names": ("string", "distinct names of devices, comma-separated"),
    "cell": ("string", "label of the layout"),
    "outcome": ("string", "measured, diverged, failed, not_run or pruned"),
    "reason": ("string", "why it is not measured"),
    "rounds": ("int64", "timed rounds on the sweep's main ground"),
    "step_time_s": ("double", "median over all timed steps of the slowest rank's time, seconds"),
    "level_step_time_s": (
        "double",
        "geometric mean of rounds as compare takes one; in it history looks for changes",
    ),
    "tokens_per_s": ("double", "tokens of a global batch over step_time_s; of a race the leader's x the ratio to it"),
    "peak_memory_bytes": ("int64", "peak of one untimed step, largest over ranks, bytes"),
    "checkpoint_bytes": ("int64", "sharded checkpoint with optimizer state on disk, bytes"),
}

STEP_COLUMNS: Columns = {
    "sweep": ("string", "name of the sweep"),
    "cell": ("string", "label of the layout"),
    "round": ("int64", "round, counted from 0"),
    "attempt": ("int64", "attempt of that run, counted from 0"),
    "launch_id": ("string", "rounds of one launch share their rank processes"),
    "step": ("int64", "timed step within the round, counted from 0"),
    "cycle": ("int64", "equal cycles of one launch are neighbours in time"),
    "rank": ("int64", "rank in the process group"),
    "step_time_s": ("double", "that rank's time of that step, seconds"),
}
