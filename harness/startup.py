"""How long a launch took to get going."""

from __future__ import annotations

from pydantic import Field

from harness.base import Frozen


class Startup(Frozen):
    """Seconds from the start of a launch's Slurm job on its nodes; on this host from the start of the launch.

    ``ranks_s``: until rank 0 was in the process group with all others. ``first_timed_s``: until its first timed step;
    None for runs that time none.
    """

    ranks_s: float | None = Field(default=None, ge=0)
    first_timed_s: float | None = Field(default=None, ge=0)
