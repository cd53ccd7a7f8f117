"""What a session does whose collectives carry nothing."""

from __future__ import annotations

import torch

from harness.spec import RunSpec
from harness.train import muted
from harness.train.session import Session


def grad_norms(spec: RunSpec, axes: tuple[str, ...]) -> tuple[float, ...]:
    """Global gradient norm, as this rank has it, of two steps without the collectives of ``axes``."""
    muted.register()
    session = Session(spec, torch.device("cpu"), "sgd", muted=axes)
    norms = tuple(float(session.step(session.batch(step), 1.0)[1]) for step in range(2))
    session.close()
    return norms
