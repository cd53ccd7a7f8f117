"""``harness.load``: results as tidy pandas frames."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from harness.history.cache import read_tables
from harness.history.columns import RUN_COLUMNS, STEP_COLUMNS
from harness.history.tables import CYCLES, SAMPLES, Tables, sweep_tables
from harness.store import SweepStore

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa

_STEP_KEYS = ("sweep", "cell", "round", "attempt", "launch_id")


class Loaded:
    """Frames of a sweep, or of all sweeps in a folder. Missing is missing, never 0.

    ``runs`` has a row a record (an attempt of a run), ``cells`` a row a sweep and layout, ``steps`` a row a timed step
    and rank; columns with units as in RUN_COLUMNS, CELL_COLUMNS and STEP_COLUMNS of ``harness.history``. Texts that
    repeat are categories. Each frame is made when it is first asked for.
    """

    def __init__(self, path: Path) -> None:
        self.path = path

    def __repr__(self) -> str:
        return f"Loaded({str(self.path)!r}): frames runs, cells, steps"

    @cached_property
    def runs(self) -> pd.DataFrame:
        """One row a record; columns as in RUN_COLUMNS."""
        return _frame(self._read(tuple(RUN_COLUMNS)).runs)

    @cached_property
    def cells(self) -> pd.DataFrame:
        """One row a sweep and layout; columns as in CELL_COLUMNS."""
        return _frame(self._read(("sweep",)).cells)

    @cached_property
    def steps(self) -> pd.DataFrame:
        """One row a timed step and rank, as recorded; columns as in STEP_COLUMNS."""
        return _frame(steps_table(self._read((*_STEP_KEYS, CYCLES, SAMPLES)).runs))

    def _read(self, columns: Sequence[str]) -> Tables:
        if not (self.path / "sweep.json").is_file():
            return read_tables(self.path, columns)
        store = SweepStore.open(self.path)
        tables = sweep_tables(store.plan(), store.records(), self.path.resolve().name)
        return Tables(tables.runs.select(list(columns)), tables.cells)


def load(path: str | Path) -> Loaded:
    """Results as frames: of one sweep, or of every sweep in a folder (through its cache).

    ``found = harness.load("results"); found.steps.groupby("cell").step_time_s.median()``

    Raises:
        StoreError: there is no sweep there.
    """
    folder = Path(path)
    if not (folder / "sweep.json").is_file():
        from harness.errors import StoreError
        from harness.store import sweeps

        if not sweeps(folder):
            raise StoreError(f"no sweep in {folder}; give a sweep's folder, or the folder of all sweeps")
    return Loaded(folder)


def steps_table(runs: pa.Table) -> pa.Table:
    """Runs with their samples spread out to a row a step and rank, in the order rank, step of each run."""
    import numpy as np
    import pyarrow as pa
    import pyarrow.compute as pc

    runs = runs.filter(pc.is_valid(runs[SAMPLES])).combine_chunks()
    ranks = pc.list_flatten(runs[SAMPLES])
    of_run = pc.list_parent_indices(runs[SAMPLES])  # the run of each rank's row
    of_rank = pc.list_parent_indices(ranks).to_numpy()  # the rank's row of each step
    row = np.asarray(of_run)[of_rank]
    first_rank = np.searchsorted(np.asarray(of_run), np.arange(len(runs)))
    first_step = np.searchsorted(of_rank, np.arange(len(of_run)))
    step = np.arange(len(of_rank)) - first_step[of_rank]
    cycles = pc.list_flatten(runs[CYCLES]).to_numpy()
    first_cycle = np.cumsum([0, *pc.list_value_length(runs[CYCLES]).to_numpy()])[row]
    taken = runs.select(list(_STEP_KEYS)).take(pa.array(row))
    columns = {name: taken[name] for name in _STEP_KEYS}
    columns["step"] = pa.array(step)
    columns["cycle"] = pa.array(cycles[np.minimum(first_cycle + step, len(cycles) - 1)])
    columns["rank"] = pa.array(of_rank - first_rank[row])
    columns["step_time_s"] = pc.list_flatten(ranks)
    return pa.table({name: columns[name] for name in STEP_COLUMNS})


def _frame(table: pa.Table) -> pd.DataFrame:
    """Texts as categories and integers that can be missing, so that a large frame stays small and exact."""
    import pandas as pd
    import pyarrow as pa

    nullable = {pa.int64(): pd.Int64Dtype(), pa.bool_(): pd.BooleanDtype()}
    strings = [field.name for field in table.schema if pa.types.is_string(field.type)]
    frame: pd.DataFrame = table.to_pandas(types_mapper=nullable.get, categories=strings)
    return frame
