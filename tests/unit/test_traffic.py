"""Names of groups, worked out by hand."""

from __future__ import annotations

import pytest

from harness.layout import Mesh
from harness.traffic import Collective, axis_names, merged


@pytest.mark.parametrize(
    ("ranks", "axis"),
    [
        ((0, 4), "dp_replicate"),
        ((1, 3), "dp_shard"),
        ((6, 7), "tp"),
        ((0, 2, 4, 6), "dp_replicate+dp_shard"),
        ((0, 1, 2, 3), "dp_shard+tp"),
        (tuple(range(8)), "dp_replicate+dp_shard+tp"),
    ],
)
def test_a_group_is_named_by_the_axes_over_which_its_members_differ(ranks: tuple[int, ...], axis: str) -> None:
    assert axis_names(Mesh(dp_replicate=2, dp_shard=2, tp=2))(ranks) == axis


def test_in_another_order_process_ranks_are_slots() -> None:
    """tp outermost: slots 0 and 4 hold the two tp ranks of one place, slots 0 and 1 two replicas."""
    axis_of = axis_names(Mesh(dp_replicate=2, dp_shard=2, tp=2), ("tp", "dp_shard", "dp_replicate"))
    assert axis_of((0, 4)) == "tp"
    assert axis_of((0, 2)) == "dp_shard"
    assert axis_of((0, 1)) == "dp_replicate"


def test_a_part_of_an_axis_bears_its_name() -> None:
    assert axis_names(Mesh(dp_shard=4))((0, 1)) == "dp_shard"


def test_equal_collectives_are_merged() -> None:
    one = Collective(
        operation="all_reduce", axis="tp", group_size=2, dtype="float32", phase="forward", size_bytes=8, count=1
    )
    other = one.model_copy(update={"size_bytes": 4})
    assert merged([one, other, one]) == (other, one.model_copy(update={"count": 2}))
    assert merged([one, one])[0].total_bytes == 16
