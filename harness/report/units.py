"""Units of a column or an axis: one for all of its values, chosen by the largest."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True)
class Unit:
    """Shown value = raw value / ``divisor``."""

    name: str
    divisor: float

    def text(self, value: float) -> str:
        """The value in this unit, three digits and no more than its size needs, thousands separated."""
        return number(value / self.divisor)


_BYTES = tuple(Unit(name, 1024.0**power) for power, name in enumerate(("B", "KiB", "MiB", "GiB", "TiB", "PiB")))
_SECONDS = (Unit("us", 1e-6), Unit("ms", 1e-3), Unit("s", 1.0), Unit("min", 60.0))
_RATES = (Unit("tokens/s", 1.0), Unit("k tokens/s", 1e3), Unit("M tokens/s", 1e6))


def bytes_unit(values: Iterable[float]) -> Unit:
    """Unit for sizes in bytes."""
    return _choose(_BYTES, values, least=1.0)


def time_unit(values: Iterable[float]) -> Unit:
    """Unit for times in seconds; minutes from ten of them on."""
    return _choose(_SECONDS[:3], values, least=1.0) if _largest(values := list(values)) < 600 else _SECONDS[3]


def rate_unit(values: Iterable[float]) -> Unit:
    """Unit for tokens/s; five digits before the point are still easy to compare."""
    return _choose(_RATES, values, least=100.0)


def number(value: float) -> str:
    """Three significant digits below a hundred, whole numbers with thousands separated above."""
    size = abs(value)
    if size >= 1e9:
        return f"{value:.3g}"
    if size >= 99.95:
        return f"{value:,.0f}"
    digits = 1 if size >= 9.995 else 2
    return f"{value:z.{digits}f}" if size >= 0.01 or value == 0 else f"{value:.2g}"


def plain(text: str, most: int | None = None) -> str:
    """One line without control characters, cut to ``most`` characters."""
    line = re.sub(r"[^\S ]|[\x00-\x1f\x7f-\x9f]", " ", text)
    return line if most is None or len(line) <= most else line[: most - 3] + "..."


def fold(text: str, width: int) -> list[str]:
    """Lines of at most ``width`` characters, broken at blanks; longer words after ``_`` or ``=``, else anywhere."""
    lines: list[str] = []
    for word in plain(text).split():
        if lines and len(lines[-1]) + 1 + len(word) <= width:
            lines[-1] += " " + word
            continue
        lines.append("")
        for part in re.findall(r"[^_=]*[_=]?", word) if len(word) > width else [word]:
            if len(lines[-1]) + len(part) > width and lines[-1]:
                lines.append("")
            lines[-1] += part
            while len(lines[-1]) > width:
                lines[-1:] = [lines[-1][:width], lines[-1][width:]]
    return lines or [""]


def _largest(values: Iterable[float]) -> float:
    return max((abs(v) for v in values), default=0.0)


def _choose(units: tuple[Unit, ...], values: Iterable[float], least: float) -> Unit:
    """The largest unit in which the largest value is at least ``least``."""
    largest = _largest(values)
    fitting = [u for u in units if largest >= least * u.divisor]
    return fitting[-1] if fitting else units[0]
