"""meshsweep: measure data-parallel layouts on the cluster at hand and choose one.

``harness.load("results")`` gives what was measured as pandas frames.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from harness.history import Loaded

__version__ = "0.1.0"


def load(path: str | Path) -> Loaded:
    """Results as pandas frames ``runs``, ``cells`` and ``steps``: of one sweep, or of all sweeps in a folder.

    Raises:
        StoreError: there is no sweep there.
    """
    from harness.history import load as load_results  # here, since importing pandas takes longer than most commands

    return load_results(path)
