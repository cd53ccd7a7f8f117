"""A Parquet cache of a results folder. The records are the truth: what is stale, broken or gone is read again.

``<results>/.cache/{runs,cells}.parquet``. A sweep's rows are used only if its signature, a digest of name, size and
times of its plan and of every record, is the one under which they were made. Files are replaced whole.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from harness import __version__
from harness.errors import StoreError
from harness.history.build import build
from harness.history.tables import Tables
from harness.spec import SCHEMA_VERSION
from harness.store import sweeps, write_atomic

FOLDER = ".cache"
FORMAT = 2  # of the rows; higher whenever columns or their meaning change
_KEY = b"meshsweep"


def read_tables(root: Path, columns: Sequence[str] | None = None) -> Tables:
    """The rows of all sweeps in ``root``, oldest sweep first by name; ``columns``: those of runs that are needed.

    Raises:
        StoreError: there is no sweep, or a record is unreadable; the message names it.
    """
    import pyarrow as pa

    folders = {folder.name: folder for folder in sweeps(root)}
    if not folders:
        raise StoreError(f"no sweeps in {root}; run 'meshsweep run' first, or give the folder of all sweeps")
    signatures = {name: signature(folder) for name, folder in folders.items()}
    known = _known(root)
    if known == signatures:
        cached = _read(root, columns)
        if cached is not None:
            return cached
    cached = _read(root, None) if known else None
    kept = [name for name in signatures if cached is not None and known.get(name) == signatures[name]]
    made = build([folders[name] for name in signatures if name not in set(kept)])
    parts = [*([] if cached is None else [_only(cached, kept)]), *made]
    tables = Tables(*(pa.concat_tables([part[side] for part in parts]).sort_by("sweep") for side in (0, 1)))
    _write(root, tables, signatures)
    return tables if columns is None else Tables(tables.runs.select(columns), tables.cells)


def signature(folder: Path) -> str:
    """Changes whenever a file of the sweep that counts is written, replaced, added or removed."""
    stats = [("", (folder / "sweep.json").stat())]
    if (folder / "records").is_dir():
        with os.scandir(folder / "records") as entries:
            stats += sorted((entry.name, entry.stat()) for entry in entries if entry.name.endswith(".json"))
    told = [(name, s.st_size, s.st_mtime_ns, s.st_ctime_ns, s.st_ino) for name, s in stats]
    return hashlib.blake2b(repr(told).encode(), digest_size=16).hexdigest()


def _only(tables: Tables, names: Sequence[str]) -> Tables:
    import pyarrow as pa
    import pyarrow.compute as pc

    wanted = pa.array(list(names), pa.string())
    return Tables(*(table.filter(pc.is_in(table["sweep"], wanted)) for table in tables))


def _paths(root: Path) -> tuple[Path, Path]:
    return root / FOLDER / "runs.parquet", root / FOLDER / "cells.parquet"


def _known(root: Path) -> Mapping[str, str]:
    """Signatures under which both files were made; empty if either is not there, broken or of another meshsweep."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    found = []
    for path in _paths(root):
        try:
            found.append(json.loads((pq.read_schema(path).metadata or {})[_KEY]))
        except (OSError, pa.ArrowException, ValueError, KeyError):
            return {}
    if found[0] != found[1] or found[0].get("made_by") != _made_by():
        return {}
    signatures: Mapping[str, str] = found[0]["signatures"]
    return signatures


def _made_by() -> list[object]:
    return [FORMAT, SCHEMA_VERSION, __version__]


def _read(root: Path, columns: Sequence[str] | None) -> Tables | None:
    """The cached rows, None if they cannot be read; pages carry checksums."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    runs, cells = _paths(root)
    try:
        return Tables(
            pq.read_table(runs, columns=columns, page_checksum_verification=True),
            pq.read_table(cells, page_checksum_verification=True),
        )
    except (OSError, pa.ArrowException, ValueError):
        return None


def _write(root: Path, tables: Tables, signatures: Mapping[str, str]) -> None:
    """Replace the cache; a folder that cannot be written has none."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    told = {_KEY: json.dumps({"made_by": _made_by(), "signatures": signatures}).encode()}
    try:
        for path, table in zip(_paths(root), tables, strict=True):
            sink = pa.BufferOutputStream()
            pq.write_table(table.replace_schema_metadata(told), sink, compression="zstd", write_page_checksum=True)
            write_atomic(path, sink.getvalue().to_pybytes())
    except StoreError:
        return
