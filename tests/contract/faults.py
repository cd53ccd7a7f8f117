"""Faults that silently change training, run on ranks to see that the gate catches them."""

# No `from __future__ import annotations` here: DDP looks at the hook's annotations as objects.
import math

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from harness.record import GateSamples
from harness.spec import RunSpec
from harness.train.equivalence import gate_samples
from harness.train.session import Session, mean_over_ranks


def summed_gradients(spec: RunSpec) -> GateSamples:
    """DDP whose gradients are summed over ranks and not averaged."""
    session = Session(spec, torch.device("cpu"), "sgd")
    assert isinstance(session.model, DistributedDataParallel)

    def summed(_state: object, bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:
        work = dist.all_reduce(bucket.buffer(), async_op=True)
        return work.get_future().then(lambda future: future.value()[0])

    session.model.register_comm_hook(None, summed)
    losses, norms = [], []
    for step in range(spec.settings.gate_steps):
        loss, norm = session.step(session.batch(step), math.inf)
        losses.append(mean_over_ranks(loss))
        norms.append(float(norm))
    session.close()
    return GateSamples(losses=tuple(losses), grad_norms=tuple(norms))


def as_it_is(spec: RunSpec) -> GateSamples:
    """A layout that planning would refuse, run all the same."""
    return gate_samples(spec, torch.device("cpu"))
