"""Property tests are not timed: how long an example takes says something of the machine, and of nothing else."""

from __future__ import annotations

from hypothesis import settings

settings.register_profile("untimed", deadline=None)
settings.load_profile("untimed")
