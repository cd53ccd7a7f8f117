"""Step time from what a calibration measured: a layout's compute without communication, and its collectives' times.

    step = compute + sum over collectives of count x time(operation, size, groups of the axis) - what compute hides

The collectives are those of the closed formula, which are the counted ones to the byte.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from itertools import accumulate
from typing import NamedTuple, get_args

from harness.calibration import AxisFit, CalibratedOperation, Calibration
from harness.compute_profile import ComputeParts, ComputeProfile
from harness.layout import Layout
from harness.predict.collectives import ddp_buckets, step_collectives
from harness.predict.job import job_of
from harness.predict.network import Network
from harness.predict.parameters import parameters
from harness.predict.software import Software
from harness.predict.time import TimePrediction, nodes_of, rank_params
from harness.traffic import Collective, StepPhase
from harness.workload import Workload

TOKEN_BYTES = 4  # what ranks waited by, see harness/train/muted.py
Spent = Mapping[tuple[str, StepPhase], float]  # seconds of all collectives of an axis in a phase


class Cluster(NamedTuple):
    """What stands in where the calibration did not time an axis' groups: links, and ranks on a node."""

    network: Network
    ranks_per_node: int


def calibrated_time(
    calibration: Calibration, layout: Layout, workload: Workload, software: Software, cluster: Cluster | None = None
) -> TimePrediction | None:
    """One optimizer step.

    None where the calibration has not the layout's compute, or not an axis' groups and there is no ``cluster``.
    """
    compute = None if workload.model_path is not None else compute_of(calibration, layout, workload)
    if compute is None:
        return None
    spent: defaultdict[tuple[str, StepPhase], float] = defaultdict(float)
    for one in step_collectives(layout, workload):
        time_s = _time_s(calibration, layout, workload, one, cluster)
        if time_s is None:
            return None
        spent[one.axis, one.phase] += one.count * time_s
    everything = _by_axis(spent)
    hidden = _hidden(calibration, layout, workload, compute, spent, software)
    exposed = {axis: total - hidden.get(axis, 0.0) for axis, total in everything.items()}
    step = compute.step + sum(exposed.values())
    return TimePrediction(
        compute_s=compute.forward + compute.backward,
        exposed_s=exposed,
        bubble_s=0.0,
        optimizer_s=compute.optimizer,
        communication_s=everything,
        step_time_s=step,
        tokens_per_s_per_rank=workload.tokens_per_step / layout.mesh.world_size / step,
    )


def compute_of(calibration: Calibration, layout: Layout, workload: Workload) -> ComputeParts | None:
    """The layout's own compute, or that of one with the same work a rank; None if neither was timed.

    Of steps whose ranks waited for each other, the all-reduces of one number by which they did are a part that no real
    step has; but on shared cores others compute meanwhile, so that without them too little is left. Those steps as they
    are bound the compute from above, and from below what is left without the all-reduces or, where longer, steps in
    which no rank waited. The middle of the two counts.

    The same work: strategy, options, tp, model, sequence length and samples a rank. Its optimizer's time is taken in
    the ratio of the parameters that a rank holds.
    """
    timed = calibration.workload
    if timed is None or timed.model_copy(update={"global_batch": workload.global_batch}) != workload:
        return None
    exact = [one for one in calibration.compute if one.layout == layout and timed == workload]
    alike = [one for one in calibration.compute if _work(one.layout, timed) == _work(layout, workload)]
    if not (exact or alike):
        return None
    chosen = (exact or alike)[0].layout
    profiles = [one for one in calibration.compute if one.layout == chosen]
    left = [found for one in profiles if (found := _without_tokens(calibration, one, timed)) is not None]
    if not left:
        return None
    least, most = (max(bound, key=lambda one: one.step) for bound in (left, [one.parts for one in profiles]))
    middle = ComputeParts(*((low + high) / 2 for low, high in zip(least, most, strict=True)))
    before, now = (rank_params(job_of(one, work, 1)) for one, work in ((chosen, timed), (layout, workload)))
    return middle._replace(optimizer=middle.optimizer * now / before)


def _without_tokens(calibration: Calibration, profile: ComputeProfile, workload: Workload) -> ComputeParts | None:
    """The profile's parts less the all-reduces that its ranks waited by, none below 0.

    None where their group was not timed, or where they took as long as forward and backward: no compute was seen then.
    """
    if not profile.waits:
        return profile.parts
    spent = dict.fromkeys(get_args(StepPhase), 0.0)
    for one in step_collectives(profile.layout, workload):
        token = one.model_copy(update={"operation": "all_reduce", "size_bytes": TOKEN_BYTES})
        time_s = _time_s(calibration, profile.layout, workload, token, None)
        if time_s is None:
            return None
        spent[one.phase] += one.count * time_s
    parts = profile.parts
    left = ComputeParts(
        forward=max(0.0, parts.forward - spent["forward"]),
        backward=max(0.0, parts.backward - spent["backward"]),
        optimizer=max(0.0, parts.optimizer - spent["clipping"] - spent["optimizer"]),
    )
    return left if left.forward + left.backward > 0 else None


def _work(layout: Layout, workload: Workload) -> tuple[object, ...]:
    return layout.strategy, layout.options, layout.mesh.tp, workload.global_batch / layout.mesh.dp


def _time_s(
    calibration: Calibration, layout: Layout, workload: Workload, one: Collective, cluster: Cluster | None
) -> float | None:
    """Seconds of one collective: of the axis' own groups, else of ones alike, else by the cluster's links."""
    axis = _timed_axis(calibration, layout, workload, one, cluster)
    operation = next((name for name in get_args(CalibratedOperation) if name == one.operation), None)
    if axis is not None and operation is not None and (fit := axis.slowest(operation, one.size_bytes)) is not None:
        return fit.measured_s(one.size_bytes)
    if cluster is None:
        return None
    return cluster.network.collective_s(
        one.size_bytes,
        one.group_size,
        _nodes(layout, workload, one, cluster),
        all_reduce=one.operation == "all_reduce",
        scatter=one.operation == "reduce_scatter",
    )


def _timed_axis(
    calibration: Calibration, layout: Layout, workload: Workload, one: Collective, cluster: Cluster | None
) -> AxisFit | None:
    own = calibration.axis(layout.text, one.axis)
    if own is not None and own.group_size == one.group_size:
        return own
    return None if cluster is None else calibration.alike(one.group_size, _nodes(layout, workload, one, cluster))


def _nodes(layout: Layout, workload: Workload, one: Collective, cluster: Cluster) -> int:
    stride = {"tp": 1, "dp_shard": layout.mesh.tp}.get(one.axis, layout.mesh.tp * layout.mesh.dp_shard)
    return nodes_of(one.group_size, stride, job_of(layout, workload, cluster.ranks_per_node))


def _by_axis(spent: Spent) -> dict[str, float]:
    found: defaultdict[str, float] = defaultdict(float)
    for (axis, _), seconds in spent.items():
        found[axis] += seconds
    return dict(found)


def _hidden(
    calibration: Calibration,
    layout: Layout,
    workload: Workload,
    compute: ComputeParts,
    spent: Spent,
    software: Software,
) -> Mapping[str, float]:
    """Seconds of each axis' communication that compute hides.

    On CPUs the wrappers wait for each collective where they call it. Only DDP's buckets are on their way while
    backward goes on, and only across hosts does waiting for them leave the cores free. Elsewhere data-parallel
    collectives are hidden as in ``predict_time``, dp_shard's first, and tp's are not.
    """
    if calibration.device == "cpu":
        axis = calibration.axis(layout.text, "dp_replicate")
        if layout.strategy != "ddp" or axis is None or axis.hosts == 1:
            return {}
        return {"dp_replicate": _hidden_buckets(axis, workload, compute.backward)}
    found: defaultdict[str, float] = defaultdict(float)
    phases: tuple[tuple[StepPhase, float], ...] = (("forward", compute.forward), ("backward", compute.backward))
    for phase, seconds in phases:
        room = software.overlap_dp * seconds
        for name in ("dp_shard", "dp_replicate"):
            part = min(room, spent.get((name, phase), 0.0))
            found[name] += part
            room -= part
    return found


def _hidden_buckets(axis: AxisFit, workload: Workload, backward: float) -> float:
    """Seconds of DDP's all-reduces before the end of backward: a bucket starts once full and the last one is done.

    Gradients come evenly over backward, by their bytes.
    """
    buckets = ddp_buckets([4 * one.numel for one in reversed(parameters(workload.model))])
    times = [fit.measured_s(size) for size in buckets if (fit := axis.slowest("all_reduce", size)) is not None]
    return sum(times) - (_finish(buckets, times, backward) - backward)


def _finish(buckets: Sequence[int], times: Sequence[float], backward: float) -> float:
    end = 0.0
    for filled, seconds in zip(accumulate(buckets), times, strict=True):
        end = max(end, backward * filled / sum(buckets)) + seconds
    return end
