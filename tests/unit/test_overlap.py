"""Exposed communication on kernels laid out by hand."""

from __future__ import annotations

from typing import Any

import pytest

from harness.measure.overlap import OPTIMIZER, STEP, Kernel, length, parts, read_trace, union, without


def axis_of(ranks: tuple[int, ...]) -> str:
    names: dict[tuple[int, ...], str] = {(0, 1): "dp_shard", (0, 2): "dp_replicate"}
    return names[ranks]


def test_only_communication_beside_no_computation_is_exposed() -> None:
    kernels = [
        Kernel(0.0, 2.0),
        Kernel(1.0, 4.0, (0, 1)),  # hidden for 1 s, exposed from 2 to 3, hidden from 3 to 4
        Kernel(3.0, 5.0),
        Kernel(5.5, 6.5, (0, 1)),  # exposed, and from 6 on together with the other axis
        Kernel(6.0, 7.0, (0, 2)),
        Kernel(8.0, 9.0),
        Kernel(11.0, 12.0, (0, 2)),  # another step's
    ]
    found = parts(kernels, (0.0, 10.0), (7.0, 10.0), axis_of)
    assert found.step_time_s == 10.0
    assert found.exposed_by_axis_s == pytest.approx({"dp_shard": 2.0, "dp_replicate": 1.0})
    assert found.compute_s == pytest.approx(10.0 - 2.5)  # the half second together counts once
    assert found.optimizer_s == pytest.approx(3.0)


def test_a_kernel_over_a_steps_border_counts_on_both_sides_with_its_part() -> None:
    kernels = [Kernel(0.5, 1.5, (0, 1))]
    assert parts(kernels, (0.0, 1.0), None, axis_of).exposed_by_axis_s == {"dp_shard": 0.5}
    assert parts(kernels, (1.0, 2.0), None, axis_of).exposed_by_axis_s == {"dp_shard": 0.5}


def test_a_trace_gives_kernels_with_their_groups_steps_and_optimizers() -> None:
    def event(category: str, name: str, begin: float, duration: float, **args: Any) -> dict[str, Any]:
        return {"ph": "X", "cat": category, "name": name, "ts": begin, "dur": duration, "args": args}

    trace = {
        "traceEvents": [
            {"ph": "M", "name": "process_name"},
            event("user_annotation", STEP, 0, 3e6),
            event("user_annotation", OPTIMIZER, 2e6, 1e6),
            event("kernel", "ampere_sgemm_128x64", 0, 1e6),
            event("kernel", "ncclDevKernel_AllGather_RING_LL", 1e6, 5e5, **{"Process Group Ranks": "[0, 1]"}),
            event("kernel", "ncclDevKernel_SendRecv", 1e6, 1e5),
            event("gpu_memcpy", "Memcpy DtoD", 2e6, 1e5),
            event("cpu_op", "aten::mm", 0, 1e6),
        ]
    }
    kernels, steps, optimizers = read_trace(trace)
    assert [kernel.ranks for kernel in kernels] == [None, (0, 1), (), None]
    assert kernels[1][:2] == (1.0, 1.5)
    assert (steps, optimizers) == ([(0.0, 3.0)], [(2.0, 3.0)])


def test_interval_arithmetic() -> None:
    assert union([(3, 4), (0, 1), (0.5, 2), (2, 2)]) == [(0, 2), (3, 4)]
    assert without([(0, 10)], [(-1, 1), (2, 3), (9, 12)]) == [(1, 2), (3, 9)]
    assert without([(0, 1)], [(0, 1)]) == []
    assert length([(0, 1), (2, 4)]) == 3
