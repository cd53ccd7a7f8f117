"""Mesh arithmetic: coordinates, groups, signatures."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from harness.errors import UsageError
from harness.layout import AXES, Mesh, parse_mesh

SIZES = st.integers(1, 6)
MESHES = st.builds(Mesh, dp_replicate=SIZES, dp_shard=SIZES, tp=SIZES)


def test_groups_of_two_nodes_of_four() -> None:
    mesh = Mesh(dp_replicate=2, dp_shard=4)
    assert list(mesh.groups("dp_replicate")) == [(0, 4), (1, 5), (2, 6), (3, 7)]
    assert list(mesh.groups("dp_shard")) == [(0, 1, 2, 3), (4, 5, 6, 7)]
    assert list(mesh.groups("tp")) == [(rank,) for rank in range(8)]


def test_groups_of_three_axes() -> None:
    mesh = Mesh(dp_replicate=2, dp_shard=2, tp=2)
    assert list(mesh.groups("dp_replicate")) == [(0, 4), (1, 5), (2, 6), (3, 7)]
    assert list(mesh.groups("dp_shard")) == [(0, 2), (1, 3), (4, 6), (5, 7)]
    assert list(mesh.groups("tp")) == [(0, 1), (2, 3), (4, 5), (6, 7)]
    assert mesh.coordinate(6) == (1, 1, 0)


@given(MESHES)
def test_every_rank_is_in_one_group_of_each_axis_and_groups_differ_in_that_axis_only(mesh: Mesh) -> None:
    assert len({mesh.coordinate(rank) for rank in range(mesh.world_size)}) == mesh.world_size
    for at, axis in enumerate(AXES):
        groups = list(mesh.groups(axis))
        assert sorted(rank for group in groups for rank in group) == list(range(mesh.world_size))
        for group in groups:
            coordinates = [mesh.coordinate(rank) for rank in group]
            assert [c[at] for c in coordinates] == list(range(mesh.sizes[at]))
            assert len({c[:at] + c[at + 1 :] for c in coordinates}) == 1


@given(MESHES)
def test_signatures_are_read_back(mesh: Mesh) -> None:
    assert parse_mesh(mesh.signature) == parse_mesh(mesh.short) == mesh


@pytest.mark.parametrize("text", ["", "2x4", "r0s4", "s4r2", "r2 s4", "r-1", "t", "r99999999"])
def test_other_texts_are_refused_with_the_form(text: str) -> None:
    with pytest.raises(UsageError, match="is not a signature; write r<dp_replicate>s<dp_shard>t<tp>"):
        parse_mesh(text)


def test_sizes_below_one_are_refused() -> None:
    with pytest.raises(ValidationError):
        Mesh(tp=0)
