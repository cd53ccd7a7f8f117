"""The mesh contract checked among live ranks, and the groups that a device mesh really has."""

from __future__ import annotations

import os
import platform

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh

from harness.layout import Mesh
from harness.layout.order import ranks_by_slot
from harness.mesh.check import MeshContractError, RankFacts, check_ranks
from harness.mesh.contract import MeshContract


def check_mesh(contract: MeshContract, layout_mesh: Mesh) -> None:
    """Compare this job with its contract; call it on every rank right after ``init_process_group``.

    Raises:
        MeshContractError: on every rank, the same, if any rank contradicts the contract or holds another one.
    """
    gathered: list[RankFacts | None] = [None] * dist.get_world_size()
    dist.all_gather_object(gathered, rank_facts(contract, layout_mesh))
    findings = check_ranks(contract, [facts for facts in gathered if facts is not None])
    if findings:
        raise MeshContractError(findings)


def rank_facts(contract: MeshContract, layout_mesh: Mesh) -> RankFacts:
    """What this rank knows of itself. The host is Slurm's name of the node where Slurm started the rank."""
    device = torch.cuda.current_device() if "nccl" in str(dist.get_backend_config()) else None
    uuid, pci_bus = _identity(device) if device is not None else (None, None)
    return RankFacts(
        rank=ranks_by_slot(layout_mesh, contract.order)[dist.get_rank()],
        host=os.environ.get("SLURMD_NODENAME") or platform.node(),
        local_rank=int(os.environ.get("LOCAL_RANK") or os.environ.get("SLURM_LOCALID") or 0),
        world_size=dist.get_world_size(),
        mesh=layout_mesh.signature,
        digest=contract.digest,
        visible=os.environ.get("CUDA_VISIBLE_DEVICES"),
        device=device,
        uuid=uuid,
        pci_bus=pci_bus,
    )


def axis_groups(device_mesh: DeviceMesh) -> dict[str, list[list[int]]]:
    """For each axis the ranks of every process group, asked of the groups themselves on all ranks; a collective."""
    mine = {
        name: dist.get_process_group_ranks(device_mesh.get_group(name)) for name in device_mesh.mesh_dim_names or ()
    }
    gathered: list[dict[str, list[int]]] = [{} for _ in range(dist.get_world_size())]
    dist.all_gather_object(gathered, mine)
    return {name: sorted({tuple(one[name]): one[name] for one in gathered}.values()) for name in mine}


def _identity(device: int) -> tuple[str | None, str | None]:
    """UUID and PCI bus id of a device in the spelling of a contract; None where this torch does not tell."""
    properties = torch.cuda.get_device_properties(device)
    uuid = getattr(properties, "uuid", None)
    domain, bus, slot = (getattr(properties, f"pci_{part}_id", None) for part in ("domain", "bus", "device"))
    pci_bus = f"{domain:04x}:{bus:02x}:{slot:02x}.0" if None not in (domain, bus, slot) else None
    name = None if uuid is None else str(uuid)
    return name if name is None or name.startswith("GPU-") else f"GPU-{name}", pci_bus
