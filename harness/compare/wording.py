"""Numbers and lists as they stand in sentences."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from harness.compare.models import CellResult, Estimate
from harness.stats import Ratio

Standing = Literal["fastest", "tie", "undecided", "slower", "stopped"]

_TIMES = 3.0  # from here on a ratio reads better than a percentage
_MOST_LISTED = 4


def listed(labels: Sequence[str]) -> str:
    """``a``, ``a and b``, ``a, b and c``; beyond four the rest is counted."""
    if len(labels) > _MOST_LISTED:
        shown = _MOST_LISTED - 1
        return f"{', '.join(labels[:shown])} and {len(labels) - shown} more"
    return " and ".join(part for part in (", ".join(labels[:-1]), *labels[-1:]) if part)


def counted(count: int, word: str) -> str:
    """``1 round``, ``2 rounds``."""
    return f"{count:,} {word}{'s' * (count != 1)}"


def standing(cell: CellResult) -> Standing:
    """How a ranked cell stands to the fastest; one round decides nothing, not even that they are a tie."""
    if cell.ratio_to_best is None:
        return "fastest"
    if cell.stopped is not None:
        return "stopped"
    if cell.ratio_to_best.one_round:
        return "undecided"
    return "tie" if cell.tie else "slower"


def percent_text(ratio: Ratio) -> str:
    """How far a ratio of speeds lies from 1, in percent with its interval: ``14% [9, 18]``."""
    value, low, high = (100 * (x - 1) for x in (ratio.ratio, ratio.low, ratio.high))
    digits = 0 if high - low >= 2 else 1
    return f"{_number(value, digits)}% [{_number(low, digits)}, {_number(high, digits)}]"


def lead_text(ratio: Ratio, rival: str, good: str = "fast") -> str:
    """``14% [9, 18] ahead of`` the rival, or ``3.2x [3.0, 3.5] as fast as`` it from three times on.

    Without brackets where both sides are single measurements.
    """
    if ratio.ratio >= _TIMES:
        interval = f" [{ratio.low:.3g}, {ratio.high:.3g}]" if ratio.samples > 1 else ""
        return f"{ratio.ratio:.3g}x{interval} as {good} as {rival}"
    return f"{share_text(ratio)} ahead of {rival}"


def share_text(ratio: Ratio) -> str:
    """``14% [9, 18]``, without the brackets where both sides are single measurements."""
    return percent_text(ratio) if ratio.samples > 1 else f"{100 * (ratio.ratio - 1):z.3g}%"


def speed_text(cell: CellResult) -> str:
    """``1,234 tokens/s [1,200, 1,260]``."""
    return estimate_text(cell.tokens_per_s, "tokens/s")


def estimate_text(speed: Estimate | None, unit: str) -> str:
    """A rate in its unit with its interval."""
    if speed is None:
        return "an unknown speed"
    return f"{rate(speed.value)} {unit} [{rate(speed.low)}, {rate(speed.high)}]"


def rate(value: float) -> str:
    """A rate with thousands separated; three digits below a hundred, powers of ten beyond 10^12."""
    return f"{value:,.0f}" if 100 <= value < 1e12 else f"{value:.3g}"


def signed(value: float, digits: int = 1) -> str:
    """With a sign, which a zero has not: ``+3.1``, ``-0.2``, ``0.0``."""
    text = f"{value:+.{digits}f}"
    return text if text.strip("+-0.") else text[1:]


def _number(value: float, digits: int) -> str:
    return f"{value:.2g}" if abs(value) >= 1e5 else f"{value:z.{digits}f}"
