"""Many sweeps as tables: frames to work with, a cache that is never the truth, trends over nights."""

from harness.history.columns import CELL_COLUMNS, RUN_COLUMNS, STEP_COLUMNS
from harness.history.load import Loaded, load

__all__ = ["CELL_COLUMNS", "RUN_COLUMNS", "STEP_COLUMNS", "Loaded", "load"]
