"""Mesh axes and their sizes, outermost first: dp_replicate x dp_shard x tp."""

from __future__ import annotations

import re
from collections.abc import Iterator

from pydantic import Field

from harness.base import Frozen
from harness.errors import UsageError

AXES = ("dp_replicate", "dp_shard", "tp")
_SIGNATURE = re.compile(r"(?:r(\d{1,7}))?(?:s(\d{1,7}))?(?:t(\d{1,7}))?")


class Mesh(Frozen):
    """Sizes of the three axes. Rank = (replicate * dp_shard + shard) * tp + tp coordinate."""

    dp_replicate: int = Field(default=1, ge=1)
    dp_shard: int = Field(default=1, ge=1)
    tp: int = Field(default=1, ge=1)

    @property
    def sizes(self) -> tuple[int, int, int]:
        return (self.dp_replicate, self.dp_shard, self.tp)

    @property
    def world_size(self) -> int:
        return self.dp_replicate * self.dp_shard * self.tp

    @property
    def dp(self) -> int:
        """Ranks that see different samples."""
        return self.dp_replicate * self.dp_shard

    @property
    def signature(self) -> str:
        """Name of the mesh in run ids and checkpoint folders, e.g. ``r2s4t1``."""
        return f"r{self.dp_replicate}s{self.dp_shard}t{self.tp}"

    @property
    def short(self) -> str:
        """The signature without axes of size 1, e.g. ``r2s4``; ``r1`` if all are 1."""
        parts = [f"{a}{n}" for a, n in zip("rst", self.sizes, strict=True) if n > 1]
        return "".join(parts) or "r1"

    def coordinate(self, rank: int) -> tuple[int, int, int]:
        """(dp_replicate, dp_shard, tp) coordinate of a rank."""
        rest, tp = divmod(rank, self.tp)
        replicate, shard = divmod(rest, self.dp_shard)
        return (replicate, shard, tp)

    def groups(self, axis: str) -> Iterator[tuple[int, ...]]:
        """The groups of ranks along one axis, in order of their first rank."""
        size = self.sizes[AXES.index(axis)]
        stride = {"dp_replicate": self.dp_shard * self.tp, "dp_shard": self.tp, "tp": 1}[axis]
        return strided_groups(self.world_size, size, stride)


def strided_groups(total: int, size: int, stride: int) -> Iterator[tuple[int, ...]]:
    """``range(total)`` in groups of ``size`` members that lie ``stride`` apart, in order of their first member."""
    for block in range(0, total, size * stride):
        for offset in range(stride):
            yield tuple(range(block + offset, block + offset + size * stride, stride))


def parse_mesh(text: str) -> Mesh:
    """Read a signature such as ``r2s4t1`` or ``s4t2``; an axis left out has size 1.

    Raises:
        UsageError: not a signature.
    """
    match = _SIGNATURE.fullmatch(text)
    sizes = [int(g) if g else 1 for g in match.groups()] if match and text else []
    if not sizes or min(sizes) < 1:
        raise UsageError(
            f"mesh {text!r} is not a signature; write r<dp_replicate>s<dp_shard>t<tp>, for example r2s4 or s4t2"
        )
    return Mesh(dp_replicate=sizes[0], dp_shard=sizes[1], tp=sizes[2])
