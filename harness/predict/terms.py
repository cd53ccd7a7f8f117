"""What the formulas of collectives share."""

from __future__ import annotations

from harness.layout import Layout
from harness.traffic import Collective, Operation, StepPhase

ELEMENT_BYTES = {"float32": 4, "bfloat16": 2}


def collective(
    operation: Operation, axis: str, group_size: int, dtype: str, phase: StepPhase, numel: int, count: int = 1
) -> Collective:
    """Equal collectives of ``numel`` elements each."""
    return Collective(
        operation=operation,
        axis=axis,
        group_size=group_size,
        dtype=dtype,
        phase=phase,
        size_bytes=numel * ELEMENT_BYTES[dtype],
        count=count,
    )


def compute_dtype(layout: Layout) -> str:
    """The dtype in which parameters are gathered and blocks compute."""
    return "bfloat16" if layout.options.precision == "bf16" else "float32"
