"""Saved on one mesh, restored on another: every tensor compared, and training gone on."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import torch
import torch.distributed as dist
from safetensors import safe_open
from safetensors.torch import save_file
from torch import Tensor
from torch.distributed.tensor import DTensor

from harness.checkpoint.fit import why_not
from harness.checkpoint.manifest import read_manifest
from harness.checkpoint.study import Pair, Source
from harness.spec import RunSpec
from harness.train.checkpoint.measure import gathered
from harness.train.checkpoint.restore import restore
from harness.train.checkpoint.save import save
from harness.train.checkpoint.state import get_state, leaves, whole_tensors
from harness.train.remote import device
from harness.train.session import Session, mean_over_ranks
from harness.train.weights import local_part

STEPS, FURTHER_STEPS = 2, 5


def save_source(spec: RunSpec, root: Path) -> Source:
    """Train, save, and note how training goes on."""
    session = Session(spec, device(), "adamw")
    _train(session, 0, STEPS)
    saved = save(session, STEPS, root / spec.layout.strategy)
    state = get_state(session)
    tensors = whole_tensors(state)
    whole_file = saved.folder.parent / "whole.safetensors"
    if dist.get_rank() == 0:
        # by another library than the checkpoint's own writer, so that a fault there cannot hide
        save_file(tensors, whole_file)
    values = {key: repr(value) for key, value in leaves(state) if not isinstance(value, Tensor)}
    losses = _train(session, STEPS, FURTHER_STEPS)
    session.close()
    total = sum(file.stat().st_size for file in saved.folder.iterdir())
    return Source(
        layout=spec.layout.text,
        world_size=dist.get_world_size(),
        folder=str(saved.folder),
        step=STEPS,
        checkpoint_bytes=total,
        losses=losses,
        whole_file=str(whole_file),
        values=values,
    )


def restore_sources(spec: RunSpec, sources: Sequence[Source]) -> list[Pair]:
    """Restore each checkpoint into a session that was made from other weights and has trained on, and train on."""
    session: Session | None = None
    pairs = []
    for source in sources:
        world_size = dist.get_world_size()
        names = {
            "source": source.layout,
            "source_ranks": source.world_size,
            "target": spec.layout.text,
            "target_ranks": world_size,
        }
        reason = why_not(read_manifest(Path(source.folder)), spec.layout, spec.workload, world_size)
        if reason is not None:
            pairs.append(Pair.model_validate({**names, "reason": reason}))
            continue
        if session is None:
            session = Session(spec, device(), "adamw", seed=spec.seed + 1)
            _train(session, 100, 1)
        dist.barrier()
        everyone = gathered(restore(session, Path(source.folder)))
        unequal = _unequal(session, source)
        losses = _train(session, source.step, len(source.losses))
        pairs.append(
            Pair.model_validate(
                {
                    **names,
                    "time_s": max(one.time_s for one in everyone),
                    "checkpoint_bytes": source.checkpoint_bytes,
                    "storage_bytes": sum(one.storage_bytes for one in everyone),
                    "unequal": unequal,
                    "step": everyone[0].step,
                    "loss_difference": max(abs(a - b) / abs(b) for a, b in zip(losses, source.losses, strict=True)),
                }
            )
        )
    if session is not None:
        session.close()
    return pairs


def _unequal(session: Session, source: Source) -> tuple[str, ...]:
    """Keys of what differs on any rank from what was saved; each rank looks at its part of every tensor."""
    found = dict(leaves(get_state(session)))
    bad = {key for key, text in source.values.items() if key not in found or repr(found[key]) != text}
    with safe_open(source.whole_file, framework="pt") as whole:
        for key in whole.keys():  # noqa: SIM118 - it is no dict
            value = found.get(key)
            if not isinstance(value, Tensor):
                bad.add(key)
                continue
            mine, expected = value, whole.get_tensor(key)
            if isinstance(value, DTensor):
                mine, expected = value.to_local(), local_part(expected, value)
            if mine.dtype != expected.dtype or not torch.equal(mine.cpu(), expected):
                bad.add(key)
    return tuple(sorted(set().union(*gathered(bad))))


def _train(session: Session, first: int, steps: int) -> tuple[float, ...]:
    norm = session.spec.settings.max_grad_norm
    found = []
    for step in range(first, first + steps):
        loss, _ = session.step(session.batch(step), norm)
        found.append(mean_over_ranks(loss))
    return tuple(found)
