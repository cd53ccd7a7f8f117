"""Step time of a job: compute, communication that compute does not hide, pipeline, optimizer."""

from __future__ import annotations

from math import ceil

from harness.base import Frozen
from harness.predict.compute import block_time, head_time, optimizer_s
from harness.predict.device import Device
from harness.predict.job import Job
from harness.predict.network import Network
from harness.predict.software import Software

ASYNC_TP_OVERLAP = 0.6  # of tp's communication that micro-pipelined products hide; torchtitan's figures, 2D


class TimePrediction(Frozen):
    """Seconds of one step on the slowest rank; the parts sum to ``step_time_s``.

    Attributes:
        compute_s: of blocks and head, all micro batches; with waiting for the host where the host is slower.
        exposed_s: by axis, communication that compute does not hide.
        bubble_s: waiting of a pipeline's stages.
        communication_s: by axis, all communication, hidden or not.
    """

    compute_s: float
    exposed_s: dict[str, float]
    bubble_s: float
    optimizer_s: float
    communication_s: dict[str, float]
    step_time_s: float
    tokens_per_s_per_rank: float

    @property
    def hidden_s(self) -> float:
        """Communication that compute hides; taken axis by axis, so that where none is hidden it is 0 and no residue."""
        return sum(total - self.exposed_s.get(axis, 0.0) for axis, total in self.communication_s.items())


def predict_time(job: Job, device: Device, network: Network, software: Software) -> TimePrediction:
    """One optimizer step."""
    block = block_time(job, device, software)
    layers = job.model.layers / job.pp
    again = 1 if job.recompute == "full" else 0.5 if job.recompute == "alternate" else 0
    tp_forward, tp_backward = _tensor_s(job, network, again)
    cp_s = max(0.0, 3 * _context_s(job, network) - 3 * block.attention) if job.cp > 1 else 0.0
    overlap_tp = max(software.overlap_tp, ASYNC_TP_OVERLAP) if job.async_tp else software.overlap_tp
    tp_exposed = (tp_forward + tp_backward) * (1 - overlap_tp)
    host_wait = max(0.0, software.host_s - block.forward - block.backward - tp_exposed)
    compute = block.forward + block.backward + host_wait
    head = sum(head_time(job, device, software))
    forward_share = block.forward / (block.forward + block.backward)
    shard_exposed, shard_all = _sharded_s(job, network, software, compute + tp_exposed, forward_share)
    # with a pipeline parameters stay gathered for all micro batches of a step
    once = job.pp > 1
    per_micro = layers * (compute + tp_exposed + cp_s + (0 if once else shard_exposed))
    # the last stage has the head too; embedding is cheap
    slots = job.micro_batches + (job.pp - 1) / job.virtual_stages
    bubble = (slots - job.micro_batches) * (per_micro + head / job.pp)
    hop = _stage_s(job, network)
    replicate_exposed, replicate_all = _replicated_s(job, network, software, layers * block.backward)
    params = rank_params(job) / (job.dp if job.sharding == "zero1" else 1)
    optimizer = optimizer_s(params, device)
    m = job.micro_batches
    exposed = {
        "tp": m * layers * tp_exposed,
        "cp": m * layers * cp_s,
        "pp": m * hop,
        "dp_shard": (1 if once else m) * layers * shard_exposed,
        "dp_replicate": replicate_exposed,
    }
    everything = {
        "tp": m * layers * (tp_forward + tp_backward),
        "cp": m * layers * 3 * _context_s(job, network),
        "pp": m * hop,
        "dp_shard": (1 if once else m) * layers * shard_all,
        "dp_replicate": replicate_all,
    }
    step = m * (layers * compute + head) + sum(exposed.values()) + bubble + optimizer
    return TimePrediction(
        compute_s=m * (layers * compute + head),
        exposed_s={k: v for k, v in exposed.items() if everything[k]},
        bubble_s=bubble,
        optimizer_s=optimizer,
        communication_s={k: v for k, v in everything.items() if v},
        step_time_s=step,
        tokens_per_s_per_rank=job.tokens_per_step_and_rank / step,
    )


def nodes_of(ranks: int, stride: int, job: Job) -> int:
    """Nodes that a group of ``ranks`` ranks spans whose members lie ``stride`` apart."""
    return max(1, ceil(min(ranks * stride, job.world_size) / job.gpus_per_node) // max(1, stride // job.gpus_per_node))


def _tensor_s(job: Job, network: Network, again: float) -> tuple[float, float]:
    """Forward and backward of one block over tp: two all-reduces each, or as many all-gather and reduce-scatter.

    Sequence parallelism gathers inputs again in backward. Source: Korthikanti et al. 2022, section 4.
    """
    size = 2 * job.tokens * job.model.hidden
    nodes = nodes_of(job.tp, 1, job)
    if job.sequence_parallel:
        one = network.collective_s(size, job.tp, nodes)
        return 4 * one, (4 + 1 + 4 * again) * one
    one = network.collective_s(size, job.tp, nodes, all_reduce=True)
    return 2 * one, (2 + 2 * again) * one


def _context_s(job: Job, network: Network) -> float:
    """Keys and values of all ranks of cp, gathered once."""
    size = 2 * 2 * job.tokens * job.cp * job.model.kv / job.tp
    return network.collective_s(size, job.cp, nodes_of(job.cp, job.tp, job))


def _stage_s(job: Job, network: Network) -> float:
    """Sending activations on and gradients back, for one micro batch, as far as a stage waits for it.

    With several chunks a stage, sends overlap with another chunk's compute (Narayanan et al. 2021, section 2.2.2).
    """
    if job.pp == 1 or job.virtual_stages > 1:
        return 0.0
    size = 2 * job.tokens * job.model.hidden / (job.tp if job.sequence_parallel else 1)
    across = job.world_size > job.gpus_per_node
    return 2 * size / network.bus(2, 2 if across else 1)


def _sharded_s(
    job: Job, network: Network, software: Software, compute: float, forward_share: float
) -> tuple[float, float]:
    """Exposed and all seconds of one block's parameters and gradients over dp_shard.

    The next block's parameters are gathered while this one computes; in backward its gradients are scattered as well.
    """
    if job.sharding not in ("zero3", "zero2") or job.dp_shard * job.cp == 1:
        return 0.0, 0.0
    params, ranks = job.model.block_params / job.tp, job.dp_shard * job.cp
    nodes = nodes_of(ranks, job.tp, job)
    gather = network.collective_s(params * job.gather_bytes, ranks, nodes)
    scatter = network.collective_s(params * job.reduce_bytes, ranks, nodes, scatter=True)
    again = gather if job.sharding == "zero3" and job.reshard else 0.0
    forward, backward = (
        compute * forward_share * software.overlap_dp,
        compute * (1 - forward_share) * software.overlap_dp,
    )
    exposed = max(0.0, gather - forward) + max(0.0, again + scatter - backward)
    return exposed, gather + again + scatter


def _replicated_s(job: Job, network: Network, software: Software, backward: float) -> tuple[float, float]:
    """Exposed and all seconds of what data-parallel ranks exchange once a step: gradients, zero1's parameters."""
    params = rank_params(job)
    if job.sharding in ("zero3", "zero2"):
        if job.dp_replicate == 1:
            return 0.0, 0.0
        nodes = nodes_of(job.dp_replicate, job.dp_shard * job.tp * job.cp, job)
        total = network.collective_s(params * job.reduce_bytes, job.dp_replicate, nodes, all_reduce=True)
        overlap = software.overlap_dp if software.overlap_replicate is None else software.overlap_replicate
        return max(0.0, total - backward * overlap), total
    if job.dp * job.cp == 1:
        return 0.0, 0.0
    ranks = job.dp * job.cp
    nodes = nodes_of(ranks, job.tp, job)
    if job.sharding == "none":
        total = network.collective_s(params * job.reduce_bytes, ranks, nodes, all_reduce=True)
        return max(0.0, total - backward * software.overlap_dp), total
    scatter = network.collective_s(params * job.reduce_bytes, ranks, nodes, scatter=True)
    gather = network.collective_s(params * job.gather_bytes, ranks, nodes)
    return max(0.0, scatter - backward * software.overlap_dp) + gather * (1 - software.overlap_dp), scatter + gather


def rank_params(job: Job) -> float:
    """Parameters of this rank's optimizer: split over tp, pp and, where sharded, dp_shard and cp."""
    shards = job.dp_shard * job.cp if job.sharding in ("zero3", "zero2") else 1
    return job.model.params / (job.tp * job.pp * shards)
