"""Joining and leaving the process group of a launch."""

from __future__ import annotations

import os
import sys
from datetime import timedelta
from typing import NoReturn

import torch
import torch.distributed as dist


def pick_device(kind: str, local_rank: int) -> torch.device:
    """This rank's device; on CUDA it becomes the current one."""
    if kind == "cpu":
        return torch.device("cpu")
    device = torch.device("cuda", local_rank)
    torch.cuda.set_device(device)
    return device


def backend_of(device: torch.device) -> str:
    """gloo on CPUs, nccl (with gloo for CPU tensors) on CUDA."""
    return "gloo" if device.type == "cpu" else "cpu:gloo,cuda:nccl"


def join(store: dist.Store, rank: int, world_size: int, device: torch.device, timeout_s: float) -> None:
    """Make the default process group."""
    dist.init_process_group(
        backend_of(device),
        store=store,
        rank=rank,
        world_size=world_size,
        timeout=timedelta(seconds=timeout_s),
        device_id=device if device.type == "cuda" else None,
    )


def leave(code: int) -> NoReturn:
    """End this process at once.

    Without the interpreter's teardown: destroying a group while a wrapper still lives can hang.
    """
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)
