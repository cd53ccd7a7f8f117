"""Ids of runs and cells."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from harness.layout import Layout, Mesh
from harness.spec import Ranks, RunSpec, Settings
from harness.workload import make_workload


def spec(**changes: object) -> RunSpec:
    values: dict[str, object] = {
        "layout": Layout(strategy="ddp", mesh=Mesh(dp_replicate=4)),
        "workload": make_workload("tiny", 8, 64),
        "ranks": Ranks(device="cpu", per_node=(4,)),
        "settings": Settings(),
        "purpose": "time",
    }
    return RunSpec.model_validate({**values, **changes})


def test_run_id_is_a_content_hash_with_defaults_filled_in() -> None:
    assert spec().run_id == spec(seed=0, repeat=0, settings=Settings(rounds=3)).run_id
    assert len({spec().run_id, spec(seed=1).run_id, spec(repeat=1).run_id, spec(purpose="verify").run_id}) == 4


def test_cell_id_leaves_out_seed_repeat_and_purpose_alone() -> None:
    assert spec().cell_id == spec(seed=1, repeat=2, purpose="verify").cell_id
    assert spec().cell_id != spec(workload=make_workload("tiny", 16, 64)).cell_id
    assert spec().cell_id != spec(layout=Layout(strategy="fsdp", mesh=Mesh(dp_shard=4))).cell_id


def test_ids_survive_a_round_trip_through_json() -> None:
    again = RunSpec.model_validate_json(spec().model_dump_json())
    assert again == spec()
    assert again.run_id == spec().run_id


def test_specs_are_frozen_and_take_no_unknown_field() -> None:
    with pytest.raises(ValidationError, match="frozen"):
        spec().seed = 3  # type: ignore[misc]
    with pytest.raises(ValidationError, match="Extra inputs"):
        spec(colour="red")
