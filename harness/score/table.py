"""Rows of a table of published training runs, each as a job on a device and a network, or the reason why not.

Columns are those of the project's table of published runs; an empty cell is not stated. What a table leaves open is
filled only where it follows (a tied head from the parameter count) or where a default of its framework is known.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from harness.accelerators import Accelerator, accelerator
from harness.errors import UsageError
from harness.predict.device import Device, device_of, nominal_nic_gbit
from harness.predict.job import Architecture, Arithmetic, Job, Recompute, Sharding
from harness.predict.network import EFA_H100, Curve, Network
from harness.score.published import FAMILIES, family_of

NEEDED = ("id", "source_id", "gpu", "n_gpus", "layers", "hidden", "seq_len", "micro_batch", "tok_s_gpu", "peak_mem_gib")
# name in tables -> catalogue word, power limit over the catalogue's product
GPUS: tuple[tuple[str, str, float], ...] = (
    (r"H100.*500\s?W", "h100-sxm", 500 / 700),
    (r"H100.*NVL", "h100-nvl", 1.0),
    (r"H100.*PCIE", "h100-pcie", 1.0),
    (r"GH200", "gh200", 1.0),
    (r"H100", "h100-sxm", 1.0),
    (r"H200", "h200-sxm", 1.0),
    (r"B200", "b200", 1.0),
    (r"A100.*40", "a100-40gb", 1.0),
    (r"A100", "a100-80gb", 1.0),
    (r"V100", "v100-32gb", 1.0),
    (r"MI300X", "mi300x", 1.0),
    (r"MI250X", "mi250x", 1.0),
)
HBM2E_H100 = 2.4e12  # bytes/s: six stacks at 400 GB/s, NVIDIA A100 80 GB's five at 408


class Unfit(Exception):
    """Why a row cannot be predicted: a few words, by which such rows are counted."""


class Row(NamedTuple):
    """One row that can be predicted. Measured values are None where not stated."""

    id: str
    source: str
    group: str
    family: str
    job: Job
    device: Device
    network: Network
    gpu: Accelerator
    power: float
    tokens_per_s: float | None
    peak_bytes: float | None
    reserved: bool
    status: str


class Left(NamedTuple):
    """One row that is left out."""

    id: str
    source: str
    reason: str


def read_table(path: Path, curve: Curve | None = None) -> tuple[list[Row], list[Left]]:
    """All rows of a CSV file. ``curve``: measured bandwidth of the cluster, instead of what is known of it.

    Raises:
        UsageError: it is no table of this kind.
    """
    with path.open(encoding="utf-8-sig", newline="") as lines:
        reader = csv.DictReader(lines)
        missing = [name for name in NEEDED if name not in (reader.fieldnames or ())]
        if missing:
            raise UsageError(
                f"{path} lacks the columns {', '.join(missing)}; see docs/prediction.md for the table's form"
            )
        cells = [{k: (v or "").strip() for k, v in line.items() if isinstance(k, str)} for line in reader]
    rows, left = [], []
    for number, line in enumerate(cells, 2):
        try:
            rows.append(_row(line, curve))
        except Unfit as reason:
            left.append(Left(line["id"] or f"line {number}", line["source_id"], str(reason)))
    return rows, left


def _row(line: Mapping[str, str], curve: Curve | None) -> Row:
    if line.get("suspect", "").lower() == "yes":
        raise Unfit("marked as suspect")
    family = family_of(line.get("framework", ""))
    entry, power = _gpu(line["gpu"])
    job = _job(line, family)
    if job.world_size != _int(line, "n_gpus"):
        raise Unfit("axes do not multiply to the number of GPUs")
    tokens, peak = _tokens_per_s(line, job), _number(line, "peak_mem_gib")
    status = line.get("status", "ok").lower() or "ok"
    if tokens is None and peak is None and status == "ok":
        raise Unfit("states neither speed nor memory")
    device = device_of(entry, power=power)
    memory = _number(line, "gpu_mem_gb")
    if memory is not None:
        device = device.model_copy(update={"memory_bytes": int(memory * 2**30)})
    if "HBM2E" in line["gpu"].upper() and entry.key == "h100-sxm":
        device = device.model_copy(update={"memory_bandwidth": HBM2E_H100})
    return Row(
        id=line["id"],
        source=line["source_id"],
        group=line.get("compare_group", "") or "",
        family=family,
        job=job,
        device=device,
        network=_network(line, entry, curve),
        gpu=entry,
        power=power,
        tokens_per_s=tokens,
        peak_bytes=None if peak is None else peak * 2**30,
        reserved="reserved" in line.get("mem_def", ""),
        status=status,
    )


def _gpu(name: str) -> tuple[Accelerator, float]:
    for pattern, key, power in GPUS:
        if re.search(pattern, name.upper()):
            return accelerator(key), power
    raise Unfit("accelerator is not in the catalogue")


def _job(line: Mapping[str, str], family: str) -> Job:
    world, per_node = _int(line, "n_gpus"), _int(line, "gpus_per_node", 8)
    tp, pp = _split_model(line)
    cp = _int(line, "cp", 1)
    replicate, shard = _int(line, "dp_replicate", 0), _int(line, "dp_shard", 0)
    if not replicate * shard:
        replicate = replicate or 1
        shard = shard or world // (tp * pp * cp * replicate)
    precision = line.get("precision", "").lower()
    arithmetic: Arithmetic = "fp8" if "fp8" in precision or "float8" in precision else "bf16"
    traits = FAMILIES[family]
    micro, count = _batches(line, world // (tp * pp * cp), pp)
    sharding = _sharding(line)
    pure = "pure" in precision
    note = line.get("layout_note", "")
    return Job(
        model=_architecture(line),
        seq_len=_int(line, "seq_len"),
        micro_batch=micro,
        micro_batches=count,
        dp_replicate=replicate,
        dp_shard=shard,
        tp=tp,
        cp=cp,
        pp=pp,
        virtual_stages=_int(line, "vpp", 2 if "interleaved" in note.lower() else 1),
        gpus_per_node=min(per_node, world),
        sharding=sharding,
        recompute=_recompute(line, traits.selective),
        arithmetic=arithmetic,
        reduce_bytes=2 if pure else 4,
        fused=traits.fused or line.get("compile", "").lower() in ("yes", "true", "xla", "1"),
        sequence_parallel=tp > 1 and "no SP" not in note,
        async_tp="asynctp" in note.lower(),
    )


def _split_model(line: Mapping[str, str]) -> tuple[int, int]:
    """Sizes of tp and pp; from the note where only their product is stated and tp is said to fill a node first."""
    if line.get("tp"):
        return _int(line, "tp"), _int(line, "pp", 1)
    note = re.search(r"model-parallel size (\d+) = TP\*PP \(TP<=(\d+)\)", line.get("layout_note", ""))
    if note is None:
        raise Unfit("tp is not stated")
    size, most = int(note[1]), int(note[2])
    tp = min(size, most)
    return tp, size // tp


def _batches(line: Mapping[str, str], dp: int, pp: int) -> tuple[int, int]:
    """Micro batch and their number a step."""
    total, micro, count = (_number(line, name) for name in ("global_batch_seqs", "micro_batch", "grad_accum"))
    per_rank = total / dp if total else None
    if micro is None and per_rank is None:
        raise Unfit("batch is not stated")
    if micro is None:
        micro = per_rank / count if per_rank and count else 1.0
    # a local batch that a pipeline splits itself: as many micro batches as it has sequences
    if pp > 1 and (count or 1) == 1 and micro > 1:
        count, micro = micro, 1.0
    if count is None:
        count = per_rank / micro if per_rank else 1.0
    if micro < 1 or count < 1:
        raise Unfit("batch does not divide over the data-parallel ranks")
    return round(micro), round(count)


def _architecture(line: Mapping[str, str]) -> Architecture:
    missing = [name for name in ("layers", "hidden", "seq_len") if not line.get(name)]
    if missing:
        raise Unfit(f"model's {' and '.join(missing)} not stated")
    layers, hidden = _int(line, "layers"), _int(line, "hidden")
    heads = _int(line, "heads", max(1, hidden // 128))
    ffn, vocab = _int(line, "ffn", 4 * hidden), _int(line, "vocab", 51200)
    if hidden % heads:
        raise Unfit("hidden does not divide by heads")
    kv = _int(line, "kv_heads", heads)
    candidates = [
        Architecture(
            layers=layers, hidden=hidden, ffn=ffn, heads=heads, kv_heads=kv, vocab=vocab, gated=gated, tied=tied
        )
        for gated in (True, False)
        for tied in (False, True)
    ]
    stated = _number(line, "params_b")
    if stated is None:
        # only gated models have an ffn other than four times their width
        return candidates[0] if ffn != 4 * hidden else candidates[3]
    return min(candidates, key=lambda one: abs(one.params - stated * 1e9))


def _sharding(line: Mapping[str, str]) -> Sharding:
    text, stage = line.get("sharding", "").upper(), _number(line, "zero_stage")
    if "ZERO++" in text or "QWZ" in text:
        raise Unfit("quantised communication")
    if stage is not None and text.startswith(("DDP", "ZERO", "NONE")):
        by_stage: dict[int, Sharding] = {0: "none", 1: "zero1", 2: "zero2", 3: "zero3"}
        return by_stage[int(stage)]
    if "SHARD_GRAD_OP" in text:
        return "zero2"
    if "FSDP" in text or "HSDP" in text or "ZERO-3" in text:
        return "zero3"
    if "DISTRIBUTED OPTIMIZER" in text or "ZERO-1" in text:
        return "zero1"
    return "none"


def _recompute(line: Mapping[str, str], selective: Recompute) -> Recompute:
    text = line.get("ac_mode", "").lower()
    if text.startswith("full"):
        return "full"
    if "every" in text or "selective layer" in text:
        return "alternate"
    if "attention" in text:
        return "attention"
    if "selective" in text or "minimal" in text:
        return selective
    return "none"


def _tokens_per_s(line: Mapping[str, str], job: Job) -> float | None:
    """Stated tokens/s of a rank, or what a stated FLOP/s means by its stated definition."""
    stated = _number(line, "tok_s_gpu")
    if stated is not None:
        return stated
    tflops, definition = _number(line, "tflops_gpu"), line.get("mfu_def", "")
    if tflops is None:
        return None
    model, s = job.model, job.seq_len
    if "96BLsh^2" in definition:  # Narayanan et al. 2021, equation 3, recomputation included
        flops = (
            96
            * model.layers
            * model.hidden**2
            * (1 + s / (6 * model.hidden) + model.vocab / (16 * model.layers * model.hidden))
        )
    elif "6N" in definition:
        flops = 6 * model.params + 12 * model.layers * model.hidden * s
    else:
        return None
    return tflops * 1e12 / flops


def _network(line: Mapping[str, str], entry: Accelerator, curve: Curve | None) -> Network:
    raw = line.get("interconnect_raw", "")
    per_gpu, per_node = _number(line, "inter_gbps_per_gpu"), _number(line, "inter_gbps_per_node")
    gbit = re.search(r"(?:(\d+) x )?(\d+) ?Gb(?:/s|ps)", raw)
    if per_gpu is None:
        per_node = per_node or (float(gbit[1] or 1) * float(gbit[2]) if gbit and "per GPU" not in raw else None)
        per_gpu = per_node / _int(line, "gpus_per_node", 8) if per_node else None
    stated = per_gpu is not None
    if per_gpu is None and "A3" in line["gpu"]:
        per_gpu = 100  # 4 x 200 Gbit/s beside 8 GPUs; Google Cloud, A3 High machine type
    rate = per_gpu or nominal_nic_gbit(entry)
    known = curve or (EFA_H100 if "EFA" in raw and "H100" in line["gpu"] else None)
    return Network(
        link=entry.link_bandwidth,
        nic=rate * 1e9 / 8,
        curve=known,
        provenance="measured" if known else "nominal",
        source=known.source if known else "stated with the row" if stated else "NICs of the vendor's own nodes",
    )


def _number(line: Mapping[str, str], name: str) -> float | None:
    text = line.get(name, "")
    if not text:
        return None
    try:
        return float(text)
    except ValueError:
        raise Unfit(f"{name} is not a number") from None


def _int(line: Mapping[str, str], name: str, default: int | None = None) -> int:
    value = _number(line, name)
    if value is None:
        if default is None:
            raise Unfit(f"{name} is not stated")
        return default
    return int(value)
