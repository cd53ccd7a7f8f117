"""The three designs on real ranks: who steps when, and that raw samples are complete."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.execute.collect import collect
from harness.launch.folder import write_launch
from harness.launch.progress import create, read
from harness.record import RunRecord
from harness.spec import Design, Launch
from tests.contract.conftest import GetGroup
from tests.contract.specs import make_spec

pytestmark = pytest.mark.distributed

STEPS = 10


def run(group: GetGroup, folder: Path, design: Design, *texts: str) -> list[RunRecord]:
    specs = [make_spec(text, timed_steps=STEPS).model_copy(update={"purpose": "time"}) for text in texts]
    write_launch(folder, Launch(launch_id=folder.name, runs=tuple(specs), design=design))
    create(folder, (2,))
    group(2).call("harness.train.worker:run_launch", folder)
    return collect(folder, {})


@pytest.mark.parametrize("design", ["alternated", "blocks"])
def test_every_rank_records_every_step_of_every_layout(design: Design, rank_group: GetGroup, tmp_path: Path) -> None:
    records = run(rank_group, tmp_path / design, design, "ddp:r2", "fsdp:s2")
    for record in records:
        timing = record.timing
        assert record.status == "measured"
        assert timing is not None
        assert timing.design == design
        assert timing.cycles == tuple(range(STEPS))
        assert [len(row) for row in timing.step_time_s] == [STEPS, STEPS]
        assert all(time > 0 for row in timing.step_time_s for time in row)
        assert 6 <= len(timing.warmup_s) <= 15
        assert record.ground is not None
        assert record.ground.backend == "gloo"
    assert all(position.phase == "timing" for position in read(tmp_path / design, (2,)))


def test_alternated_steps_of_a_cycle_are_neighbours(rank_group: GetGroup, tmp_path: Path) -> None:
    run(rank_group, tmp_path / "a", "alternated", "ddp:r2", "fsdp:s2", "tp:t2")
    lines = [line for line in (tmp_path / "a" / "rank0.jsonl").read_text().splitlines() if '"kind": "step"' in line]
    cycles = [int(line.split('"cycle": ')[1].split(",")[0]) for line in lines]
    assert cycles == [cycle for cycle in range(STEPS) for _ in range(3)]
    orders = {
        tuple(line.split('"run": ')[1].split(",")[0] for line in lines[3 * cycle : 3 * cycle + 3])
        for cycle in range(STEPS)
    }
    assert len(orders) > 1, "the order within a cycle changes"
