"""Ways to save a session; a checkpoint appears under its name only when it is whole."""

from __future__ import annotations

import shutil
import time
from concurrent.futures import Future
from dataclasses import dataclass, field
from pathlib import Path
from traceback import StackSummary
from typing import Any, cast

import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.staging import DefaultStager, StagingOptions

from harness.checkpoint.names import CheckpointError, folder_name, partial_folder
from harness.checkpoint.throttle import Throttle
from harness.checkpoint.ways import SaveWay
from harness.mesh.contract import MeshContract
from harness.train.checkpoint.planners import SavePlanner
from harness.train.checkpoint.state import get_state
from harness.train.checkpoint.writer import ManifestWriter
from harness.train.session import Session

DEFAULT_WAY: SaveWay = "one_group"


@dataclass
class Saved:
    """A finished save as this rank saw it. ``seconds``: its time by part."""

    folder: Path
    time_s: float
    written_bytes: int
    seconds: dict[str, float] = field(default_factory=dict)


@dataclass
class Saving:
    """A save that runs on behind training: ``blocking_s`` is what training waited for."""

    folder: Path
    blocking_s: float
    started: float
    writer: ManifestWriter
    future: Future[Any]
    stager: DefaultStager
    group: dist.ProcessGroup

    def done(self) -> bool:
        """Whether this rank's part has ended."""
        return self.future.done()

    def wait(self) -> Saved:
        """Wait for its end on all ranks; a collective.

        Raises:
            CheckpointError: it failed; nothing is left under the checkpoint's name.
        """
        failure: CheckpointError | None = None
        try:
            self.future.result()
        except CheckpointException as error:
            failure = _failed(self.folder, error)
        dist.barrier()  # no rank closes the group's connections while another still receives
        self.stager.close()
        dist.destroy_process_group(self.group)
        if failure is not None:
            raise failure
        return Saved(self.folder, time.perf_counter() - self.started, self.writer.written_bytes, self.writer.seconds)


def save(
    session: Session,
    step: int,
    root: Path,
    way: SaveWay = DEFAULT_WAY,
    digest: bool = True,
    contract: MeshContract | None = None,
    throttle: Throttle | None = None,
) -> Saved:
    """Write the session's state after ``step`` steps into ``root``; a collective.

    Raises:
        CheckpointError: the name is taken, or it could not be written on some rank (with the rank and the cause);
            nothing is left under the name, and older checkpoints are as they were.
    """
    folder = root / folder_name(step, session.spec.layout.mesh.signature)
    start = time.perf_counter()
    state = get_state(session, whole=way == "full")
    got = time.perf_counter()
    writer = ManifestWriter(folder, session.spec, step, way, digest, contract, throttle)
    try:
        if way == "stock":
            dcp.save(state, checkpoint_id=folder)
        elif way != "full":
            dcp.save(state, storage_writer=writer, planner=SavePlanner(way))
        else:
            _save_on_first(state, writer)
    except CheckpointException as error:
        raise _failed(folder, error) from None
    total = time.perf_counter() - start
    seconds = {"state": got - start, **writer.seconds} if way != "stock" else {"state": got - start}
    seconds["plan and wait"] = max(0.0, total - sum(seconds.values()))
    return Saved(folder, total, writer.written_bytes, seconds)


def _save_on_first(state: dict[str, object], writer: ManifestWriter) -> None:
    """Rank 0 writes, the others learn how it went."""
    told: list[BaseException | None] = [None]
    if dist.get_rank() == 0:
        try:
            dcp.save(state, storage_writer=writer, planner=SavePlanner("full"), no_dist=True)
        except (Exception, CheckpointException) as error:
            told = [error]
    dist.broadcast_object_list(told)
    failure = told[0]
    if failure is not None:
        raise CheckpointException("write", {0: (failure, StackSummary())})


def save_async(session: Session, step: int, root: Path, way: SaveWay = DEFAULT_WAY) -> Saving:
    """Copy the state to host memory (pinned where there is a GPU) and write it behind the following steps.

    In a process group of its own: in the default one its collectives would mix with training's.
    """
    folder = root / folder_name(step, session.spec.layout.mesh.signature)
    group = dist.new_group(backend="gloo")
    cuda = session.device.type == "cuda"
    stager = DefaultStager(
        StagingOptions(
            use_pinned_memory=cuda, use_shared_memory=False, use_async_staging=False, use_non_blocking_copy=cuda
        )
    )
    writer = ManifestWriter(folder, session.spec, step, way)
    dist.barrier()
    start = time.perf_counter()
    future = dcp.async_save(
        get_state(session), storage_writer=writer, planner=SavePlanner(way), process_group=group, async_stager=stager
    )
    return Saving(folder, time.perf_counter() - start, start, writer, cast("Future[Any]", future), stager, group)


def _failed(folder: Path, error: CheckpointException) -> CheckpointError:
    """One line of what went wrong where; rank 0 removes what was written so far."""
    rank = min(error.failures)
    cause: BaseException = error.failures[rank][0]
    if isinstance(cause, CheckpointError):
        return cause
    if dist.get_rank() == 0:
        shutil.rmtree(partial_folder(folder), ignore_errors=True)
    what = cause.strerror if isinstance(cause, OSError) and cause.strerror else f"{type(cause).__name__}: {cause}"
    return CheckpointError(
        f"cannot write checkpoint {folder}: {what} on rank {rank}; older checkpoints are as they were, free space and "
        "save again"
    )
