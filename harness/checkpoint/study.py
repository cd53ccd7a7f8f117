"""What is measured of checkpoints on request: all ways for each layout, and every pair of meshes."""

from __future__ import annotations

from collections.abc import Sequence

from harness.base import Frozen
from harness.checkpoint.measured import CheckpointParts

# Layouts on different meshes add up in different orders; AdamW carries the rounding on. See docs/checkpoints.md.
LOSS_TOLERANCE = 1e-5


class Source(Frozen):
    """A checkpoint and how its training would have gone on: ``losses`` of the next steps, never interrupted.

    ``whole_file``: a plain safetensors file with every whole tensor as it was; ``values``: the text of all else.
    """

    layout: str
    world_size: int
    folder: str
    step: int
    checkpoint_bytes: int
    losses: tuple[float, ...]
    whole_file: str
    values: dict[str, str]


class Pair(Frozen):
    """Saved on ``source``, restored on ``target``. Figures are None where ``reason`` says why it cannot work."""

    source: str
    source_ranks: int
    target: str
    target_ranks: int
    reason: str | None = None
    time_s: float | None = None
    checkpoint_bytes: int | None = None
    storage_bytes: int | None = None  # of all ranks together
    unequal: tuple[str, ...] = ()  # keys of what is not as it was saved
    step: int | None = None
    loss_difference: float | None = None  # the largest relative one of the steps that follow

    @property
    def equal(self) -> bool | None:
        return None if self.reason is not None else not self.unequal

    @property
    def good(self) -> bool | None:
        """Whether every tensor is equal and training goes on as if never interrupted; None if it cannot work."""
        if self.reason is not None or self.loss_difference is None:
            return None
        return not self.unequal and self.loss_difference <= LOSS_TOLERANCE


class LayoutStudy(Frozen):
    """All ways for one layout; ``error``: why they could not be measured to their end."""

    layout: str
    parts: CheckpointParts | None = None
    error: str | None = None


class CheckpointStudy(Frozen):
    """One study. ``storage``: the folder's file system, as far as it is known."""

    schema_version: int = 1
    created_at: str
    command: str
    model: str
    host: str
    versions: dict[str, str]
    cpu_count: int | None = None
    layouts: tuple[LayoutStudy, ...] = ()
    pairs: tuple[Pair, ...] = ()

    def on_top_of(self, earlier: CheckpointStudy) -> CheckpointStudy:
        """This one, which has measured nothing yet, with what an earlier one measured until it is measured anew."""
        return self.model_copy(update={"layouts": earlier.layouts, "pairs": earlier.pairs})

    def same_ground(self, other: CheckpointStudy) -> bool:
        """Whether the figures of both may stand side by side: one host, one version of everything."""
        return all(getattr(self, name) == getattr(other, name) for name in ("host", "cpu_count", "versions", "model"))

    def with_layout(self, found: LayoutStudy) -> CheckpointStudy:
        """With a layout's ways, in place of what there was of it."""
        others = tuple(one for one in self.layouts if one.layout != found.layout)
        return self.model_copy(update={"layouts": (*others, found)})

    def with_pairs(self, found: Sequence[Pair]) -> CheckpointStudy:
        """With pairs of meshes, in place of what there was of them."""
        new = {(one.source, one.target) for one in found}
        others = tuple(one for one in self.pairs if (one.source, one.target) not in new)
        return self.model_copy(update={"pairs": (*others, *found)})
