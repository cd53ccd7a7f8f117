"""``hsdp`` on groups made by hand with ``new_group``, as it was done before DeviceMesh."""

from __future__ import annotations

import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh

from harness.train.parallel import Context, Parallel
from harness.train.strategies._sharding import shard


def parallelize(model: nn.Module, context: Context) -> Parallel:
    mesh = context.layout.mesh
    ranks = context.places().view(mesh.dp_replicate, mesh.dp_shard)
    axes = ("dp_replicate", "dp_shard")
    names, backends = tuple(map(context.dim, axes)), tuple(map(context.backend, axes))
    shard(model, grouped_by_hand(ranks, context.device.type, names, backends), context)
    context.materialise(model)
    return Parallel(model)


def grouped_by_hand(
    ranks: Tensor,
    device_type: str,
    names: tuple[str, ...] = ("dp_replicate", "dp_shard"),
    backends: tuple[str | None, ...] = (None, None),
) -> DeviceMesh:
    """A mesh over ``ranks`` (dp_replicate, dp_shard): its columns replicate, its rows shard.

    Every rank takes part in making every group, also those that it is not in.
    """
    rank = dist.get_rank()
    mine = []
    for rows, backend in zip((ranks.t().tolist(), ranks.tolist()), backends, strict=True):
        groups = [(row, dist.new_group(row, backend=backend)) for row in rows]
        mine += [group for row, group in groups if rank in row]
    return DeviceMesh.from_group(mine, device_type, mesh=ranks, mesh_dim_names=names)
