"""The ground of a launch: host, devices, versions."""

from __future__ import annotations

import os
import platform
import subprocess
from pathlib import Path

import psutil
import torch
import torch.distributed as dist

import harness
from harness.record import Ground


def ground(device: torch.device) -> Ground:
    """Facts of this launch; every rank must call it. What cannot be read is None."""
    host = os.environ.get("SLURMD_NODENAME") or platform.node()
    mine = (host, torch.cuda.get_device_name(device) if device.type == "cuda" else "cpu")
    everyone: list[tuple[str, str]] = [("", "")] * dist.get_world_size()
    dist.all_gather_object(everyone, mine)
    return Ground(
        hosts=tuple(dict.fromkeys(host for host, _ in everyone)),
        device=device.type,
        device_names=tuple(dict.fromkeys(name for _, name in everyone)),
        device_memory_bytes=torch.cuda.get_device_properties(device).total_memory if device.type == "cuda" else None,
        driver=_driver() if device.type == "cuda" else None,
        cpu=_cpu_model(),
        cpu_count=psutil.cpu_count(),
        memory_bytes=psutil.virtual_memory().total,
        platform=platform.platform(),
        python=platform.python_version(),
        torch=torch.__version__,
        backend="gloo" if device.type == "cpu" else "nccl",
        nccl=".".join(map(str, torch.cuda.nccl.version())) if device.type == "cuda" else None,
        commit=_commit(),
        version=harness.__version__,
        threads_per_rank=torch.get_num_threads(),
        load_average=os.getloadavg()[0],
    )


def _driver() -> str | None:
    import pynvml

    try:
        pynvml.nvmlInit()
        return str(pynvml.nvmlSystemGetDriverVersion())
    except pynvml.NVMLError:
        return None


def _cpu_model() -> str | None:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return platform.processor() or None
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else None


def _commit() -> str | None:
    """The project's own commit, with ``-dirty`` when the tree has changes; None outside a checkout."""
    root = Path(harness.__file__).parents[1]
    if not (root / ".git").exists():
        return None
    try:
        done = subprocess.run(
            ["git", "-C", str(root), "describe", "--always", "--dirty", "--abbrev=12"],
            capture_output=True,
            text=True,
            timeout=10,
            check=True,
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip() or None
