"""Halving the rate of the links between nodes lengthens a step by what its bytes between nodes say, within 15%.

On the virtual cluster (root, see docs/slurm-virtual-cluster.md); run alone, 40 minutes:
``pytest benchmarks/test_link_rate.py -rP``.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from harness.exposure import break_down
from harness.layout import Layout, get_strategy
from harness.predict.collectives import step_collectives
from harness.predict.wire import wire_traffic
from harness.spec import SweepPlan
from harness.store import SweepStore
from tests.slurm.cluster import VirtualCluster, bring_up, virtual_cluster

LAYOUTS = {
    4: ("ddp", "fsdp", "hsdp:r2s2", "tp", "fsdp_tp:s2t2", "fsdp1_hybrid:r2s2"),
    8: ("ddp", "fsdp", "hsdp:r2s4", "fsdp_tp:s4t2", "hsdp_tp:r2s2t2"),
}
# So slow that what the difference lasts is long beside what a busy CPU adds to a step by chance.
RATES_MBIT = (10, 5)
# A TCP segment of Ethernet carries 1,448 bytes behind 66 of headers, which take their time on the link as well.
WIRE_OVER_PAYLOAD = (1448 + 66) / 1448
TOLERANCE = 0.15


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[VirtualCluster]:
    folder = tmp_path_factory.mktemp("cluster")
    try:
        yield bring_up(folder, "--nodes", "2", "--gpus", "4", "--rate", f"{RATES_MBIT[0]}mbit", "--no-accounting")
    finally:
        virtual_cluster("down", "--dir", str(folder))


def cross_node_bytes(plan: SweepPlan, layout: Layout) -> int:
    """What the busiest node sends to the other in one step."""
    wire = wire_traffic(step_collectives(layout, plan.workload), layout, plan.topology, "gloo")
    return max(wire.node_sent_bytes)


def sweep(cluster: VirtualCluster, folder: Path, ranks: int, layouts: str, rate_mbit: int) -> SweepStore:
    """Verify runs at one rate; their exposed communication is what is looked at."""
    cluster.set_rate(f"{rate_mbit}mbit")
    name = f"{ranks}ranks-{rate_mbit}mbit"
    command = [sys.executable, "-m", "harness.cli", "run", "--cluster", "slurm", "--profile", "virtual", "--nodes", "2"]
    command += ["--device", "cpu", "--ranks", str(ranks), "--layouts", layouts, "--name", name, "--no-checkpoint"]
    command += ["--allow-cross-node-tp", "--rounds", "1", "--steps", "1", "--warmup-min", "1", "--warmup-max", "1"]
    command += ["--exposure-steps", "12", "--run-timeout", "240", "--results", str(folder)]
    root = Path(__file__).parents[1]
    env = {**os.environ, "SLURM_CONF": cluster.env["SLURM_CONF"], "PYTHONPATH": str(root)}
    subprocess.run(command, cwd=root, env=env, check=False, timeout=1500)
    return SweepStore.open(folder / name)


@pytest.mark.timeout(2400)
@pytest.mark.parametrize("ranks", [4, 8])
def test_halving_the_rate_lengthens_exposed_communication_by_the_accounted_bytes(
    ranks: int, cluster: VirtualCluster, tmp_path: Path
) -> None:
    layouts = os.environ.get("LAYOUTS") or ",".join(LAYOUTS[ranks])
    exposed_s: dict[str, list[float]] = {}
    expected_s: dict[str, float] = {}
    for rate_mbit in RATES_MBIT:
        store = sweep(cluster, tmp_path, ranks, layouts, rate_mbit)
        plan = store.plan()
        for record in store.records():
            if record.exposure is None:
                continue
            layout = record.spec.layout
            found = break_down(record.exposure, get_strategy(layout.strategy).axes)
            exposed_s.setdefault(layout.text, []).append(found.exposed_s)
            per_mbit_s = 8 * WIRE_OVER_PAYLOAD * cross_node_bytes(plan, layout) / 1e6
            expected_s[layout.text] = per_mbit_s / RATES_MBIT[1] - per_mbit_s / RATES_MBIT[0]
    off = {}
    for text, (fast_s, slow_s) in exposed_s.items():
        off[text] = (slow_s - fast_s) / expected_s[text] - 1
        rates = f"{fast_s * 1e3:.1f} ms at {RATES_MBIT[0]} Mbit/s, {slow_s * 1e3:.1f} ms at {RATES_MBIT[1]} Mbit/s"
        longer = f"longer by {1e3 * (slow_s - fast_s):.1f} ms, by its bytes {expected_s[text] * 1e3:.1f} ms"
        print(f"{text}: exposed {rates}; {longer} ({off[text]:+.1%})")
    assert len(off) == len(layouts.split(","))
    assert all(abs(one) <= TOLERANCE for one in off.values()), off
