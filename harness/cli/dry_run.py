"""What ``meshsweep run --dry-run`` shows: the plan, and of a sweep on Slurm its jobs as far as the nodes are known."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
from tabulate import tabulate

from harness.cli.options import WorkOptions
from harness.cli.tables import plan_text
from harness.layout.subset import described
from harness.slurm.profile import SlurmOptions
from harness.slurm.script import JobRequest, Submission
from harness.spec import SweepPlan
from harness.topology.model import Topology


def show_plan(plan: SweepPlan, as_json: bool) -> int:
    """A sweep of this host."""
    click.echo(plan_text(plan), err=as_json)
    if as_json:
        click.echo(plan.model_dump_json(indent=1))
    return 0


class Foreseen:
    """The nodes that a sweep on Slurm will have: found by its probe, or expected from what is asked for, or unknown."""

    def __init__(self, folder: Path, options: SlurmOptions, wanted: WorkOptions) -> None:
        from harness.execute.probe import found_by_probe

        self.folder, self.options = folder, options
        self.topology = found_by_probe(folder / "probe", options)
        self.probed = self.topology is not None
        if self.topology is None:
            self.topology = _expected(options, wanted)

    @property
    def basis(self) -> str:
        """What the plan rests on."""
        if self.probed:
            return "its probe is done; what follows rests on what it found"
        if self.topology is None:
            return (
                "what follows depends on the devices that it finds: a job to verify each legal layout and the "
                "reference, then a job a round in which all are timed side by side; give --ranks, or gpus_per_node in "
                "the profile, to see them here"
            )
        node = self.topology.nodes[0]
        what = f"{len(node.devices)} {'CPU ranks' if node.devices[0].kind == 'cpu' else 'GPUs'}"
        return f"what follows is expected, if the probe finds {what} on each of {self.options.nodes} nodes"


def _expected(options: SlurmOptions, wanted: WorkOptions) -> Topology | None:
    """As many devices a node as --ranks or the profile ask for; None where neither does."""
    total = options.profile.gpus if wanted.ranks is None else wanted.ranks
    count = options.profile.gpus_per_node if total is None else -(-total // options.nodes)
    if count is None:
        return None
    found = described(options.nodes, count)
    if wanted.device != "cpu":
        return found
    nodes = [
        node.model_copy(update={"devices": tuple(one.model_copy(update={"kind": "cpu"}) for one in node.devices)})
        for node in found.nodes
    ]
    return found.model_copy(update={"nodes": tuple(nodes)})


def show_jobs(foreseen: Foreseen, plan: SweepPlan | None, as_json: bool) -> int:
    """Every job that can be foreseen, in their order; the batch script of the first one of each kind."""
    jobs: list[dict[str, Any]] = []
    if not foreseen.probed:
        jobs.append(_probe_job(foreseen))
    verify = [] if plan is None else list(_verify_jobs(plan, foreseen))
    blocks = [jobs[0]["script"].rstrip("\n")] if jobs else []
    blocks.append(f"# {foreseen.basis}")
    if plan is not None:
        rows = [{"job": one["name"], "nodes": one["nodes"], "limit min": one["time_min"]} for one in verify]
        blocks += [plan_text(plan), tabulate(rows, headers="keys"), _rounds_text(plan)]
        blocks += ["first of these jobs:\n\n" + verify[0]["script"].rstrip("\n")] if verify else []
    click.echo("\n\n".join(blocks), err=as_json)
    if as_json:
        probe = {name: jobs[0][name] for name in ("script", "arguments")} if jobs else None
        document = {"sweep": foreseen.folder.name, "probe": probe, "basis": foreseen.basis, "verify_jobs": verify}
        document["plan"] = None if plan is None else plan.model_dump(mode="json")
        click.echo(json.dumps(document, indent=1))
    return 0


def _probe_job(foreseen: Foreseen) -> dict[str, Any]:
    from harness.execute.probe import probe_request

    return _job(probe_request(foreseen.folder / "probe", foreseen.folder.name, foreseen.options), foreseen.options)


def _verify_jobs(plan: SweepPlan, foreseen: Foreseen) -> Iterator[dict[str, Any]]:
    from harness.execute.slurm_jobs import launch_request
    from harness.sweep.steps import next_launches

    for launch in next_launches(plan, [], 0):
        folder = foreseen.folder / "launches" / launch.launch_id
        yield _job(launch_request(folder, launch, foreseen.options, foreseen.folder.name), foreseen.options)


def _job(request: JobRequest, options: SlurmOptions) -> dict[str, Any]:
    from harness.slurm.script import submission

    made: Submission = submission(options.profile, request, ("submitit.core._submit", request.folder), sys.executable)
    facts = {"name": request.name, "nodes": request.nodes, "time_min": request.time_min}
    return {**facts, "script": made.text, "arguments": made.arguments}


def _rounds_text(plan: SweepPlan) -> str:
    """The timing jobs; which layouts are in them is known when all are verified."""
    pack = plan.slurm.pack if plan.slurm is not None else None
    jobs = 1 if pack is None else -(-len(plan.layouts) // pack)
    least, most = plan.settings.rounds, plan.settings.rounds
    if plan.race is not None:
        least, most = plan.race.opening_rounds, plan.race.most_rounds
    rounds = f"{most} rounds" if least == most else f"{least} to {most} rounds"
    each = (
        "a job each, in which all layouts" if jobs == 1 else f"up to {jobs} jobs each, in which {pack} of the layouts"
    )
    return f"then {rounds}, {each} that passed are timed side by side"
