"""Measured links in a few lines: one for all links of a class that were measured in the same way."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median

from harness.topology.model import LinkSpeed


def speed_lines(measured: Sequence[LinkSpeed]) -> list[str]:
    """``network: 24.8 MB/s (23.9 to 25.0, 4 links), latency 0.12 ms, by TCP``: the median, and the range of several."""
    alike: dict[tuple[str, str], list[LinkSpeed]] = {}
    for one in measured:
        alike.setdefault((one.link_class.value, one.method), []).append(one)
    return [_line(name, method, found) for (name, method), found in alike.items()]


def _line(name: str, method: str, found: Sequence[LinkSpeed]) -> str:
    speeds = [one.bandwidth_bytes_per_s for one in found]
    latencies = [one.latency_s for one in found if one.latency_s is not None]
    extent = f" ({rate(min(speeds))} to {rate(max(speeds))}, {len(found)} links)" if len(found) > 1 else ""
    delay = f", latency {_short(median(latencies))}" if latencies else ""
    return f"{name}: {rate(median(speeds))}{extent}{delay}, by {method}"


def rate(bytes_per_s: float) -> str:
    """Bytes a second as links are rated, in powers of ten."""
    value, unit = (bytes_per_s / 1e9, "GB/s") if bytes_per_s >= 1e9 else (bytes_per_s / 1e6, "MB/s")
    return f"{value:.0f} {unit}" if value >= 99.5 else f"{value:.3g} {unit}"


def _short(seconds: float) -> str:
    return f"{seconds * 1e3:.3g} ms" if seconds >= 1e-3 else f"{seconds * 1e6:.3g} us"
