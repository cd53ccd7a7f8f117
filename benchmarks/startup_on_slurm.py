"""How long a launch takes to get going on Slurm, beside importing torch in as many tasks of a job on the same nodes.

    python -m benchmarks.startup_on_slurm --profile virtual --nodes 2 --ranks 8 --repeats 5

The two kinds of job alternate. One notes the time around ``srun python -c "import torch"``; the other is a launch of
meshsweep, from the start of its job's script to all ranks in their process group, and to the first timed step.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median

from harness.execute.collect import collect
from harness.execute.slurm_jobs import submit_launch
from harness.execute.slurm_queue import Queue
from harness.launch.folder import write_launch
from harness.layout import Layout, Mesh
from harness.slurm import commands
from harness.slurm.profile import SlurmOptions, read_profile
from harness.spec import Launch, Ranks, RunSpec, Settings
from harness.workload import PRESETS, Workload

LIMIT_S = 300.0
POLL_S = 0.2


def import_alone_s(folder: Path, options: SlurmOptions, ranks: int) -> float:
    """Seconds of importing torch in ``ranks`` tasks of one job."""
    out = folder / "import"
    gpus = [f"--gpus-per-node={options.profile.gpus_per_node}"] if options.profile.gpus_per_node else []
    alone = f'srun --ntasks={ranks} --cpu-bind=none {sys.executable} -c "import torch"'
    script = folder / "import.sh"
    script.write_text(
        f"#!/bin/bash\ndate +%s.%N >{out}.begin\n{alone}\ndate +%s.%N >{out}.now\nmv {out}.now {out}.end\n"
    )
    subprocess.run(
        ["sbatch", f"--nodes={options.nodes}", f"--ntasks={ranks}", *gpus, "--output=/dev/null", str(script)],
        check=True,
        capture_output=True,
        env=commands.clean_environ(),
    )
    wait_for(Path(f"{out}.end"))
    begin, end = (float(Path(f"{out}.{name}").read_text()) for name in ("begin", "end"))
    return end - begin


def launch_s(folder: Path, options: SlurmOptions, ranks: int) -> tuple[float, float]:
    """Seconds until all ranks of a launch were in their process group, and until the first timed step."""
    spread = Ranks(device="cpu", per_node=(ranks // options.nodes,) * options.nodes)
    settings = Settings(timed_steps=2, warmup_min_steps=1, warmup_max_steps=1, run_timeout_s=LIMIT_S)
    workload = Workload(model=PRESETS["tiny"], global_batch=ranks, seq_len=16)
    layout = Layout(strategy="ddp", mesh=Mesh(dp_replicate=ranks))
    run = RunSpec(layout=layout, workload=workload, ranks=spread, settings=settings, purpose="time")
    launch = Launch(launch_id=folder.name, runs=(run,), design="launches")
    write_launch(folder, launch)
    job = submit_launch(folder, launch, options, {}, Queue(), "startup")
    deadline = time.monotonic() + LIMIT_S
    while job.poll() and time.monotonic() < deadline:
        time.sleep(POLL_S)
    (record,) = collect(folder, {})
    startup = record.startup
    assert startup is not None and startup.ranks_s is not None and startup.first_timed_s is not None, record.failure
    return startup.ranks_s, startup.first_timed_s


def wait_for(path: Path) -> None:
    deadline = time.monotonic() + LIMIT_S
    while not path.exists():
        if time.monotonic() > deadline:
            raise TimeoutError(f"{path} did not come within {LIMIT_S:.0f} s")
        time.sleep(POLL_S)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--profile", default="virtual")
    parser.add_argument("--nodes", type=int, default=2)
    parser.add_argument("--ranks", type=int, default=8)
    parser.add_argument("--repeats", type=int, default=5)
    arguments = parser.parse_args()
    options = SlurmOptions(profile=read_profile(arguments.profile), nodes=arguments.nodes)
    root = Path(tempfile.mkdtemp(prefix="startup-"))
    rows = []
    print("import torch   ranks ready   first timed step   ranks / import")
    for repeat in range(arguments.repeats):
        folder = root / f"{repeat:02d}"
        folder.mkdir()
        alone = import_alone_s(folder, options, arguments.ranks)
        ready, timed = launch_s(folder, options, arguments.ranks)
        rows.append((alone, ready, timed))
        print(f"{alone:11.2f} s {ready:11.2f} s {timed:16.2f} s {ready / alone:16.2f}", flush=True)
    ratios = [ready / alone for alone, ready, _ in rows]
    print(f"median of ranks / import: {median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f})")
    shutil.rmtree(root)


if __name__ == "__main__":
    main()
