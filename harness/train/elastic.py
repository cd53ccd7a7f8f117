"""A rank that torchrun started: ``python -m harness.train.elastic FOLDER``."""

from __future__ import annotations

import os
import sys
import traceback
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist

from harness.launch.folder import read_launch
from harness.train.comm_log import keep_log
from harness.train.process_group import backend_of, leave, pick_device
from harness.train.worker import run_launch


def main(folder: Path) -> None:
    """Join the group that torchrun's environment describes, and do the launch's runs."""
    rank, local_rank = int(os.environ["RANK"]), int(os.environ["LOCAL_RANK"])
    log = os.open(folder / f"rank{rank}.log", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    os.dup2(log, 1)
    os.dup2(log, 2)
    try:
        launch = read_launch(folder)
        if launch.debug_comms:
            keep_log(folder, rank)
        torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS") or 1))
        device = pick_device(launch.ranks.device, local_rank)
        dist.init_process_group(
            backend_of(device),
            timeout=timedelta(seconds=launch.runs[0].settings.collective_timeout_s),
            device_id=device if device.type == "cuda" else None,
        )
        run_launch(folder)
    # a checkpoint's error is no Exception
    except BaseException:
        traceback.print_exc()
        leave(1)
    leave(0)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
