"""Memory of one training step on the fullest rank, from shapes alone.

The step is followed through the moments at which a peak can lie: the loss, the backward of the first and of the last
block, the reduction of the root's gradients, the optimizer. Each moment's bytes are a sum of named parts; the peak is
the largest moment. The parts of sharded state are exact; activations follow ``harness/predict/activations.py``.
"""

from __future__ import annotations

from collections.abc import Mapping

from harness.base import Frozen
from harness.layout import Layout
from harness.predict.activations import (
    CHECKPOINTING,
    FP32,
    Checkpointing,
    Kernels,
    block_activations,
    head_bytes,
    input_bytes,
    rope_bytes,
)
from harness.predict.sharding import FLAT, PER_PARAMETER, Units, units
from harness.workload import Workload

ADAMW_STATES = 2
CUBLAS_WORKSPACE_BYTES = 32 << 20  # torch's default for Hopper, less on older devices; torch.backends.cuda docs


class Moment(Frozen):
    """What is alive on the fullest rank at one point of a step, bytes."""

    name: str
    parameters_bytes: int
    gradients_bytes: int
    optimizer_bytes: int
    unsharded_bytes: int  # gathered parameters, cast copies and unreduced gradients
    activations_bytes: int  # logits and loss included
    buffers_bytes: int  # of collectives
    other_bytes: int

    @property
    def total_bytes(self) -> int:
        return (
            self.parameters_bytes
            + self.gradients_bytes
            + self.optimizer_bytes
            + self.unsharded_bytes
            + self.activations_bytes
            + self.buffers_bytes
            + self.other_bytes
        )


class MemoryPrediction(Frozen):
    """Memory of the fullest rank (dp_shard 0), bytes.

    Attributes:
        parameters_bytes, gradients_bytes, optimizer_bytes: what the rank holds between steps; exact.
        activations_bytes: kept from forward to backward with the layout's own activation checkpointing.
        activations_by_mode_bytes: the same with each mode.
        unsharded_peak_bytes: the most of gathered parameters and unreduced gradients at any moment.
        communication_buffers_bytes: the most of collectives' buffers at any moment.
        moments: all moments; the first of them is the peak.
    """

    parameters_bytes: int
    gradients_bytes: int
    optimizer_bytes: int
    activations_bytes: int
    activations_by_mode_bytes: dict[Checkpointing, int]
    unsharded_peak_bytes: int
    communication_buffers_bytes: int
    peak_bytes: int
    moments: tuple[Moment, ...]

    @property
    def peak_moment(self) -> str:
        return self.moments[0].name


def predict_memory(layout: Layout, workload: Workload, *, kernels: Kernels = "cuda") -> MemoryPrediction:
    """Memory of one AdamW step of the reference model in this layout, as ``harness/measure/memory.py`` measures it.

    ``kernels``: whose operators are counted, ``cpu`` for live tensors on a CPU, ``cuda`` for allocated bytes.
    """
    parts = _Step(layout, workload, kernels)
    moments = sorted(parts.moments(), key=lambda moment: -moment.total_bytes)
    by_mode = {mode: _kept(layout, workload, kernels, mode) for mode in CHECKPOINTING}
    return MemoryPrediction(
        parameters_bytes=parts.parameters,
        gradients_bytes=parts.gradients,
        optimizer_bytes=parts.optimizer,
        activations_bytes=by_mode[layout.options.activation_checkpointing],
        activations_by_mode_bytes=by_mode,
        unsharded_peak_bytes=max(moment.unsharded_bytes for moment in moments),
        communication_buffers_bytes=max(moment.buffers_bytes for moment in moments),
        peak_bytes=moments[0].total_bytes,
        moments=tuple(moments),
    )


def _kept(layout: Layout, workload: Workload, kernels: Kernels, mode: Checkpointing) -> int:
    block = block_activations(layout, workload, kernels, mode)
    return block.kept * workload.model.n_layers + head_bytes(layout, workload, kernels).kept


class _Step:
    """The parts that moments are made of."""

    def __init__(self, layout: Layout, workload: Workload, kernels: Kernels) -> None:
        self.layout, self.workload, self.kernels = layout, workload, kernels
        options = layout.options
        self.units: Units = units(layout, workload.model)
        total = self.units.total
        self.sharded = layout.strategy in PER_PARAMETER | FLAT | {"ddp_tp"}
        self.element = 2 if options.precision == "bf16" else FP32
        on_device = not (options.cpu_offload and kernels == "cuda")
        self.parameters = FP32 * total.stored * on_device
        self.gradients = FP32 * total.stored * on_device
        self.optimizer = FP32 * ADAMW_STATES * total.held * on_device
        if kernels == "cpu":
            self.optimizer += FP32 * total.tensors  # each parameter's step count is a tensor
        mode = options.activation_checkpointing
        self.block = block_activations(layout, workload, kernels, mode)
        self.head = head_bytes(layout, workload, kernels)

    def moments(self) -> list[Moment]:
        last = self.units.blocks - 1
        backward = (self._block_backward(at) for at in sorted({last, max(last - 1, 0), 0}))
        return [self._loss(), *(one for stages in backward for one in stages), self._root(), self._optimizer_step()]

    def _moment(self, name: str, **parts: int) -> Moment:
        other = input_bytes(self.layout, self.workload) + rope_bytes(self.workload.model, self.workload.seq_len)
        if self.kernels == "cuda":
            other += CUBLAS_WORKSPACE_BYTES
        empty: Mapping[str, int] = {"gradients_bytes": 0, "unsharded_bytes": 0, "activations_bytes": 0}
        return Moment(
            name=name,
            parameters_bytes=self.parameters,
            optimizer_bytes=self.optimizer,
            **{**empty, "buffers_bytes": 0, "other_bytes": other, **parts},
        )

    def _loss(self) -> Moment:
        kept = self.block.kept * self.units.blocks + self.head.kept
        return self._moment(
            "loss",
            gradients_bytes=self._standing_gradients(),
            unsharded_bytes=self._gathered(self.units.blocks if not self._reshards else 0),
            activations_bytes=kept + self.head.backward,
        )

    def _block_backward(self, at: int) -> list[Moment]:
        """Three stages of the backward of block ``at``: its feed-forward half, its attention, its reduction.

        While it runs, the block before it is gathered already, and the gradients of the block after it are being
        reduced.
        """
        block, act, last = self.units.block, self.block, self.units.blocks - 1
        ffn = 3 * self._ffn_matrix()
        below = act.kept * at + self.head.logits + 2 * act.residual
        ahead = 1 if self._reshards and at else 0
        own = (1 if self._reshards else at + 1) if self.sharded else 0
        in_flight = FP32 * block.whole if self.sharded and at < last else 0
        gathered, head = self._gathered(own + ahead), self._unreduced(self._head_matrix())
        ahead_only = gathered - self._gathered(1) + self._gathered(0) if self._reshards else gathered
        stages = (
            ("feed-forward", act.everything + 2 * act.ffn, ffn // 3, gathered, in_flight),
            ("feed-forward", act.everything - 2 * act.ffn, ffn, gathered, in_flight),
            ("attention", act.attention + act.residual, block.whole, gathered, in_flight),
            ("reduction", 0, block.whole, ahead_only, FP32 * block.whole if self.sharded else 0),
        )
        return [
            self._moment(
                f"backward of block {at}: {name}",
                gradients_bytes=self._reduced(last - at) + (0 if self.sharded else FP32 * grads * self._grows),
                unsharded_bytes=unsharded + head + self._unreduced(grads),
                activations_bytes=below + alive,
                buffers_bytes=buffer,
            )
            for name, alive, grads, unsharded, buffer in stages
        ]

    def _root(self) -> Moment:
        """The root's gradients are copied and reduced; the first block's buffer lives until then."""
        root, block = self.units.root, self.units.block
        grown = FP32 * root.stored if self.sharded else FP32 * root.whole * self._grows
        return self._moment(
            "reduction of the root's gradients",
            gradients_bytes=self._reduced(self.units.blocks) + grown,
            unsharded_bytes=self._gathered(0) + self._unreduced(root.whole),
            activations_bytes=self.head.logits,
            buffers_bytes=FP32 * (root.whole + block.whole) if self.sharded else 0,
        )

    def _optimizer_step(self) -> Moment:
        total = self.units.total
        # CUDA's foreach kernels make one copy of all shards, a CPU's loop two of the largest parameter
        temporary = FP32 * (total.stored if self.kernels == "cuda" else 2 * self._largest())
        return self._moment(
            "optimizer",
            gradients_bytes=self.gradients,
            activations_bytes=self.head.logits,
            other_bytes=temporary,
        )

    @property
    def _reshards(self) -> bool:
        return self.layout.strategy in PER_PARAMETER | FLAT and self.layout.options.reshard_after_forward is not False

    @property
    def _grows(self) -> bool:
        """Whether gradients that are not reduced unit by unit appear during backward; DDP's buckets are there."""
        return self.layout.strategy != "ddp"

    def _standing_gradients(self) -> int:
        return self.gradients if self.layout.strategy == "ddp" else 0

    def _unreduced(self, elements: int) -> int:
        return self.element * elements if self.sharded else 0

    def _reduced(self, blocks: int) -> int:
        """Gradients of the last ``blocks`` blocks; without reduction by units those of the head too."""
        if not self._grows:
            return self.gradients
        stored = self.units.block.stored * blocks
        return FP32 * (stored if self.sharded else stored + self._head_matrix())

    def _gathered(self, blocks: int) -> int:
        """The root's parameters, which stay gathered, and those of ``blocks`` blocks."""
        if self.sharded:
            return self.element * (self.units.root.whole + self.units.block.whole * blocks)
        # autocast keeps a cast copy of each matrix until backward
        return self.element * self.units.total.whole if self.element < FP32 else 0

    def _ffn_matrix(self) -> int:
        shape = self.workload.model
        return shape.ffn_dim * shape.dim // self.layout.mesh.tp

    def _head_matrix(self) -> int:
        shape = self.workload.model
        return shape.vocab_size * shape.dim // self.layout.mesh.tp

    def _largest(self) -> int:
        shape, mesh = self.workload.model, self.layout.mesh
        widest = max(shape.vocab_size, shape.ffn_dim)
        return -(-widest // (mesh.tp * mesh.dp_shard)) * shape.dim
