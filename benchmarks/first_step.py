"""On a rank: build a layout and train one step."""

from __future__ import annotations

from harness.measure.clock import synchronise
from harness.spec import RunSpec
from harness.train.remote import device
from harness.train.session import Session


def first_step(spec: RunSpec) -> None:
    session = Session(spec, device(), "adamw")
    session.step(session.batch(0), spec.settings.max_grad_norm)
    synchronise(device())
