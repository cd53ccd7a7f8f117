"""The only reader and writer of results folders: ``<root>/<sweep>/{sweep.json,records/,launches/,report/}``."""

from __future__ import annotations

import errno
import fcntl
import json
import marshal
import os
import re
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import lru_cache
from pathlib import Path
from typing import IO, Any, TypeVar

from pydantic import ValidationError
from pydantic_core import from_json

from harness.base import Frozen
from harness.checkpoint.study import CheckpointStudy
from harness.errors import StoreError
from harness.record import Ground, RunRecord
from harness.spec import SCHEMA_VERSION, RunSpec, SweepPlan

LOCK_TRIES = 3
CHECKPOINTS = "checkpoints.json"
Model = TypeVar("Model", bound=Frozen)


def write_atomic(path: Path, content: str | bytes) -> None:
    """Write, flush to disk and rename, so that a reader sees the old content or the new, never a part.

    Raises:
        StoreError: it cannot be written (disk full, no permission); nothing is left behind.
    """
    temporary = None
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=path.parent, prefix=f".{path.name}.", delete=False) as file:
            temporary = Path(file.name)
            file.write(content.encode("utf-8") if isinstance(content, str) else content)
            file.flush()
            os.fsync(file.fileno())
        temporary.chmod(0o644)
        temporary.replace(path)
    except OSError as error:
        if temporary is not None:
            temporary.unlink(missing_ok=True)
        full = error.errno in (errno.ENOSPC, errno.EDQUOT)
        remedy = "free space or choose another place" if full else "make it writable or choose another place"
        raise StoreError(f"cannot write {path}: {error.strerror or error}; {remedy}") from error


def read_model(path: Path, model: type[Model]) -> Model:
    """Read one JSON file as ``model``.

    Raises:
        StoreError: unreadable, not JSON, of a newer schema, or not of the model's form.
    """
    try:
        content = path.read_bytes()
    except OSError as error:
        raise StoreError(f"cannot read {path}: {error.strerror or error}") from error
    try:
        read = model.model_validate_json(content)
    except ValidationError as error:
        raise _unreadable(path, content, model, error) from error
    _refuse_newer(path, getattr(read, "schema_version", None))
    _refuse_huge(path, content)
    return read


def read_record(path: Path) -> RunRecord:
    """One record, as ``read_model`` reads it, with the ids of the spec that is read.

    Ids hash the spec with all defaults, so a field that is new since the record was written changes them. Records of
    one suite have few specs and grounds between them: each is validated once and then shared.

    Raises:
        StoreError: as ``read_model``.
    """
    try:
        content = path.read_bytes()
        data = from_json(content)
        spec, run_id, cell_id = _known_spec(marshal.dumps(data["spec"], _COMPARABLE))
        ground = None if data.get("ground") is None else _known_ground(marshal.dumps(data["ground"], _COMPARABLE))
        if not isinstance(data["run_id"], str) or not isinstance(data["cell_id"], str):
            raise TypeError("ids are words")
        ids = {"run_id": run_id, "cell_id": cell_id}
        record = RunRecord.model_validate({**data, **ids, "spec": spec, "ground": ground})
        _refuse_newer(path, record.schema_version)
        _refuse_huge(path, content)
    except (OSError, ValueError, LookupError, TypeError, AttributeError):  # whatever it is, the plain way says it
        plain = read_model(path, RunRecord)
        return plain.model_copy(update={"run_id": plain.spec.run_id, "cell_id": plain.spec.cell_id})
    return record


_COMPARABLE = 2  # marshal's last version that writes equal values as equal bytes, whoever else refers to them


@lru_cache(maxsize=8192)
def _known_spec(packed: bytes) -> tuple[RunSpec, str, str]:
    spec = RunSpec.model_validate(marshal.loads(packed))
    return spec, spec.run_id, spec.cell_id


@lru_cache(maxsize=1024)
def _known_ground(packed: bytes) -> Ground:
    return Ground.model_validate(marshal.loads(packed))


def take_lock(file: IO[Any]) -> bool:
    """Lock a file; one that only looks whether it is locked holds it for a moment."""
    for _ in range(LOCK_TRIES):
        with suppress(BlockingIOError):
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        time.sleep(0.05)
    return False


def is_held(path: Path) -> bool:
    """Whether a process holds a file's lock exclusively; False where there is no file to look at."""
    try:
        with path.open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return False
    return False


def _unreadable(path: Path, content: bytes, model: type[Frozen], error: ValidationError) -> StoreError:
    """Why ``content`` is not of the model's form, the plainest cause first."""
    try:
        data = json.loads(content)
    except (ValueError, RecursionError) as cause:
        return StoreError(f"{path} is not JSON ({cause}); restore it from a copy or remove it")
    _refuse_newer(path, data.get("schema_version") if isinstance(data, dict) else None)
    first = error.errors()[0]
    where = ".".join(str(part) for part in first["loc"]) or "top level"
    return StoreError(f"{path} is not a {model.__name__}: {where}: {first['msg']}; remove or restore it")


def _refuse_newer(path: Path, version: object) -> None:
    if isinstance(version, int) and version > SCHEMA_VERSION:
        raise StoreError(
            f"{path} has schema version {version}, this meshsweep reads up to {SCHEMA_VERSION}; upgrade meshsweep"
        )


_MOST_DIGITS = b"0" * 19
_DIGITS_ALIKE = bytes.maketrans(b"123456789", b"000000000")
_MANY_DIGITS = re.compile(rb"[\s:,\[]-?[0-9]{19,}\s*[,\]}]")


def _refuse_huge(path: Path, content: bytes) -> None:
    """
    Raises:
        StoreError: a whole number is beyond 64 bits, which tables cannot hold.
    """
    if _MOST_DIGITS not in content.translate(_DIGITS_ALIKE) or not _MANY_DIGITS.search(content):
        return  # nearly always: looking at each number of many records takes time, and so does the expression
    for number in _whole_numbers(from_json(content)):
        if not -(2**63) <= number < 2**63:
            raise StoreError(f"{path} has the number {number}, which no 64 bits hold; remove or restore it")


def _whole_numbers(value: Any) -> Iterator[int]:
    if isinstance(value, int):
        yield value
    elif isinstance(value, dict | list):
        for one in value.values() if isinstance(value, dict) else value:
            yield from _whole_numbers(one)


class SweepStore:
    """One sweep's folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    @classmethod
    def create(cls, root: Path, plan: SweepPlan) -> SweepStore:
        """Make the folder and write the plan.

        Raises:
            StoreError: a sweep of that name exists, or the folder cannot be written.
        """
        folder = root / plan.name
        if (folder / "sweep.json").exists():
            raise StoreError(f"sweep {plan.name} exists in {root}; choose another --name or use 'meshsweep resume'")
        store = cls(folder)
        write_atomic(folder / "sweep.json", plan.model_dump_json(indent=1))
        return store

    @classmethod
    def open(cls, folder: Path) -> SweepStore:
        """Open an existing sweep.

        Raises:
            StoreError: no such folder, or no sweep in it.
        """
        if not folder.is_dir():
            names = [p.name for p in sweeps(folder.parent)]
            listing = f"sweeps in {folder.parent}: {', '.join(names)}" if names else f"no sweeps in {folder.parent}"
            raise StoreError(f"no sweep folder {folder}; {listing}")
        if not (folder / "sweep.json").is_file():
            inner = [p.name for p in sweeps(folder)]
            hint = f"it holds the sweeps {', '.join(inner)}" if inner else "run 'meshsweep run' first"
            raise StoreError(f"{folder} is not a sweep (no sweep.json); {hint}")
        return cls(folder)

    def plan(self) -> SweepPlan:
        """The sweep's plan."""
        return read_model(self.folder / "sweep.json", SweepPlan)

    def add(self, record: RunRecord) -> Path:
        """Write a record; one file a run and attempt."""
        path = self.record_path(record.run_id, record.attempt)
        write_atomic(path, record.model_dump_json(indent=1))
        return path

    def record_path(self, run_id: str, attempt: int) -> Path:
        return self.folder / "records" / f"{run_id}.a{attempt}.json"

    def records(self) -> tuple[RunRecord, ...]:
        """All records, ordered by start.

        Raises:
            StoreError: one of them is unreadable; the message names it.
        """
        return tuple(sorted(self._read_records(), key=lambda r: (r.started_at, r.run_id, r.attempt)))

    def _read_records(self) -> Iterator[RunRecord]:
        folder = self.folder / "records"
        paths = [path for path in folder.iterdir() if path.name.endswith(".json")] if folder.is_dir() else []
        return map(read_record, sorted(paths, key=lambda path: path.name))

    @contextmanager
    def driving(self) -> Iterator[None]:
        """Hold the sweep, so that no two processes launch its runs; the lock ends with the process that holds it.

        Raises:
            StoreError: another process holds it, or the folder cannot be written.
        """
        try:
            file = (self.folder / "lock").open("a")
        except OSError as error:
            raise StoreError(f"cannot write {self.folder}: {error.strerror}; make it writable, or copy it") from error
        with file:
            if not take_lock(file):
                raise StoreError(
                    f"another meshsweep drives {self.folder}; watch it with 'meshsweep status', or end it first"
                )
            yield

    @property
    def driven(self) -> bool:
        """Whether a process drives the sweep now."""
        return is_held(self.folder / "lock")

    def add_checkpoint_study(self, study: CheckpointStudy) -> None:
        """Keep a study of checkpoints with the sweep, in place of an earlier one."""
        write_atomic(self.folder / CHECKPOINTS, study.model_dump_json(indent=1))

    def checkpoint_study(self) -> CheckpointStudy | None:
        """The sweep's study of checkpoints, None if none was made."""
        path = self.folder / CHECKPOINTS
        return read_model(path, CheckpointStudy) if path.is_file() else None

    def launches(self) -> list[Path]:
        """The folders of all launches so far, in their order."""
        return sorted(p.parent for p in (self.folder / "launches").glob("*/launch.json"))

    def launch_folder(self, launch_id: str) -> Path:
        return self.folder / "launches" / launch_id

    @property
    def report_folder(self) -> Path:
        return self.folder / "report"


def sweeps(root: Path) -> list[Path]:
    """Sweep folders in ``root``, oldest first by name."""
    if not root.is_dir():
        return []
    return sorted(p.parent for p in root.glob("*/sweep.json"))
