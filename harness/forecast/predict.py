"""Predict every legal layout of a workload on a cluster."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Literal, NamedTuple

from harness.calibration import Calibration
from harness.errors import UsageError
from harness.forecast.calibrated import compute_factor
from harness.forecast.models import AxisTraffic, Forecast, LayoutForecast, LeftOut, Number
from harness.layout import Layout, LayoutRequest
from harness.layout.candidates import Candidates, candidates
from harness.layout.placement import Placement
from harness.predict.activations import CHECKPOINTING, Checkpointing, Kernels
from harness.predict.calibrated import Cluster, calibrated_time
from harness.predict.checkpoint import predict_checkpoint
from harness.predict.collectives import step_collectives
from harness.predict.device import CPU, Device, slowed
from harness.predict.error import MEMORY_MARGIN, ErrorBand, time_band
from harness.predict.job import job_of
from harness.predict.memory import MemoryPrediction, predict_memory
from harness.predict.network import Network
from harness.predict.software import Software
from harness.predict.time import TimePrediction, predict_time
from harness.topology.model import Topology
from harness.topology.speed import rate
from harness.traffic import Collective
from harness.workload import Workload

GIB = 2**30
# of a device's memory that a step can allocate: driver, CUDA context and NCCL hold the rest (0.5 to 2 GiB), and the
# allocator's fragments come on top of what is allocated
USABLE = 0.92
Choice = Checkpointing | Literal["auto"]


class Machine(NamedTuple):
    """A cluster as predictions see it. What ``calibration`` measured is taken before anything nominal."""

    topology: Topology
    device: Device
    network: Network
    software: Software
    storage_bytes_per_s: float | None = None
    calibration: Calibration | None = None


class Timed(NamedTuple):
    """A predicted step, whether its compute was measured, and how far such predictions were off."""

    time: TimePrediction
    compute_measured: bool
    error: ErrorBand | None


def forecast(
    machine: Machine,
    workload: Workload,
    requests: Sequence[LayoutRequest],
    checkpointing: Choice = "auto",
    *,
    allow_cross_node_tp: bool = False,
) -> Forecast:
    """Every legal layout, best first. ``checkpointing`` "auto": the cheapest mode with which a layout fits.

    Raises:
        UsageError: no layout is legal, or the model is the user's own, whose parameters no formula knows.
    """
    if workload.model_path is not None:
        raise UsageError(f"no formula knows the parameters of {workload.model_path}; give a preset with --model")
    count = machine.topology.device_count
    found = candidates(requests, workload, count, machine.topology, allow_cross_node_tp=allow_cross_node_tp)
    machine, compute = _calibrated(machine)
    rows = [
        _layout(layout, placement, workload, machine, checkpointing)
        for layout, placement in zip(found.layouts, found.placements, strict=True)
    ]
    per_node = machine.topology.devices_per_node
    return Forecast(
        workload=workload,
        nodes=len(per_node),
        gpus_per_node=max(per_node),
        gpu=machine.device.name,
        numbers=(*_numbers(machine), *_compute_numbers(compute, rows)),
        layouts=tuple(sorted(rows, key=_objective)),
        left_out=_left_out(found),
    )


def _objective(row: LayoutForecast) -> tuple[bool, float]:
    """Fastest first; what does not fit comes after, least memory first."""
    if row.fits is False:
        return True, float(row.memory.peak_bytes)
    return False, -row.tokens_per_s


def _layout(
    layout: Layout, placement: Placement, workload: Workload, machine: Machine, checkpointing: Choice
) -> LayoutForecast:
    chosen, memory = _checkpointed(layout, workload, machine, checkpointing)
    fits, close, why = _fits(memory, machine.device)
    gpus_per_node = max(machine.topology.devices_per_node)
    time, measured, band = _time(chosen, workload, machine, gpus_per_node)
    traffic = _traffic(step_collectives(chosen, workload), placement, gpus_per_node)
    sent = sum(one.ring_bytes for one in traffic)
    speed = workload.tokens_per_step / time.step_time_s
    mesh = chosen.mesh
    return LayoutForecast(
        layout=chosen.text,
        label=f"{chosen.strategy} {chosen.mesh.short}",
        activation_checkpointing=chosen.options.activation_checkpointing,
        dp_replicate=mesh.dp_replicate,
        dp_shard=mesh.dp_shard,
        tp=mesh.tp,
        micro_batch=workload.global_batch // mesh.dp,
        memory=memory,
        fits=fits,
        close=close,
        why=why,
        traffic=traffic,
        cross_node_share=sum(one.cross_node_bytes for one in traffic) / sent if sent else None,
        checkpoint=predict_checkpoint(chosen, workload, machine.storage_bytes_per_s),
        time=time,
        tokens_per_s=speed,
        tokens_per_s_range=band.of_speed(speed) if band else None,
        step_time_range_s=band.of_time(time.step_time_s) if band else None,
        error=band,
        compute_measured=measured,
        placement=placement.remark,
    )


def _calibrated(machine: Machine) -> tuple[Machine, float | None]:
    """The machine with a device as slow as the calibrated layouts say, and how many times slower that is."""
    if machine.calibration is None:
        return machine, None
    ranks = max(machine.topology.devices_per_node)
    factor = compute_factor(machine.calibration, machine.device, machine.software, ranks)
    return (machine, None) if factor is None else (machine._replace(device=slowed(machine.device, factor)), factor)


def _time(layout: Layout, workload: Workload, machine: Machine, gpus_per_node: int) -> Timed:
    """One step; of a calibration where that has the layout's compute."""
    calibration, precision = machine.calibration, layout.options.precision
    if calibration is not None:
        cluster = Cluster(machine.network, gpus_per_node)
        found = calibrated_time(calibration, layout, workload, machine.software, cluster)
        if found is not None:
            whole = calibrated_time(calibration, layout, workload, machine.software) is not None
            return Timed(found, True, time_band(machine.device, precision, calibrated=True, profiled=whole))
    job = job_of(layout, workload, gpus_per_node)
    scaled = calibration is not None and bool(calibration.compute)
    band = time_band(machine.device, precision, calibrated=scaled, profiled=False)
    return Timed(predict_time(job, machine.device, machine.network, machine.software), False, band)


def _checkpointed(
    layout: Layout, workload: Workload, machine: Machine, choice: Choice
) -> tuple[Layout, MemoryPrediction]:
    """The layout with activation checkpointing as its own text says, else as chosen, and its memory."""
    kernels: Kernels = "cpu" if machine.calibration is not None and machine.calibration.device == "cpu" else "cuda"
    if "activation_checkpointing" in layout.options.model_fields_set:
        choice = layout.options.activation_checkpointing
    if choice != "auto":
        chosen = _with_mode(layout, choice)
        return chosen, predict_memory(chosen, workload, kernels=kernels)
    for mode in CHECKPOINTING:
        chosen = _with_mode(layout, mode)
        memory = predict_memory(chosen, workload, kernels=kernels)
        if _fits(memory, machine.device)[0] is not False:
            break
    return chosen, memory


def _with_mode(layout: Layout, mode: Checkpointing) -> Layout:
    options = layout.options.model_copy(update={"activation_checkpointing": mode})
    return layout.model_copy(update={"options": options})


def _fits(memory: MemoryPrediction, device: Device) -> tuple[bool | None, bool, str]:
    """Whether it fits, whether that is close, and the numbers."""
    peak = memory.peak_bytes / GIB
    if device.memory_bytes is None:
        return None, False, f"{peak:,.1f} GiB at {memory.peak_moment}; memory of {device.name} is unknown"
    room = device.memory_bytes * USABLE / GIB
    compared = "fits in" if peak <= room else "is more than"
    close = abs(peak / room - 1) <= MEMORY_MARGIN
    near = f", closer than the {MEMORY_MARGIN:.0%} that a prediction may be off" if close else ""
    why = f"{peak:,.1f} GiB at {memory.peak_moment} {compared} {room:,.1f} GiB ({USABLE:.0%} usable){near}"
    return peak <= room, close, why


def _traffic(collectives: Iterable[Collective], placement: Placement, gpus_per_node: int) -> tuple[AxisTraffic, ...]:
    """Bytes by axis. A ring that spans nodes crosses from one to the next once for each node that it touches."""
    by_axis: dict[str, list[Collective]] = {}
    for one in collectives:
        by_axis.setdefault(one.axis, []).append(one)
    found = []
    for axis, members in by_axis.items():
        places = [place for name in axis.split("+") if (place := placement.axis(name)) is not None]
        farthest = next((place for place in places if place.crosses_nodes), places[0] if places else None)
        ring = round(sum(ring_bytes(one) for one in members))
        share = 0.0
        if farthest is not None and farthest.crosses_nodes:
            inside = max(1, gpus_per_node // farthest.stride)  # neighbours of a group on one node
            share = 1 / min(inside, farthest.size)
        found.append(
            AxisTraffic(
                axis=axis,
                link_class=farthest.link_class.value if farthest else "none",
                collectives=sum(one.count for one in members),
                algorithm_bytes=sum(one.total_bytes for one in members),
                ring_bytes=ring,
                cross_node_bytes=round(ring * share),
            )
        )
    return tuple(found)


def ring_bytes(one: Collective) -> float:
    """What a rank sends with a ring: (n - 1)/n of the tensor, an all-reduce twice that.

    Source: nccl-tests, PERFORMANCE.md.
    """
    n = one.group_size
    return one.total_bytes * (2 if one.operation == "all_reduce" else 1) * (n - 1) / n


def _compute_numbers(factor: float | None, rows: Sequence[LayoutForecast]) -> Iterable[Number]:
    """What a calibration says of compute: of layouts that were profiled, and by their median of the others."""
    if factor is None:
        return
    measured = sum(row.compute_measured for row in rows)
    source = "steps without communication on all ranks at once, by 'meshsweep calibrate'"
    if measured:
        value = f"of {measured} of {len(rows)} layouts"
        yield Number(name="compute", value=value, provenance="measured", source=source)
    if measured < len(rows):
        value = f"of {len(rows) - measured} layouts: {factor:,.3g} times the formula's"
        yield Number(name="compute", value=value, provenance="fitted", source=f"median of what was measured: {source}")


def _numbers(machine: Machine) -> Iterable[Number]:
    device, network, software = machine.device, machine.network, machine.software
    tera = 1e12
    if device.name != CPU.name:
        yield Number(
            name="matrix products",
            value=f"{device.matmul * software.matmul / tera:,.0f} of {device.peak / tera:,.0f} TFLOP/s",
            provenance=software.provenance,
            source=f"{device.source}; {software.source}",
        )
        yield Number(
            name="memory bandwidth",
            value=f"{device.memory_bandwidth / tera:,.2f} TB/s",
            provenance=device.provenance,
            source=device.source,
        )
    yield Number(
        name="device memory",
        value="unknown" if device.memory_bytes is None else f"{device.memory_bytes / GIB:,.0f} GiB",
        provenance=device.provenance,
        source=device.source,
    )
    yield Number(
        name="links inside a node",
        value="unknown, 1 GB/s taken" if network.link is None else f"{rate(network.link)} a device",
        provenance="nominal",
        source=device.source,
    )
    yield Number(
        name="links between nodes",
        value="unknown, 1 GB/s taken" if network.nic is None else f"{rate(network.nic)} a device",
        provenance=network.provenance,
        source=network.source,
    )
    if machine.storage_bytes_per_s is not None:
        yield Number(
            name="storage",
            value=f"{machine.storage_bytes_per_s / 1e9:,.1f} GB/s of all ranks",
            provenance="nominal",
            source="given with --storage-gb-per-s",
        )


def _left_out(found: Candidates) -> tuple[LeftOut, ...]:
    return tuple(LeftOut(layout=one.layout.text, rule=one.rule, reason=one.reason) for one in found.excluded)
