"""What is to be best: a product of powers of measured terms, so that weights are exponents and units fall out."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import log
from typing import NamedTuple

from pydantic import Field

from harness.base import Frozen
from harness.compare import CellResult
from harness.errors import UnknownNameError, UsageError
from harness.recommend.limits import memory_bytes


class Term(NamedTuple):
    """A figure of a layout. ``sign``: 1 if more is better, -1 if less is."""

    value: Callable[[CellResult], float | None]
    sign: int
    meaning: str


def _speed(cell: CellResult) -> float | None:
    return cell.tokens_per_s.value if cell.tokens_per_s else None


def _checkpoint(cell: CellResult) -> float | None:
    return float(cell.checkpoint.total_bytes) if cell.checkpoint else None


TERMS: Mapping[str, Term] = {
    "speed": Term(_speed, 1, "tokens/s"),
    "ranks": Term(lambda c: float(c.world_size), -1, "ranks, which cost the same each"),
    "restore": Term(lambda c: c.checkpoint.restore_time_s if c.checkpoint else None, -1, "time to restore"),
    "save": Term(lambda c: c.checkpoint.save_time_s if c.checkpoint else None, -1, "time to save"),
    "memory": Term(memory_bytes, -1, "memory of the fullest rank"),
    "checkpoint": Term(_checkpoint, -1, "size of a checkpoint"),
}
WEIGHABLE = tuple(name for name in TERMS if name != "ranks")


class Objective(Frozen):
    """``weights``: exponent of each term; a layout's score is the product, higher is better.

    With weights speed=1, restore=0.5 a layout that is 10% faster and restores 21% slower scores the same, since
    1.1 = 1.21 ** 0.5. ``price`` is that of one GPU for an hour, in any currency.
    """

    name: str
    weights: dict[str, float]
    price: float | None = Field(default=None, gt=0)

    def score(self, cell: CellResult) -> float | None:
        """Logarithm of the score; None if a term was not measured or is no positive number."""
        total = 0.0
        for name, weight in self.weights.items():
            term = TERMS[name]
            value = term.value(cell)
            if value is None or value <= 0:
                return None
            total += term.sign * weight * log(value)
        return total

    @property
    def per_rank(self) -> bool:
        """Whether it is of a GPU or of a token, so that sweeps of unequal batches can be chosen from together."""
        return "ranks" in self.weights

    @property
    def good(self) -> str:
        """What a higher score is: ``2x as fast``."""
        return {"speed": "fast", "per-gpu": "fast a GPU", "cost": "cheap", "restore": "quick"}.get(self.name, "good")

    @property
    def text(self) -> str:
        """What it is, in words."""
        if self.name == "weighted":
            parts = [f"{name}^{TERMS[name].sign * weight:g}" for name, weight in self.weights.items()]
            return f"weighted score {' x '.join(parts)}"
        return OBJECTIVES[self.name][1]


OBJECTIVES: Mapping[str, tuple[Mapping[str, float], str]] = {
    "speed": ({"speed": 1.0}, "tokens/s, more is better"),
    "per-gpu": ({"speed": 1.0, "ranks": 1.0}, "tokens/s per GPU"),
    "cost": ({"speed": 1.0, "ranks": 1.0}, "cost of a million tokens, less is better"),
    "restore": ({"restore": 1.0}, "time to restore a checkpoint, less is better"),
    "weighted": ({}, "a product of weighted terms"),
}


def make_objective(name: str, weights: str | None = None, price: float | None = None) -> Objective:
    """An objective from the options of the command; ``weights`` such as ``speed=1,restore=0.2``.

    Raises:
        UsageError: an unknown objective or term, or options that do not go together.
    """
    if name not in OBJECTIVES:
        raise UnknownNameError("objective", name, OBJECTIVES)
    if (weights is not None) != (name == "weighted"):
        raise UsageError("--weights goes with --objective weighted, and that needs it; write speed=1,restore=0.2")
    if weights is not None:
        return Objective(name=name, weights=_weights(weights), price=price)
    return Objective(name=name, weights=dict(OBJECTIVES[name][0]), price=price)


def _weights(text: str) -> dict[str, float]:
    found: dict[str, float] = {}
    for part in text.split(","):
        name, equals, number = (word.strip() for word in part.partition("="))
        if name not in WEIGHABLE:
            raise UnknownNameError("term of --weights", name, WEIGHABLE)
        try:
            weight = float(number) if equals else 1.0
        except ValueError:
            weight = 0.0
        if not 0 < weight <= 100:
            raise UsageError(f"weight {part.strip()!r} is none; write {name}=WEIGHT with a number above 0, at most 100")
        found[name] = weight
    return found


def price_of(cell: CellResult, price: float = 1.0) -> tuple[float, float, float] | None:
    """Cost of a million tokens with its 95% interval: price x ranks / (tokens/s x 3600) x 10^6.

    At a price of 1 it is in GPU-hours.
    """
    speed = cell.tokens_per_s
    if speed is None or speed.low <= 0:
        return None
    of = price * cell.world_size / 3600 * 1e6
    return (of / speed.value, of / speed.high, of / speed.low)
