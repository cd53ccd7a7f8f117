"""Submitting real jobs by a process that dies of it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.slurm.cluster import LONG_S, VirtualCluster, wait_until

pytestmark = pytest.mark.distributed

SUBMIT = """
import sys
from pathlib import Path
from harness.execute.slurm_jobs import submit_call
from harness.execute.slurm_queue import Queue
from harness.slurm.profile import SlurmOptions, read_profile
from harness.slurm.script import JobRequest

folder = Path(sys.argv[1])
request = JobRequest(name="meshsweep:orphan", folder=str(folder / "job"), nodes=1, time_min=2)
options = SlurmOptions(profile=read_profile("virtual"), nodes=1)
submit_call(folder, request, options, (Path.touch, folder / "done"), Queue())
"""


def test_a_job_whose_submitter_died_before_it_heard_of_it_still_knows_its_call(
    cluster: VirtualCluster, tmp_path: Path
) -> None:
    tools = tmp_path / "tools"
    tools.mkdir()
    sbatch = tools / "sbatch"
    sbatch.write_text('#!/bin/bash\nPATH="${PATH#*:}" sbatch "$@"\nkill -KILL $PPID\n')
    sbatch.chmod(0o755)
    folder = tmp_path / "it's a launch"
    folder.mkdir()
    env = {**cluster.env, "PATH": f"{tools}:{cluster.env['PATH']}"}
    root = Path(__file__).parents[2]
    died = subprocess.run([sys.executable, "-c", SUBMIT, str(folder)], env=env, cwd=root, timeout=LONG_S, check=False)
    assert died.returncode == -9
    wait_until((folder / "done").exists)
