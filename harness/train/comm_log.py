"""On a rank: have NCCL write its log, and look at the sockets that gloo uses, for gloo's log says nothing of them."""

from __future__ import annotations

import os
import platform
import socket
from pathlib import Path
from typing import Any

import psutil
import torch.distributed as dist
from torch.distributed import distributed_c10d

from harness.launch.comm_files import nccl_log


def keep_log(folder: Path, rank: int) -> None:
    """Before the first communicator is made: NCCL's log, of what the user did not choose otherwise, into a file."""
    os.environ.setdefault("NCCL_DEBUG", "INFO")
    os.environ.setdefault("NCCL_DEBUG_SUBSYS", "INIT,GRAPH,NET,ENV")
    os.environ["NCCL_DEBUG_FILE"] = str(nccl_log(folder, rank)).replace("%", "%%")


def sockets() -> dict[str, Any]:
    """This process's groups of several ranks, its TCP connections (local and remote end), and whose addresses they are.

    Call it while the groups live.
    """
    groups = [dist.get_process_group_ranks(group) for group in distributed_c10d._world.pg_map]
    interfaces = {
        entry.address: name
        for name, entries in psutil.net_if_addrs().items()
        for entry in entries
        if entry.family in (socket.AF_INET, socket.AF_INET6)
    }
    ends = [
        [*one.laddr, *one.raddr]
        for one in psutil.Process().net_connections("tcp")
        if one.status == psutil.CONN_ESTABLISHED and one.laddr and one.raddr
    ]
    return {
        "host": os.environ.get("SLURMD_NODENAME") or platform.node(),
        "groups": sorted({tuple(ranks) for ranks in groups if len(ranks) > 1}),
        "connections": ends,
        "interfaces": interfaces,
    }
