"""A session's state by key, and what two states must share to be equal."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_state_dict, set_state_dict
from torch.distributed.fsdp import FullyShardedDataParallel
from torch.distributed.tensor import DTensor

from harness.train.session import Session

# Optimizer options by parameter and not by group: groups differ between layouts. The older wrapper's state dict aborts
# when it is asked for that on CPUs, so its options stay by group, and only its tensors go to other layouts.
BY_PARAMETER = StateDictOptions(flatten_optimizer_state_dict=True)
BY_GROUP = StateDictOptions()
WHOLE = StateDictOptions(flatten_optimizer_state_dict=True, full_state_dict=True, cpu_offload=True)

State = dict[str, Any]


def get_state(session: Session, whole: bool = False) -> State:
    """``{"model": ..., "optimizer": ...}``: this rank's parts, or with ``whole`` all of it on rank 0's CPU."""
    options = WHOLE if whole else _options(session)
    model, optimizer = get_state_dict(session.model, session.optimizer, options=options)
    return {"model": model, "optimizer": optimizer}


def set_state(session: Session, state: State) -> None:
    """Put a state of ``get_state``'s form into the session."""
    set_state_dict(
        session.model,
        session.optimizer,
        model_state_dict=state["model"],
        optim_state_dict=state["optimizer"],
        options=_options(session),
    )


def _options(session: Session) -> StateDictOptions:
    return BY_GROUP if isinstance(session.model, FullyShardedDataParallel) else BY_PARAMETER


def fingerprint(state: State) -> dict[str, str]:
    """SHA-256 of this rank's part of every tensor, and the text of every other value, by dotted key."""
    return {key: _local_text(value) for key, value in leaves(state)}


def whole_tensors(state: State) -> dict[str, Tensor]:
    """Every tensor whole and on the CPU, by dotted key; a collective."""
    return {
        key: (value.full_tensor() if isinstance(value, DTensor) else value).detach().cpu().contiguous()
        for key, value in leaves(state)
        if isinstance(value, Tensor)
    }


def whole_fingerprint(state: State) -> dict[str, str]:
    """``fingerprint`` of whole tensors, so that states on different meshes can be compared; a collective."""
    texts = {key: _text(value) for key, value in leaves(state) if not isinstance(value, Tensor)}
    return texts | {key: _text(value) for key, value in whole_tensors(state).items()}


def leaves(value: Any, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Every value that is no dict, list or tuple, by dotted key."""
    if isinstance(value, dict):
        for key, item in value.items():
            yield from leaves(item, f"{prefix}.{key}")
    elif isinstance(value, list | tuple):
        for index, item in enumerate(value):
            yield from leaves(item, f"{prefix}.{index}")
    else:
        yield prefix, value


def on_all_ranks(good: bool) -> bool:
    """Whether ``good`` holds on every rank; a collective."""
    found = torch.tensor(good)
    dist.all_reduce(found, op=dist.ReduceOp.MIN)
    return bool(found.item())


def _local_text(value: Any) -> str:
    return _text(value.to_local() if isinstance(value, DTensor) else value)


def _text(value: Any) -> str:
    if not isinstance(value, Tensor):
        return repr(value)
    raw = value.detach().cpu().contiguous().flatten().view(torch.uint8).numpy()
    return hashlib.sha256(raw.tobytes()).hexdigest()
