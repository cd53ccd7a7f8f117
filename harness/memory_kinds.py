"""What a rank's memory is made of, and when it was fullest: the words of a record. All sizes are bytes on one rank.

A **kind** is decided by what a tensor storage was for over its whole life, looked at in hindsight. A storage with
several uses has the first kind of this list that fits:

    parameters             the rank's own part of each parameter, with the padding of uneven shards
    optimizer_state        moments and step counters
    gradients              what ``.grad`` of a parameter held, of the rank's part or of a whole (unsharded) one
    unsharded_parameters   whole parameters that a sharding strategy gathers for compute and frees again
    activations            made by forward, also by one that backward repeats, and alive when that forward ended
    communication_buffers  what went into a collective or came out of it
    temporaries            made by a step, and none of the above: scratch, gradients of activations
    other                  all else: the batch, what was there before the step, what the device's allocator adds
"""

from __future__ import annotations

from typing import Literal, get_args

from pydantic import Field, model_validator

from harness.base import Frozen
from harness.traffic import StepPhase

MemoryKind = Literal[
    "parameters",
    "optimizer_state",
    "gradients",
    "unsharded_parameters",
    "activations",
    "communication_buffers",
    "temporaries",
    "other",
]
MEMORY_KINDS: tuple[MemoryKind, ...] = get_args(MemoryKind)


class PeakMemory(Frozen):
    """The fullest moment of a stretch of time on one rank.

    Attributes:
        peak_bytes: bytes then; the sum of ``bytes_by_kind``.
        step: step of the run, from 0; None while the model was built.
        phase: None while the model was built.
        module: the innermost module at work, by name in the bare model, ``""`` for the model itself; None outside of
            modules or where it is not known.
        bytes_by_kind: every kind, 0 where there was none.
    """

    peak_bytes: int = Field(ge=0)
    step: int | None = None
    phase: StepPhase | None = None
    module: str | None = None
    bytes_by_kind: dict[MemoryKind, int]

    @model_validator(mode="after")
    def _kinds_make_the_peak(self) -> PeakMemory:
        total = sum(self.bytes_by_kind.values())
        if total != self.peak_bytes:
            raise ValueError(f"kinds sum to {total} and the peak is {self.peak_bytes}")
        return self


class AllocatorStats(Frozen):
    """What a device's caching allocator says of the same steps; bytes are peaks, counts are of the whole run.

    Attributes:
        allocated_bytes: held by tensors.
        reserved_bytes: taken from the device.
        inactive_split_bytes: parts of split blocks that were free, and so of use only to tensors that fit.
        alloc_retries: times that the cache had to be emptied to serve a request.
    """

    allocated_bytes: int = Field(ge=0)
    reserved_bytes: int = Field(ge=0)
    inactive_split_bytes: int | None = None
    alloc_retries: int | None = None

    @property
    def fragmentation(self) -> float:
        """Reserved and not allocated, as a share of reserved, each at its own peak."""
        return 1 - self.allocated_bytes / self.reserved_bytes if self.reserved_bytes else 0.0


class RankMemory(Frozen):
    """The memory of one rank over building and training two steps.

    Attributes:
        peak: the fullest moment of all.
        step_peak: the fullest moment of the last step, which has optimizer state from its start.
        resting_bytes_by_kind: after the optimizer's last step, gradients not yet dropped.
        allocator: None on CPUs.
    """

    peak: PeakMemory
    step_peak: PeakMemory
    resting_bytes_by_kind: dict[MemoryKind, int]
    allocator: AllocatorStats | None = None
