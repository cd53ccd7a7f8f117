"""Rows of many sweeps, read by several processes. Also what each of them runs: ``python -m harness.history.build``."""

from __future__ import annotations

import gc
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

import harness
from harness.errors import StoreError
from harness.history.tables import Tables, sweep_tables
from harness.store import SweepStore

FEWEST_RECORDS = 4000  # below it a process of its own costs more than it saves
_MOST_WORKERS = 8


def build(folders: Sequence[Path]) -> list[Tables]:
    """The rows of these sweeps, in any order.

    Raises:
        StoreError: a plan or record is unreadable; the message names it.
    """
    records = sum(sum(1 for _ in (folder / "records").iterdir()) for folder in folders if (folder / "records").is_dir())
    workers = min(len(os.sched_getaffinity(0)), _MOST_WORKERS, records // FEWEST_RECORDS)
    if workers < 2:
        return [_of_sweep(folder) for folder in folders]
    return list(_in_processes([folders[start::workers] for start in range(workers)]))


def _of_sweep(folder: Path) -> Tables:
    store = SweepStore.open(folder)
    return sweep_tables(store.plan(), store.records(), folder.name)


def _in_processes(shares: Sequence[Sequence[Path]]) -> Iterator[Tables]:
    """Programs rather than forks: a fork copies locks of threads that it does not have, such as pyarrow's."""
    import pyarrow as pa

    source = str(Path(harness.__file__).parents[1])
    env = {**os.environ, "PYTHONPATH": os.pathsep.join([source, *filter(None, [os.environ.get("PYTHONPATH")])])}
    with tempfile.TemporaryDirectory(prefix="meshsweep-") as temporary:
        outputs = [Path(temporary) / str(number) for number in range(len(shares))]
        started = []
        for share, output in zip(shares, outputs, strict=True):
            task = json.dumps([str(output), *map(str, share)])
            command = [sys.executable, "-m", "harness.history.build"]
            process = subprocess.Popen(command, stdin=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=env)
            assert process.stdin is not None
            process.stdin.write(task)
            process.stdin.close()
            started.append(process)
        errors = [process.stderr.read() if process.stderr else "" for process in started]
        for process, error in zip(started, errors, strict=True):
            if process.wait() != 0:
                raise StoreError(error.strip().splitlines()[-1] if error.strip() else "a reader of records was ended")
        for output in outputs:
            with pa.OSFile(str(output) + ".runs") as runs, pa.OSFile(str(output) + ".cells") as cells:
                yield Tables(pa.ipc.open_stream(runs).read_all(), pa.ipc.open_stream(cells).read_all())


def main() -> int:
    """Read ``[output, folder, ...]`` as JSON from stdin; write ``output.runs`` and ``output.cells``, Arrow streams."""
    import pyarrow as pa

    gc.disable()  # records have no cycles, and this process ends soon
    output, *folders = json.loads(sys.stdin.read())
    try:
        found = [_of_sweep(Path(folder)) for folder in folders]
    except StoreError as error:
        print(error, file=sys.stderr)
        return error.exit_code
    for name, tables in (("runs", [one.runs for one in found]), ("cells", [one.cells for one in found])):
        table = pa.concat_tables(tables)
        with pa.OSFile(f"{output}.{name}", "wb") as sink, pa.ipc.new_stream(sink, table.schema) as writer:
            writer.write_table(table)
    return 0


if __name__ == "__main__":
    sys.exit(main())
