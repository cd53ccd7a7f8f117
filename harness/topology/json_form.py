"""The one object that other programs read: ``meshsweep topology --json``."""

from __future__ import annotations

from typing import Any

from harness.topology.links import fully_connected, islands, mesh_reason, suggested_mesh
from harness.topology.model import Device, Nic, Node, Topology
from harness.topology.nccl_log import NcclFacts
from harness.topology.result import ReadResult
from harness.topology.slurm_env import SlurmJob
from harness.topology.slurm_gres import Gres, GresNode
from harness.topology.slurm_topology import Fabric


def json_object(found: Topology | ReadResult) -> dict[str, Any]:
    """``found`` as plain dicts and lists.

    Always there: ``nodes``, ``links`` (each with its host), ``islands``, ``suggested_mesh`` ([groups, devices a
    group] or None), ``mesh_reason`` (None where the groups are the islands), ``warnings``, ``sources``. Slurm texts,
    topology.conf, NCCL logs and measured links add keys of their own.
    Indices in ``links`` and ``islands`` are device indices of one node; ``nodes[].islands`` says of which.
    """
    result = found if isinstance(found, ReadResult) else ReadResult(topology=found)
    topology = result.topology
    mesh = suggested_mesh(topology)
    gres = {node.host: node for node in result.gres}
    tasks = dict(zip(result.job.nodes, result.job.tasks_per_node, strict=False)) if result.job else {}
    nodes = [_node(node, gres.get(node.host), tasks.get(node.host)) for node in topology.nodes]
    warnings = list(topology.warnings)
    if mesh is None and topology.device_count:
        counts = ", ".join(f"{node.host} {len(node.devices)}" for node in topology.nodes)
        warnings.append(f"no mesh fits all nodes: devices a node are {counts}; choose a subset of the devices")
    document: dict[str, Any] = {
        "nodes": nodes,
        "links": [link for node in topology.nodes for link in _links(node)],
        "islands": [island for node in nodes for island in node["islands"]],
        "suggested_mesh": None if mesh is None else list(mesh),
        "mesh_reason": None if mesh is None else mesh_reason(topology),
        "warnings": warnings,
        "sources": list(topology.sources),
        "kinds": list(result.kinds),
    }
    document.update(_job(result.job) if result.job else {})
    document.update(_gres_totals(result.gres) if result.gres else {})
    document.update(_fabric(result.fabric) if result.fabric else {})
    document.update({"nccl": _nccl(result.nccl)} if result.nccl else {})
    if topology.measured:
        document["measured"] = [speed.model_dump(mode="json") for speed in topology.measured]
    if result.hostlists:
        document["hostlists"] = [{"text": one.text, "hosts": list(one.hosts)} for one in result.hostlists]
    return document


def _node(node: Node, gres: GresNode | None, tasks: int | None) -> dict[str, Any]:
    document: dict[str, Any] = {
        "host": node.host,
        "devices": [_device(device) for device in node.devices],
        "islands": [list(island) for island in islands(node)],
        "fully_connected": fully_connected(node),
        "nics": [_nic(nic) for nic in node.nics],
        "switch": node.switch,
        "cpu_count": node.cpu_count,
        "memory_bytes": node.memory_bytes,
    }
    if tasks is not None:
        document["tasks"] = tasks
    if gres is not None:
        document.update(_gres_node(gres))
    return document


def _device(device: Device) -> dict[str, Any]:
    document: dict[str, Any] = {
        "index": device.index,
        "name": device.name,
        "numa_node": device.numa_node,
        "pci_bus": device.pci_bus,
        "kind": device.kind,
        "uuid": device.uuid,
        "cpus": device.cpus,
        "numa_affinity": device.numa_affinity,
        "memory_numa_node": device.memory_numa_node,
        "memory_bytes": device.memory_bytes,
    }
    if device.mig:
        document["mig"] = [part.model_dump() for part in device.mig]
    return document


def _nic(nic: Nic) -> dict[str, Any]:
    links = [{"device": link.device, "link_class": link.link_class.value} for link in nic.links]
    return {"name": nic.name, "device_name": nic.device_name, "links": links}


def _links(node: Node) -> list[dict[str, Any]]:
    return [
        {
            "host": node.host,
            "a": link.a,
            "b": link.b,
            "link_class": link.link_class.value,
            "nvlink_count": link.nvlink_count,
        }
        for link in node.links
    ]


def _job(job: SlurmJob) -> dict[str, Any]:
    return {
        "tasks_per_node": list(job.tasks_per_node),
        "ntasks": job.ntasks,
        "step_nodes": list(job.step_nodes),
        "step_tasks_per_node": list(job.step_tasks_per_node),
        "cpus_per_node": list(job.cpus_per_node),
        "gpus_on_node": job.gpus_on_node,
        "job_gpus": list(job.job_gpus),
        "job_id": job.job_id,
        "het_groups": job.het_groups,
    }


def _gres_node(node: GresNode) -> dict[str, Any]:
    return {
        "gres": [_gres(one) for one in node.gres],
        "gres_used": None if node.used is None else [_gres(one) for one in node.used],
        "gpus": node.gpus,
        "gpus_used": node.gpus_used,
        "whole_used": list(node.whole_used),
        "free_gpus": None if node.free_gpus is None else list(node.free_gpus),
        "mig_devices": node.mig_devices,
        "shards": sum(one.count for one in node.gres if one.name == "shard"),
        "state": node.state,
        "available": node.available,
        "partitions": list(node.partitions),
    }


def _gres(gres: Gres) -> dict[str, Any]:
    return {"name": gres.name, "type": gres.type, "count": gres.count}


def _gres_totals(nodes: tuple[GresNode, ...]) -> dict[str, Any]:
    """The first node's GRES where all nodes have the same, and the rows that were read."""
    alike = len({node.gres for node in nodes}) == 1
    return {
        "gres": [_gres(one) for one in nodes[0].gres] if alike else None,
        "rows": sum(node.rows for node in nodes),
    }


def _fabric(fabric: Fabric) -> dict[str, Any]:
    return {
        "switches": [
            {"name": switch.name, "switches": list(switch.switches), "nodes": list(switch.nodes)}
            for switch in fabric.switches
        ],
        "roots": list(fabric.roots),
        "cyclic": fabric.cyclic,
        "blocks": [{"name": block.name, "nodes": list(block.nodes)} for block in fabric.blocks],
        "block_sizes": list(fabric.block_sizes),
    }


def _nccl(facts: NcclFacts) -> dict[str, Any]:
    return facts.model_dump(mode="json")
