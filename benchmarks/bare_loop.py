"""The same training step without meshsweep's harness: ``torchrun --nproc-per-node 4 bare_loop.py ddp|fsdp``."""

import sys
import time

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel

from harness.train.decoder import Decoder
from harness.workload import PRESETS

BATCH, SEQ_LEN, STEPS = 8, 64, 20


class BareLoop:
    def __init__(self, strategy: str) -> None:
        shape, world_size = PRESETS["tiny"], dist.get_world_size()
        torch.manual_seed(0)
        model = Decoder(shape)
        self.model: torch.nn.Module
        if strategy == "ddp":
            self.model = DistributedDataParallel(model, gradient_as_bucket_view=True)
        else:
            mesh = init_device_mesh("cpu", (world_size,))
            for layer in model.layers:
                fully_shard(layer, mesh=mesh)
            fully_shard(model, mesh=mesh)
            self.model = model
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-3)
        tokens = torch.randint(shape.vocab_size, (BATCH // world_size, SEQ_LEN + 1))
        self.inputs, self.targets = tokens[:, :-1].contiguous(), tokens[:, 1:].contiguous()

    def step(self) -> float:
        dist.barrier()
        start = time.perf_counter()
        self.optimizer.zero_grad(set_to_none=True)
        logits = self.model(self.inputs)
        F.cross_entropy(logits.flatten(0, 1), self.targets.flatten()).backward()
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.optimizer.step()
        return time.perf_counter() - start


def main() -> None:
    dist.init_process_group("gloo")
    loop = BareLoop(sys.argv[1])
    times = sorted(loop.step() for _ in range(STEPS))
    if dist.get_rank() == 0:
        print(f"{sys.argv[1]}: median step {times[STEPS // 2] * 1e3:.1f} ms")
    dist.barrier()


if __name__ == "__main__":
    main()
