"""Exported scripts do what they say: torchrun starts them, and the ranks build the mesh that was measured."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

from harness.layout import Layout, Mesh, parse_layout
from harness.recommend.export import Target, export
from harness.spec import Ranks, Settings, SweepPlan
from harness.topology.model import Topology
from harness.workload import make_workload

pytestmark = pytest.mark.distributed


@pytest.mark.parametrize(
    ("text", "ranks"),
    [
        ("hsdp:r2s2+precision=bf16+activation_checkpointing=full", [[0, 1], [2, 3]]),
        ("fsdp_tp:s2t2+order=tp/dp_shard/dp_replicate+reshard_after_forward=false", [[0, 2], [1, 3]]),
        ("ddp:r2", [0, 1]),
    ],
)
def test_torchrun_runs_the_script_on_its_mesh(text: str, ranks: list[object], tmp_path: Path) -> None:
    request = parse_layout(text)
    layout = Layout(strategy=request.strategy, mesh=request.mesh or Mesh(), options=request.options)
    world_size = layout.mesh.world_size
    plan = SweepPlan(
        name="here",
        created_at="",
        command="",
        topology=Topology(nodes=()),
        workload=make_workload("tiny", 8, 16),
        ranks=Ranks(device="cpu", per_node=(world_size,)),
        settings=Settings(),
        reference=Layout(strategy="single", mesh=Mesh()),
        layouts=(layout,),
    )
    script = tmp_path / "mesh.py"
    script.write_text(export("torchrun", Target(layout, plan)).text)
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(world_size)]
    done = subprocess.run([*command, str(script)], capture_output=True, text=True, timeout=120, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    found = re.search(r"mesh (\{.*?\}), ranks (\[.*\]), loss (\d+\.\d+)", done.stdout)
    assert found is not None, done.stdout
    assert ast.literal_eval(found[1]) == {a: n for a, n in layout.mesh if n > 1}
    assert ast.literal_eval(found[2]) == ranks
