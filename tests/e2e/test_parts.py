"""Links, parts of a step and memory by kind, from one command to the words about them."""

from __future__ import annotations

import json

import pytest

from harness.calibration import FILE, Calibration
from harness.store import read_model
from tests.e2e.conftest import QUICK, Command, instead

pytestmark = pytest.mark.distributed


def test_a_sweep_measures_links_and_parts_and_explains_them(command: Command) -> None:
    more = ("--layouts", "ddp:r2,fsdp:s2", "--calibrate", "--no-checkpoint", "--name", "s")
    done = command.run("run", *instead(QUICK, "--exposure-steps", "3"), *more)
    assert done.returncode == 0, done.stderr
    records = command.records("s")
    for text, axis in (("ddp:r2", "dp_replicate"), ("fsdp:s2", "dp_shard")):
        record = records[text, "verify"]
        assert record.exposure is not None
        assert [len(row) for row in record.exposure.step_time_s] == [3, 3]
        assert record.memory is not None
        assert record.memory.ranks is not None
        assert tuple(rank.peak.peak_bytes for rank in record.memory.ranks) == record.memory.peak_bytes
        calibration = records["ddp:r2", "calibrate"].calibration
        assert calibration is not None
        assert calibration.axis(text, axis) is not None
    assert read_model(command.results / "s" / FILE, Calibration) == records["ddp:r2", "calibrate"].calibration
    for name in ("step_breakdown", "memory_by_kind", "memory_heat"):
        assert (command.results / "s" / "report" / f"{name}.png").exists()
    explained = command.run("explain", "s", "ddp", "fsdp", "--json")
    assert explained.returncode == 0, explained.stderr
    titles = [chapter["title"] for chapter in json.loads(explained.stdout)["chapters"]]
    assert {"What a step is made of", "Memory"} <= set(titles)


def test_calibrate_alone_prints_every_operation_and_keeps_its_file(command: Command) -> None:
    done = command.run("calibrate", *QUICK[:4], "--layouts", "fsdp:s2", "--name", "links")
    assert done.returncode == 0, done.stderr
    assert all(word in done.stdout for word in ("all_gather", "reduce_scatter", "all_reduce", "broadcast", "bus MB/s"))
    calibration = read_model(command.results / "links" / FILE, Calibration)
    assert [use.layout for axis in calibration.axes for use in axis.uses] == ["fsdp:s2"]
