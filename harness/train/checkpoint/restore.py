"""Ways to restore a session from a checkpoint of any mesh."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch import Tensor
from torch.distributed.checkpoint import DefaultLoadPlanner
from torch.distributed.checkpoint.api import CheckpointException

from harness.checkpoint.blocks import BLOCK_BYTES
from harness.checkpoint.manifest import Manifest, parse_manifest, read_manifest
from harness.checkpoint.names import MANIFEST, CheckpointError
from harness.checkpoint.throttle import Throttle
from harness.checkpoint.verify import require_whole
from harness.checkpoint.ways import RestoreWay
from harness.errors import MeshsweepError
from harness.train.checkpoint.planners import LoadPlanner
from harness.train.checkpoint.reader import ManifestReader
from harness.train.checkpoint.state import State, get_state, leaves, set_state
from harness.train.session import Session

DEFAULT_WAY: RestoreWay = "one_group"


@dataclass
class Restored:
    """A finished restore as this rank saw it.

    ``storage_bytes``: read from files by this rank, the manifest included; ``received_bytes``: sent by other ranks.
    """

    step: int
    time_s: float
    storage_bytes: int
    received_bytes: int
    seconds: dict[str, float]


def restore(
    session: Session,
    folder: Path,
    way: RestoreWay = DEFAULT_WAY,
    threads: int = 2,
    block_bytes: int = BLOCK_BYTES,
    direct: bool = False,
    throttle: Throttle | None = None,
) -> Restored:
    """Fill the session from a checkpoint, whatever mesh that was saved on; a collective.

    Raises:
        CheckpointError: it is not whole or does not fit the session (nothing has been touched then), or a tensor is
            altered (the session is then part old, part new, and not to be used).
    """
    start = time.perf_counter()
    manifest, manifest_bytes = _common_manifest(folder)
    state = get_state(session)
    require_fit(state, manifest, folder)
    reader = ManifestReader(folder, manifest, way, session.device, threads, block_bytes, direct, throttle)
    ready = time.perf_counter()
    try:
        dcp.load(state, storage_reader=reader, planner=LoadPlanner(manifest.values))
    except CheckpointException as error:
        cause = error.failures[min(error.failures)][0]
        raise (
            cause
            if isinstance(cause, MeshsweepError)
            else CheckpointError(f"cannot restore {folder}: {type(cause).__name__}: {cause}")
        ) from None
    loaded = time.perf_counter()
    set_state(session, state)
    end = time.perf_counter()
    seconds = {"manifest": ready - start, **reader.seconds, "set state": end - loaded}
    seconds["plan and wait"] = max(0.0, end - start - sum(seconds.values()))
    return Restored(manifest.step, end - start, reader.storage_bytes + manifest_bytes, reader.received_bytes, seconds)


class _StockReader(dcp.FileSystemReader):
    """DCP's own reader, slowed down."""

    def __init__(self, folder: Path, throttle: Throttle) -> None:
        super().__init__(folder)
        self._throttle = throttle

    def _slice_file(self, file: Any, sinfo: Any) -> Any:
        self._throttle.take(sinfo.length)
        return super()._slice_file(file, sinfo)


def restore_stock(session: Session, folder: Path, throttle: Throttle | None = None) -> float:
    """Restore what ``dcp.save`` wrote a moment ago, as torch does by itself; returns this rank's seconds.

    Only for comparison: it unpickles DCP's metadata, which this very run has written.
    """
    start = time.perf_counter()
    state = get_state(session)
    reader = dcp.FileSystemReader(folder) if throttle is None else _StockReader(folder, throttle)
    dcp.load(state, storage_reader=reader, planner=DefaultLoadPlanner(allow_partial_load=True))
    set_state(session, state)
    return time.perf_counter() - start


def require_fit(state: State, manifest: Manifest, folder: Path) -> None:
    """See that the checkpoint has what the session needs.

    Optimizer state may be missing: a parameter that no loss reaches has none.

    Raises:
        CheckpointError: a tensor of the model is missing on one side, or a tensor has another shape.
    """
    wanted = {key.removeprefix("."): value for key, value in leaves(state)}
    shapes = {key: tuple(value.shape) for key, value in wanted.items() if isinstance(value, Tensor)}
    stored = {key: tensor.shape for key, tensor in manifest.tensors.items()}
    missing = sorted(key for key in shapes if key.startswith("model.") and key not in stored)
    unknown = sorted(key for key in stored if key.startswith("model.") and key not in shapes)
    other = sorted(key for key in shapes if key in stored and shapes[key] != stored[key])
    for keys, what in ((missing, "lacks"), (unknown, "has, and the model lacks,")):
        if keys:
            raise CheckpointError(f"checkpoint {folder} {what} {_listed(keys)}; restore it into the model it is of")
    if other:
        key = other[0]
        raise CheckpointError(
            f"checkpoint {folder} has {key} of shape {stored[key]}, the model of {shapes[key]} ({len(other)} differ); "
            "restore it into the model it is of"
        )


def _listed(keys: list[str]) -> str:
    return ", ".join(keys[:3]) + (f" and {len(keys) - 3} more" if len(keys) > 3 else "")


def _common_manifest(folder: Path) -> tuple[Manifest, int]:
    """The manifest, read and checked on rank 0, and how many bytes this rank read of it."""
    found: list[str | MeshsweepError] = [""]
    nbytes = 0
    if dist.get_rank() == 0:
        try:
            require_whole(folder, read_manifest(folder))
            text = (folder / MANIFEST).read_text(encoding="utf-8")
            found, nbytes = [text], len(text.encode())
        except MeshsweepError as error:
            found = [error]
    dist.broadcast_object_list(found)
    (result,) = found
    if isinstance(result, MeshsweepError):
        raise result
    return parse_manifest(result, folder), nbytes
