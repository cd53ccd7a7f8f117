"""Peak memory of a step with many blocks from traces with few: the moments of a step are linear in their number.

A moment is a part of the step and the module at work there. Blocks are alike but for the first two and the last two,
since what they wait for and what waits for them differs at the ends of the model. At any moment of one of these four,
or outside of blocks, each further block of the model adds the same bytes: its part of the state and of what is kept
between forward and backward. From one inner block to the next bytes change by the same amount, so none of them holds
more than both of its ends, and the peak is the largest of the moments that are followed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from harness.base import Frozen
from harness.traffic import StepPhase

ENDS = (0, 1, -2, -1)
LEAST_BLOCKS = 3  # of the shorter trace: fewer have no block that is neither the first nor the last


class TracedMoment(Frozen):
    """The most bytes that lived at one moment. ``module``: by name in the bare model; None outside of modules."""

    phase: StepPhase
    module: str | None
    peak_bytes: int

    @property
    def text(self) -> str:
        """In words, such as ``backward, layers.4.ffn``."""
        return self.phase if self.module is None else f"{self.phase}, {self.module or 'model'}"


class _Place(NamedTuple):
    """The same moment in models of any number of blocks.

    Attributes:
        block: the block that the step is in, or was in before: from the first (0, 1) or from the last (-1, -2); None
            before all of them.
        module: the name, without the block's number for those inside.
        turn: how many times the step was there before.
    """

    phase: StepPhase
    block: int | None
    inside: bool
    module: str | None
    turn: int


def peak_of(moments: Iterable[TracedMoment]) -> TracedMoment:
    """The fullest moment; of equal ones the first."""
    return max(moments, key=lambda moment: moment.peak_bytes)


def extend_moments(
    short: Sequence[TracedMoment], long: Sequence[TracedMoment], blocks: int, layers: int, prefix: str = "layers."
) -> tuple[TracedMoment, ...] | None:
    """The moments of the ends and of what is outside of blocks in a model of ``layers`` blocks.

    ``long`` has ``blocks`` blocks and ``short`` one less, whose names are ``prefix`` and a number. None where the two
    traces differ in more than bytes, so that nothing follows for more blocks.
    """
    before, after = _placed(short, blocks - 1, prefix), _placed(long, blocks, prefix)
    if before.keys() != after.keys():
        return None
    more = layers - blocks
    return tuple(
        TracedMoment(
            phase=place.phase,
            module=_name(place, layers, prefix),
            peak_bytes=bytes_ + more * (bytes_ - before[place]),
        )
        for place, bytes_ in after.items()
    )


def _placed(moments: Iterable[TracedMoment], blocks: int, prefix: str) -> dict[_Place, int]:
    """Bytes by place; a block that is near both ends has two, and one that is near none is left out."""
    turns: Counter[tuple[StepPhase, int | None, str | None]] = Counter()
    found: dict[_Place, int] = {}
    phase: StepPhase | None = None
    block: int | None = None
    for one in moments:
        if one.phase != phase:
            phase, block = one.phase, None
        inside = one.module is not None and one.module.startswith(prefix)
        module = one.module
        if inside and module is not None:
            number, _, module = module.removeprefix(prefix).partition(".")
            block = int(number)
        turn = turns[one.phase, block, one.module]
        turns[one.phase, block, one.module] += 1
        for end in (None,) if block is None else (end for end in ENDS if end % blocks == block):
            found[_Place(one.phase, end, inside, module, turn)] = one.peak_bytes
    return found


def _name(place: _Place, layers: int, prefix: str) -> str | None:
    if not place.inside or place.block is None:
        return place.module
    return f"{prefix}{place.block % layers}" + (f".{place.module}" if place.module else "")
