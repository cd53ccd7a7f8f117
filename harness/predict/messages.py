"""The largest message that a layout sends over a mesh axis, to know how far to measure its links."""

from __future__ import annotations

from harness.layout import Layout
from harness.predict.collectives import step_collectives
from harness.workload import Workload


def largest_message_bytes(workload: Workload, layout: Layout, axis: str) -> int:
    """Algorithm bytes of the largest collective of a step over ``axis``; 0 if there is none.

    A user's own model is taken for the reference model of its shape.
    """
    of_shape = workload.model_copy(update={"model_path": None})
    found = step_collectives(layout, of_shape)
    return max((one.size_bytes for one in found if axis in one.axis.split("+")), default=0)
