"""Links under layouts timed by real ranks."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.calibration import CALIBRATED
from harness.execute.collect import collect
from harness.launch.folder import write_launch
from harness.launch.progress import create
from harness.predict.calibrated import calibrated_time
from harness.predict.messages import largest_message_bytes
from harness.predict.software import TORCH
from harness.spec import Launch
from harness.train.compute_profile import STEPS
from tests.contract.conftest import GetGroup
from tests.contract.specs import layout, make_spec

pytestmark = pytest.mark.distributed


def test_every_axis_of_every_layout_is_timed_up_to_its_largest_message(rank_group: GetGroup, tmp_path: Path) -> None:
    layouts = tuple(map(layout, ("ddp:r4", "fsdp:s4", "hsdp:r2s2")))
    spec = make_spec("ddp:r4").model_copy(update={"purpose": "calibrate"})
    write_launch(tmp_path, Launch(launch_id="links", runs=(spec,), design="launches", layouts=layouts))
    create(tmp_path, (4,))
    rank_group(4).call("harness.train.worker:run_launch", tmp_path)
    (record,) = collect(tmp_path, {})
    assert record.status == "measured"
    calibration = record.calibration
    assert calibration is not None
    assert [[group.ranks for group in axis.groups] for axis in calibration.axes] == [
        [(0, 1, 2, 3)],
        [(0, 2), (1, 3)],
        [(0, 1), (2, 3)],
    ]
    for one in layouts:
        for name, size in zip(("dp_replicate", "dp_shard"), one.mesh.sizes[:2], strict=True):
            axis = calibration.axis(one.text, name)
            assert (axis is not None) == (size > 1)
            if axis is None:
                continue
            assert (axis.group_size, axis.hosts) == (size, 1)
            largest = largest_message_bytes(spec.workload, one, name)
            for group in axis.groups:
                assert tuple(fit.operation for fit in group.fits) == CALIBRATED
                for fit in group.fits:
                    assert fit.samples[0].size_bytes == 1024
                    assert fit.samples[-1].size_bytes >= largest
                    assert all(len(sample.time_s) == 7 and min(sample.time_s) > 0 for sample in fit.samples)
    assert calibration.workload == spec.workload
    ways = [(one, waits) for one in layouts for waits in (False, True)[: 1 if one.strategy == "ddp" else 2]]
    assert [(profile.layout, profile.waits) for profile in calibration.compute] == ways
    for profile in calibration.compute:
        for rows in (profile.forward_s, profile.backward_s, profile.optimizer_s):
            assert [len(row) for row in rows] == [STEPS] * 4
            assert min(map(min, rows)) > 0
        time = calibrated_time(calibration, profile.layout, spec.workload, TORCH)
        assert time is not None
        assert time.compute_s > 0
        if not profile.waits:
            assert time.compute_s + time.optimizer_s >= profile.parts.step
