"""Samples for the equivalence gate: SGD steps from the common weights, losses and gradient norms recorded."""

from __future__ import annotations

import math

import torch

from harness.record import GateSamples
from harness.spec import RunSpec
from harness.train.session import Session, mean_over_ranks


def gate_samples(spec: RunSpec, device: torch.device) -> GateSamples:
    """Train ``gate_steps`` SGD steps without clipping.

    SGD, because AdamW with clipping divides a wrong gradient scale away. The series ends before a step that is not
    finite: such a layout has fewer steps than the reference.
    """
    session = Session(spec, device, "sgd")
    losses, norms = [], []
    by_parameter: dict[str, float] | None = None
    for step in range(spec.settings.gate_steps):
        loss, norm = session.step(session.batch(step), math.inf)
        values = mean_over_ranks(loss), float(norm)
        if not all(map(math.isfinite, values)):
            break
        losses.append(values[0])
        norms.append(values[1])
        if step == 0:
            by_parameter = session.grad_norms()
    session.close()
    return GateSamples(losses=tuple(losses), grad_norms=tuple(norms), first_grad_norm_by_parameter=by_parameter)
