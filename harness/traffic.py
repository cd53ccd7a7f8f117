"""What a step's collectives carry: the common words of counting on ranks, closed formulas and traces.

The size of a collective is the one nccl-tests calls ``size``: all-gather, the gathered tensor; reduce-scatter, the
tensor before it is scattered; all-reduce, broadcast and reduce, the tensor. All sizes are bytes on one rank.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Literal

from pydantic import Field

from harness.base import Frozen
from harness.layout.mesh import AXES, Mesh
from harness.layout.order import ranks_by_slot

Operation = Literal[
    "all_gather", "reduce_scatter", "all_reduce", "broadcast", "reduce", "gather", "scatter", "all_to_all", "send"
]
StepPhase = Literal["forward", "backward", "clipping", "optimizer"]


class Collective(Frozen):
    """Equal collectives of one step, as one rank issues them.

    Attributes:
        axis: the mesh axis whose group carries it; several axes flattened into one group are joined by ``+``,
            outermost first, as in ``dp_replicate+dp_shard``.
        group_size: ranks in the group.
        size_bytes: algorithm bytes of each of them.
        count: how many a step.
    """

    operation: Operation
    axis: str
    group_size: int = Field(ge=1)
    dtype: str  # torch's word, such as "float32"
    phase: StepPhase
    size_bytes: int = Field(ge=0)
    count: int = Field(ge=1)

    @property
    def total_bytes(self) -> int:
        """Algorithm bytes of all of them."""
        return self.size_bytes * self.count


PortKind = Literal["ethernet", "infiniband", "loopback"]


class Port(Frozen):
    """What one network port of a host moved while ``Traffic.steps`` steps ran.

    Attributes:
        carries_ranks: whether it is the one through which ranks of different hosts talk; None where nothing says so.
        sent_bytes: with the headers that the counter counts; see ``harness.predict.proof``.
    """

    host: str
    name: str
    kind: PortKind
    carries_ranks: bool | None = None
    sent_bytes: int = Field(ge=0)
    received_bytes: int = Field(ge=0)
    sent_packets: int = Field(ge=0)
    received_packets: int = Field(ge=0)


class Traffic(Frozen):
    """Counted collectives of a steady AdamW step, and what ports moved meanwhile.

    Attributes:
        collectives: of one step, as rank 0 issued them.
        rank_bytes: algorithm bytes of all collectives of one step, a value a rank.
        steps: how many steps in a row were counted; ports cover them all.
        counted_step_s: the slowest rank's time of each counted step: what counting costs, against ``plain_step_s``.
        plain_step_s: steps of the same session without counting.
        ports: of all hosts; empty where no counter could be read.
    """

    collectives: tuple[Collective, ...]
    rank_bytes: tuple[int, ...]
    steps: int = Field(ge=1)
    counted_step_s: tuple[float, ...] = ()
    plain_step_s: tuple[float, ...] = ()
    ports: tuple[Port, ...] = ()


def gathered(
    by_rank: Sequence[Sequence[Collective]],
    ports: Iterable[Port],
    plain_step_s: Sequence[float],
    counted_step_s: Sequence[float],
) -> Traffic:
    """What all ranks saw as one value: each rank's collectives of a step, and every host's ports."""
    return Traffic(
        collectives=tuple(by_rank[0]),
        rank_bytes=tuple(sum(one.total_bytes for one in rank) for rank in by_rank),
        steps=len(counted_step_s),
        plain_step_s=tuple(plain_step_s),
        counted_step_s=tuple(counted_step_s),
        ports=tuple(ports),
    )


def merged(collectives: Iterable[Collective]) -> tuple[Collective, ...]:
    """Equal collectives as one each, with their counts added, in a fixed order."""
    counts: dict[tuple[object, ...], Collective] = {}
    for one in collectives:
        key = (one.phase, one.axis, one.operation, one.dtype, one.size_bytes, one.group_size)
        known = counts.get(key)
        counts[key] = one if known is None else known.model_copy(update={"count": known.count + one.count})
    return tuple(counts[key] for key in sorted(counts, key=str))


def axis_names(mesh: Mesh, order: Sequence[str] = AXES) -> Callable[[tuple[int, ...]], str]:
    """A function from a group's ranks in the default process group to the mesh axes over which its members differ.

    ``order`` is the layout's: in another than the usual one process ranks are slots, and their places in the mesh
    differ. A group that is only a part of an axis (``reshard_after_forward=2``) bears its name; its size tells.
    """
    places = ranks_by_slot(mesh, order)

    def axis_of(ranks: tuple[int, ...]) -> str:
        by_axis = zip(*(mesh.coordinate(places[rank]) for rank in ranks), strict=True)
        return "+".join(axis for axis, at in zip(AXES, by_axis, strict=True) if len(set(at)) > 1)

    return axis_of
