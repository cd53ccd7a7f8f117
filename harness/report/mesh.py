"""The mesh of the fastest layout on its hosts."""

from __future__ import annotations

from typing import TYPE_CHECKING

from harness.compare import Comparison
from harness.errors import UsageError

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_MOST_RANKS = 128  # beyond, a page holds no legible picture of it; `meshsweep mesh show` draws more


def draw_mesh(comparison: Comparison) -> Figure | None:
    """One panel an axis; None for a mesh of one rank, of too many, or that does not span the plan's devices."""
    from harness.mesh.show import figure

    best = comparison.best
    if best is None or not 1 < best.world_size <= _MOST_RANKS:
        return None
    try:
        return figure(comparison.plan.contract_of(best.layout))
    except UsageError:
        return None
