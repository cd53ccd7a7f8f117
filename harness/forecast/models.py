"""Predictions of all layouts of one workload on one cluster."""

from __future__ import annotations

from harness.base import Frozen
from harness.predict.checkpoint import CheckpointPrediction
from harness.predict.error import TOLD_APART, ErrorBand
from harness.predict.memory import MemoryPrediction
from harness.predict.software import Provenance
from harness.predict.time import TimePrediction
from harness.workload import Workload


class Number(Frozen):
    """One number that predictions rest on. ``provenance``: nominal, measured or fitted."""

    name: str
    value: str
    provenance: Provenance
    source: str


class Setting(Frozen):
    """One choice that decides the answer; where the user did not give it, ``origin`` says whose it is."""

    name: str
    option: str
    value: str
    given: bool
    origin: str = "default"


class AxisTraffic(Frozen):
    """Collectives of one axis in one step of one rank; ring bytes cross links in one direction.

    Attributes:
        link_class: the farthest link of the axis on the machine.
        algorithm_bytes: what the collectives are asked to carry.
        ring_bytes: what the rank sends with ring algorithms.
        cross_node_bytes: the part of ``ring_bytes`` that leaves a node, as a mean over ranks.
    """

    axis: str
    link_class: str
    collectives: int
    algorithm_bytes: int
    ring_bytes: int
    cross_node_bytes: int


class LayoutForecast(Frozen):
    """One layout; ``label`` is its strategy and mesh.

    ``fits`` is None where the device's memory is unknown; ``why`` gives the numbers. ``close``: whether the peak is so
    near to the limit that a usual error of prediction changes the answer. ``compute_measured``: whether a calibration
    has its compute. ``error``: how far such predictions were off, and the (low, high) that follow of speed and step
    time; None where none was ever compared.
    """

    layout: str
    label: str
    activation_checkpointing: str
    dp_replicate: int
    dp_shard: int
    tp: int
    micro_batch: int
    memory: MemoryPrediction
    fits: bool | None
    close: bool = False
    why: str
    traffic: tuple[AxisTraffic, ...]
    cross_node_share: float | None
    checkpoint: CheckpointPrediction
    time: TimePrediction
    tokens_per_s: float
    tokens_per_s_range: tuple[float, float] | None = None
    step_time_range_s: tuple[float, float] | None = None
    error: ErrorBand | None = None
    compute_measured: bool = False
    placement: str

    @property
    def fit_text(self) -> str:
        """``yes``, ``yes, close``, ``no, close``, ``no`` or ``?``."""
        return {True: "yes", False: "no", None: "?"}[self.fits] + ", close" * self.close


class TracedAxis(Frozen):
    """Collectives of one axis, and their algorithm bytes, in one step of the first rank: traced and by formula."""

    axis: str
    collectives: int
    formula_collectives: int
    algorithm_bytes: int
    formula_bytes: int


class TracedLayout(Frozen):
    """A trace of one layout beside the closed formulas.

    ``equal``: every collective is the same, in operation, size, type, phase and count. ``state_bytes``: parameters,
    gradients and optimizer of the first rank. ``peak_bytes``: the most that lives there in a step, and ``peak_moment``
    when; None where the trace does not see it.
    """

    layout: str
    seconds: float
    equal: bool
    axes: tuple[TracedAxis, ...]
    state_bytes: int
    formula_state_bytes: int
    peak_bytes: int | None = None
    peak_moment: str | None = None
    formula_peak_bytes: int
    formula_peak_moment: str


class Untraced(Frozen):
    """A layout that was to be traced and cannot be, with the reason."""

    layout: str
    reason: str


class LeftOut(Frozen):
    """A layout that is not legal, with the rule."""

    layout: str
    rule: str
    reason: str


class Forecast(Frozen):
    """All layouts, best first: those that fit by tokens/s, then the others by memory."""

    workload: Workload
    nodes: int
    gpus_per_node: int
    gpu: str
    settings: tuple[Setting, ...] = ()
    numbers: tuple[Number, ...]
    layouts: tuple[LayoutForecast, ...]
    left_out: tuple[LeftOut, ...]
    traced: tuple[TracedLayout, ...] = ()
    untraced: tuple[Untraced, ...] = ()

    @property
    def world_size(self) -> int:
        return self.nodes * self.gpus_per_node

    @property
    def best(self) -> LayoutForecast | None:
        """The fastest layout that fits, or may fit."""
        return next((one for one in self.layouts if one.fits is not False), None)

    @property
    def rivals(self) -> tuple[LayoutForecast, ...]:
        """What fits beside the best and is predicted so nearly as fast that measurement must tell."""
        best = self.best
        if best is None:
            return ()
        least = best.tokens_per_s / (1 + TOLD_APART)
        return tuple(
            one for one in self.layouts if one is not best and one.fits is not False and one.tokens_per_s >= least
        )
