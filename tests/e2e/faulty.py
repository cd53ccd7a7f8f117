"""A user's model that breaks where the environment says: ``FAULTS="fsdp:s2=kill@3,tp:t2=hang@19"``.

Each fault strikes on rank 1 (``everywhere`` and ``until`` on all ranks) at the given forward pass of a process in that
cell. ``until`` waits for the file ``$FAULTS_UNTIL``.
"""

from __future__ import annotations

import os
import signal
import subprocess
import time
from pathlib import Path

import torch.distributed as dist
from torch import Tensor

from harness.train.decoder import Decoder, definition
from harness.workload import PRESETS, ModelDefinition

FOREVER_S = 10_000


def strike(kind: str) -> None:
    if kind == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    if kind in ("hang", "everywhere"):
        time.sleep(FOREVER_S)
    while kind == "until" and not Path(os.environ["FAULTS_UNTIL"]).exists():
        time.sleep(0.05)
    if kind == "child":
        subprocess.Popen(["sleep", str(FOREVER_S)])
    if kind == "raise":
        raise RuntimeError("planted failure")


class Faulty(Decoder):
    """The reference decoder with faults."""

    passes: dict[str, int] = {}  # noqa: RUF012

    def forward(self, tokens: Tensor) -> Tensor:
        cell = os.environ["MESHSWEEP_CELL"]
        self.passes[cell] = self.passes.get(cell, 0) + 1
        logits = super().forward(tokens)
        for fault in filter(None, os.environ.get("FAULTS", "").split(",")):
            where, _, what = fault.rpartition("=")
            kind, _, at = what.partition("@")
            if where != cell:
                continue
            if kind == "slow":
                time.sleep(0.05)
            elif kind == "wrong":
                logits.register_hook(lambda gradient: gradient * 2)
            elif self.passes[cell] == int(at) and (dist.get_rank() == 1 or kind in ("everywhere", "until")):
                strike(kind)
        return logits


def model() -> ModelDefinition:
    shape = PRESETS["tiny"]
    reference = definition(shape)
    return ModelDefinition(shape=shape, build=lambda: Faulty(shape), tp_plan=reference.tp_plan, init=reference.init)
