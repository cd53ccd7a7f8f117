"""Benchmarks of pytest-benchmark's files as a table."""

from __future__ import annotations

from collections.abc import Sequence

from harness.interchange.pytest_benchmark import Benchmark
from harness.report.tables import MISSING, markdown_rows
from harness.report.units import bytes_unit, plain, rate_unit, time_unit

Files = Sequence[tuple[str, Sequence[Benchmark]]]


def benchmarks_text(files: Files) -> str:
    """For a terminal."""
    from tabulate import tabulate

    titles, rows = _table(files)
    return tabulate(rows, headers=titles, disable_numparse=True) if rows else "no benchmark in these files"


def benchmarks_markdown(files: Files) -> str:
    titles, rows = _table(files)
    return markdown_rows(titles, rows) if rows else "no benchmark in these files"


def _table(files: Files) -> tuple[list[str], list[list[str]]]:
    found = sorted(((name, one) for name, read in files for one in read), key=lambda pair: pair[1].median_s)
    times = time_unit(one.median_s for _, one in found)
    rates = rate_unit(_number(one, "tokens_per_s") or 0.0 for _, one in found)
    sizes = bytes_unit(_number(one, "peak_memory_bytes") or 0.0 for _, one in found)
    titles = ["benchmark", "file", f"median ({times.name})", f"quartiles ({times.name})", "rounds"]
    titles += [f"speed ({rates.name})", f"memory ({sizes.name})"]
    rows = []
    for file, one in found:
        speed, memory = _number(one, "tokens_per_s"), _number(one, "peak_memory_bytes")
        rows.append(
            [
                plain(one.name),
                plain(file),
                times.text(one.median_s),
                f"{times.text(one.q1_s)} to {times.text(one.q3_s)}",
                str(one.rounds),
                MISSING if speed is None else rates.text(speed),
                MISSING if memory is None else sizes.text(memory),
            ]
        )
    hidden = {1} if len(files) < 2 else set()
    used = [i for i in range(len(titles)) if i not in hidden and (not rows or any(r[i] != MISSING for r in rows))]
    return [titles[i] for i in used], [[row[i] for i in used] for row in rows]


def _number(one: Benchmark, name: str) -> float | None:
    value = one.extra.get(name)
    return float(value) if isinstance(value, (int, float)) else None
