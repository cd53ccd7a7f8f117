"""Allocated memory of a job in any framework, on its fullest rank: state, activations, logits, gathered parameters.

Coarser than ``memory.py``, which knows the suite's own model operator by operator.
"""

from __future__ import annotations

from harness.base import Frozen
from harness.predict.job import Job

# bytes per logit of its tensors at the loss: bf16 logits, fp32 copy, softmax and gradients; a compiler saves a copy of
# bf16, and Megatron's vocabulary-parallel loss works in place
EAGER_LOGIT_BYTES, COMPILED_LOGIT_BYTES, IN_PLACE_LOGIT_BYTES = 14, 12, 6
WORKSPACE_BYTES = 256 << 20  # cuBLAS and NCCL's buffers as far as the allocator holds them


class JobMemory(Frozen):
    """Bytes on the fullest rank."""

    state_bytes: float
    unsharded_bytes: float
    activations_bytes: float
    head_bytes: float

    @property
    def peak_bytes(self) -> float:
        return self.state_bytes + self.unsharded_bytes + self.activations_bytes + self.head_bytes + WORKSPACE_BYTES


def predict_job_memory(job: Job, *, master_copy: bool, logit_bytes: int | None = None, lean: bool = False) -> JobMemory:
    """State, activations and logits of the fullest rank.

    ``master_copy``: parameters are bf16 beside an fp32 copy, as in Megatron; else they are fp32 and cast on use.
    ``logit_bytes``: of all tensors at the loss, per logit, where its kernel is known. ``lean``: norms and losses are
    fused though no compiler is used, so that no copies lie between operators.
    """
    model = job.model
    layers = model.layers / job.pp
    # the first stage has the embedding; without a pipeline one rank has both ends
    ends = model.vocab * model.hidden * (1 if model.tied or job.pp > 1 else 2)
    params = (layers * model.block_params + ends) / job.tp
    block, tokens = _block_bytes(job, lean or job.fused), job.tokens
    in_flight = min(job.micro_batches, job.pp) + (job.pp - 1) / job.virtual_stages * (job.virtual_stages > 1)
    kept = {
        "none": block,
        "selective": block * 0.75,
        # input, attention's result, and of seven products every second: q, v, gate, down
        "operators": 2 * (4 * model.hidden + model.kv + model.ffn) / _split(job),
        "attention": block,
        "alternate": block / 2 + model.hidden,
        "full": 2.0 * model.hidden / _split(job),
    }[job.recompute]
    # its gradients are half as large again
    working = 1.5 * block if job.recompute in ("full", "alternate", "operators") else 0.25 * block
    per_logit = logit_bytes or EAGER_LOGIT_BYTES
    if job.fused and logit_bytes is None:
        per_logit = IN_PLACE_LOGIT_BYTES if master_copy else COMPILED_LOGIT_BYTES
    head = tokens * model.vocab / job.tp * per_logit if job.pp == 1 else 0.0
    return JobMemory(
        state_bytes=_state_bytes(job, params, master_copy),
        unsharded_bytes=_unsharded_bytes(job, params),
        activations_bytes=tokens * (kept * layers * in_flight + working),
        head_bytes=head,
    )


def _split(job: Job) -> int:
    return job.tp if job.sequence_parallel else 1


def _block_bytes(job: Job, lean: bool) -> float:
    """Bytes per token that a block keeps: norms' inputs and results, q, k, v, attention's result, ffn."""
    model = job.model
    between = 2 * (4 * model.hidden) / _split(job) + (2 * model.hidden if job.tp > 1 else 0)
    attention = 2 * (2 * model.hidden + 2 * model.kv) / job.tp + 4 * model.heads / job.tp
    # gate, up and their product; what is between them is made again by fused kernels
    tensors = (3 if job.fused else 4) if model.gated else 2
    ffn = 2 * tensors * model.ffn / job.tp
    # copies between operators that are not joined, and the gathered input of each half of the block
    eager = 0 if lean else 2 * 2 * model.hidden / _split(job) + (2 * model.hidden if job.tp > 1 else 0)
    return between + attention + ffn + eager


def _state_bytes(job: Job, params: float, master_copy: bool) -> float:
    """Parameters, gradients and AdamW's state. Source of the stages: Rajbhandari et al. 2020, figure 1."""
    shards = job.dp_shard * job.cp
    if not master_copy:
        whole = {"none": 16.0, "zero1": 8 + 8 / (job.dp * job.cp), "zero2": 4 + 12 / shards, "zero3": 16 / shards}
        return params * whole[job.sharding]
    optimizer = 12 / (job.dp * job.cp) if job.sharding == "zero1" else 12.0
    if job.sharding in ("zero3", "zero2"):
        return params * 18 / shards
    return params * (2 + 4 + optimizer)


def _unsharded_bytes(job: Job, params: float) -> float:
    """Two gathered blocks with one block's gradients, and the ends of the model, which stay gathered."""
    if job.sharding not in ("zero2", "zero3"):
        return 0.0
    block = job.model.block_params / job.tp
    ends = params - job.model.layers / job.pp * block
    stay = params if not job.reshard or job.sharding == "zero2" or job.pp > 1 else ends + 2 * block
    return job.gather_bytes * (stay + block + ends) + job.reduce_bytes * block
