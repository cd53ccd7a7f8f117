"""One sharded checkpoint with optimizer state: saved, restored into a fresh model, compared bit by bit."""

from __future__ import annotations

import hashlib
import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch import Tensor
from torch.distributed.checkpoint import DefaultLoadPlanner
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torch.distributed.tensor import DTensor

from harness.measure.clock import slowest
from harness.record import Checkpoint
from harness.spec import RunSpec
from harness.train.session import Session


def folder_name(step: int, signature: str) -> str:
    """Name of a checkpoint's folder, e.g. ``step2-r2s4t1``."""
    return f"step{step}-{signature}"


def measure_checkpoint(session: Session, spec: RunSpec, device: torch.device, step: int, root: Path) -> Checkpoint:
    """Save the session, close it, restore into a fresh one made from other weights, compare.

    The folder is removed afterwards unless the settings keep it.
    """
    path = root / folder_name(step, spec.layout.mesh.signature)
    save_s = _timed(lambda: _save(session, path))
    before = fingerprint(_state(session))
    session.close()
    fresh = Session(spec, device, "adamw", seed=spec.seed + 1)
    restore_s = _timed(lambda: _restore(fresh, path))
    after = fingerprint(_state(fresh))
    equal = torch.tensor(all(after.get(key) == value for key, value in before.items()))
    dist.all_reduce(equal, op=dist.ReduceOp.MIN)
    fresh.close()
    files = [f for f in path.rglob("*") if f.is_file()]
    result = Checkpoint(
        folder=path.name,
        total_bytes=sum(f.stat().st_size for f in files),
        files=len(files),
        save_time_s=slowest(save_s),
        restore_time_s=slowest(restore_s),
        equal=bool(equal.item()),
    )
    dist.barrier()
    if dist.get_rank() == 0 and not spec.settings.keep_checkpoints:
        shutil.rmtree(path, ignore_errors=True)
    return result


def _timed(work: Any) -> float:
    dist.barrier()
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def _state(session: Session) -> dict[str, Any]:
    model, optimizer = get_state_dict(session.model, session.optimizer)
    return {"model": model, "optimizer": optimizer}


def _save(session: Session, path: Path) -> None:
    dcp.save(_state(session), checkpoint_id=path)


def _restore(session: Session, path: Path) -> None:
    state = _state(session)
    # A parameter that no loss reaches has no optimizer state to be found; what is there must be equal all the same.
    dcp.load(state, checkpoint_id=path, planner=DefaultLoadPlanner(allow_partial_load=True))
    set_state_dict(
        session.model, session.optimizer, model_state_dict=state["model"], optim_state_dict=state["optimizer"]
    )


def fingerprint(state: dict[str, Any]) -> dict[str, str]:
    """SHA-256 of this rank's part of every tensor, and the text of every other value, by dotted key."""
    return dict(_leaves("", state))


def _leaves(prefix: str, value: Any) -> Iterator[tuple[str, str]]:
    if isinstance(value, dict):
        for key, item in value.items():
            yield from _leaves(f"{prefix}.{key}", item)
    elif isinstance(value, list | tuple):
        for index, item in enumerate(value):
            yield from _leaves(f"{prefix}.{index}", item)
    elif isinstance(value, Tensor):
        local = value.to_local() if isinstance(value, DTensor) else value
        raw = local.detach().cpu().contiguous().flatten().view(torch.uint8).numpy()
        yield prefix, hashlib.sha256(raw.tobytes()).hexdigest()
    else:
        yield prefix, repr(value)
