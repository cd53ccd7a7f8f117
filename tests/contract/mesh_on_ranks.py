"""What runs on each rank: real device meshes and the contract's check."""

from __future__ import annotations

import os
from typing import Any, cast

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh

from harness.layout import AXES, Layout
from harness.mesh import MeshContract, MeshContractError
from harness.train.mesh_check import axis_groups, check_mesh
from harness.train.parallel import Context
from harness.train.strategies.manual_hsdp import grouped_by_hand


def real_groups(layout: Layout) -> tuple[dict[str, list[list[int]]], dict[str, int]]:
    """The groups of the mesh that a strategy builds, and this rank's coordinate on each of its axes."""
    context = Context(layout, cast(Any, None), torch.device("cpu"), cast(Any, None))
    return _described(context.mesh())


def groups_by_hand(dp_replicate: int, dp_shard: int) -> tuple[dict[str, list[list[int]]], dict[str, int]]:
    """The same of ``manual_hsdp``'s mesh."""
    return _described(grouped_by_hand(torch.arange(dp_replicate * dp_shard).view(dp_replicate, dp_shard), "cpu"))


def slices() -> dict[str, Any]:
    """What slicing a 2 x 2 x 2 mesh gives on this rank."""
    mesh = init_device_mesh("cpu", (2, 2, 2), mesh_dim_names=AXES)
    found: dict[str, Any] = {
        "rank": dist.get_rank(),
        "tp": mesh["tp"].mesh.tolist(),
        "dp_replicate": mesh["dp_replicate"].mesh.tolist(),
        "tp size": mesh["tp"].size(),
        "dp": mesh["dp_replicate", "dp_shard"].mesh.tolist(),
        "dp size": mesh["dp_replicate", "dp_shard"].size(),
        "coordinate": mesh.get_coordinate(),
        "sizes": tuple(mesh.size(axis) for axis in range(mesh.ndim)),
    }
    for key in (0, ("tp", "dp_shard"), "pp"):
        try:
            found[str(key)] = cast(Any, mesh)[key].mesh.tolist()
        except Exception as error:
            found[str(key)] = type(error).__name__
    return found


def wrong_mesh_size() -> str:
    """What init_device_mesh says of a mesh larger than the world."""
    try:
        init_device_mesh("cpu", (4, 4), mesh_dim_names=AXES[:2])
    except RuntimeError as error:
        return str(error)
    return "accepted"


def check_as_on(
    contract: MeshContract, layout: Layout, hosts: tuple[str, ...], local_ranks: tuple[int, ...]
) -> str | None:
    """The error of ``check_mesh`` on this rank as though it ran on ``hosts[rank]``; None if there is none."""
    rank = dist.get_rank()
    before = {name: os.environ.get(name) for name in ("SLURMD_NODENAME", "LOCAL_RANK")}
    os.environ.update(SLURMD_NODENAME=hosts[rank], LOCAL_RANK=str(local_ranks[rank]))
    try:
        check_mesh(contract, layout.mesh)
    except MeshContractError as error:
        return str(error)
    finally:
        for name, value in before.items():
            os.environ.pop(name) if value is None else os.environ.update({name: value})
    return None


def check_own(contracts: tuple[MeshContract, ...], layout: Layout) -> str | None:
    """The same where rank r holds ``contracts[r]``."""
    try:
        check_mesh(contracts[dist.get_rank()], layout.mesh)
    except MeshContractError as error:
        return str(error)
    return None


def _described(mesh: DeviceMesh) -> tuple[dict[str, list[list[int]]], dict[str, int]]:
    names = mesh.mesh_dim_names or ()
    return axis_groups(mesh), {name: mesh.get_local_rank(name) for name in names}
