"""Seconds of one block's, the head's and the optimizer's work on one device, from FLOPs and bytes.

A matrix product takes its FLOPs over what the device reaches, less where tiles do not fill the device or the inner
dimension is short, and at least the time of its operands' traffic (roofline; Williams et al. 2009). What is not a
matrix product is bound by memory and counted in passes over activations.
"""

from __future__ import annotations

from math import ceil, sqrt
from typing import NamedTuple

from harness.predict.device import Device
from harness.predict.job import Job
from harness.predict.software import Software

TILE_M, TILE_N = 128, 256  # of the kernels that reach the measured maximum
INNER_RAMP = 96  # elements of the inner dimension that starting and ending a tile costs
STREAM_SHARE = 0.85  # of the memory's rate that streaming kernels reach
LAUNCH_S = 3e-6
OPTIMIZER_BYTES = 44  # read p, g, m, v, write p, m, v in fp32, and read g twice and write it once to clip
BACKWARD_ATTENTION = 2.5  # FLOPs of backward over forward with recomputed scores; Dao 2023

# passes over an activation of width hidden and of width ffn in forward and in backward, one kernel an operator
# (norm 2 | 5 twice, residual 3 | 3 twice, rope 6 | 6, qkv and output copies 4 | 4) and where a compiler joins them
HIDDEN_PASSES = {False: (20.0, 26.0), True: (8.0, 10.0)}
FFN_PASSES = {
    (False, True): (5.0, 8.0),
    (True, True): (3.0, 5.0),
    (False, False): (2.0, 3.0),
    (True, False): (2.0, 3.0),
}
HEAD_BYTES = {False: 34.0, True: 14.0}  # per logit: copies to fp32, softmax and its backward; fused ones fewer


class BlockTime(NamedTuple):
    """Seconds on one device for one micro batch. ``attention`` is a part of ``forward``."""

    forward: float
    backward: float
    attention: float


def block_time(job: Job, device: Device, software: Software) -> BlockTime:
    """One block; backward includes what is computed again."""
    model, t = job.model, job.tokens
    d, kv, ffn = model.hidden, model.kv / job.tp, model.ffn / job.tp
    heads = d / job.tp
    shapes = [(heads + 2 * kv, d), (d, heads), ((2 if model.gated else 1) * ffn, d), (d, ffn)]
    fp8 = job.arithmetic == "fp8"
    forward = sum(matmul_s(t, n, k, device, software, fp8=fp8) for n, k in shapes)
    backward = sum(
        matmul_s(t, k, n, device, software, fp8=fp8) + matmul_s(n, k, t, device, software, fp8=fp8) for n, k in shapes
    )
    attention = _attention_s(job, device, software)
    narrow, wide = _pointwise_s(job, device, software)
    ahead, behind = forward + attention[0] + narrow[0] + wide[0], backward + attention[1] + narrow[1] + wide[1]
    again = {
        "none": 0.0,
        "selective": narrow[0] + wide[0],
        "operators": narrow[0] + wide[0] + forward / 2,
        "attention": 0.0 if software.flash else attention[0],
        "alternate": ahead / 2,
        "full": ahead,
    }[job.recompute]
    return BlockTime(ahead, behind + again, attention[0])


def matmul_s(m: float, n: float, k: float, device: Device, software: Software, *, fp8: bool = False) -> float:
    """Seconds of an (m, k) x (k, n) product."""
    tiles = ceil(m / TILE_M) * ceil(n / TILE_N)
    waves = ceil(tiles / device.compute_units)
    fill = m * n / (waves * device.compute_units * TILE_M * TILE_N)
    # kernels split the inner dimension or take smaller tiles where tiles do not fill the device
    fill = max(fill, min(1.0, sqrt(fill)))
    rate = (device.matmul_fp8 if fp8 else device.matmul) * software.matmul * fill * k / (k + INNER_RAMP)
    element = 1 if fp8 else 2
    traffic = element * (m * k + n * k) + 2 * m * n
    if fp8:  # operands are scaled and cast first
        traffic += 3 * (m * k + n * k)
    bound = traffic / (device.memory_bandwidth * STREAM_SHARE)
    work = 2 * m * n * k / rate
    return (work + bound * 0.3 if fp8 else max(work, bound)) + LAUNCH_S


def _attention_s(job: Job, device: Device, software: Software) -> tuple[float, float]:
    """Forward and backward of causal attention."""
    model, t = job.model, job.tokens
    width = model.hidden / job.tp
    causal = 2 * 2 * t * job.seq_len * width / 2
    if not software.flash:
        scores = t * job.seq_len * model.heads / job.tp
        streamed = scores / (device.memory_bandwidth * STREAM_SHARE)
        work = 2 * causal / (device.matmul * software.matmul * 0.7)
        # softmax and dropout, half precision: write, mask, softmax, dropout, read; backward as many again
        return work + 13 * streamed, 2 * work + 15 * streamed
    reach = software.attention * device.attention * (1.0 if model.head_dim >= 128 else 0.5 + model.head_dim / 256)
    reach *= job.seq_len / (job.seq_len + 512)
    forward = causal / reach + LAUNCH_S
    # backward reaches less than forward: more products share the same registers; Dao 2023, figures 4 to 6
    return forward, BACKWARD_ATTENTION * causal / (0.85 * reach) + LAUNCH_S


def _pointwise_s(job: Job, device: Device, software: Software) -> tuple[tuple[float, float], tuple[float, float]]:
    """Forward and backward of what is as wide as hidden, then of what is as wide as ffn."""
    per_pass = 2 * job.tokens * software.passes / (device.memory_bandwidth * STREAM_SHARE)
    hidden = job.model.hidden * ((0.5 + 0.5 / job.tp) if job.sequence_parallel else 1)
    narrow, wide = HIDDEN_PASSES[job.fused], FFN_PASSES[job.fused, job.model.gated]
    ffn = job.model.ffn / job.tp
    return (
        (narrow[0] * hidden * per_pass, narrow[1] * hidden * per_pass),
        (wide[0] * ffn * per_pass, wide[1] * ffn * per_pass),
    )


def head_time(job: Job, device: Device, software: Software) -> tuple[float, float]:
    """Forward and backward of logits and loss for one micro batch."""
    t, d, v = job.tokens, job.model.hidden, job.model.vocab / job.tp
    stream = HEAD_BYTES[job.fused] * t * v * software.passes / (device.memory_bandwidth * STREAM_SHARE)
    forward = matmul_s(t, v, d, device, software) + 0.4 * stream
    backward = matmul_s(t, d, v, device, software) + matmul_s(v, d, t, device, software) + 0.6 * stream
    return forward, backward


def optimizer_s(params: float, device: Device) -> float:
    """Clipping and AdamW over ``params`` parameters of this rank."""
    return OPTIMIZER_BYTES * params / (device.memory_bandwidth * STREAM_SHARE)
