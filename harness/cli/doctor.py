"""``meshsweep doctor``: the daily inspection."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from harness.cli.machine import files_option
from harness.cli.options import json_option
from harness.cli.output import Output
from harness.errors import TopologyError, UsageError

if TYPE_CHECKING:
    from harness.doctor import Snapshot
    from harness.mesh import MeshContract


@click.command()
@click.argument("more", nargs=-1, type=click.Path(path_type=Path), metavar="[FILE]...")
@files_option("Saved snapshots or tool outputs, one or more a host, instead of this machine.")
@click.option("--contract", type=click.Path(path_type=Path), metavar="FILE", help="Compare with this mesh contract.")
@click.option("--profile", metavar="NAME", help="Look at nodes through a Slurm job of this site profile.")
@click.option("--nodes", type=click.IntRange(1), metavar="N", help="With --profile: how many nodes; default 1.")
@click.option("--nodelist", metavar="HOSTS", help="With --profile: which nodes.")
@click.option("--save", type=Output(), metavar="FILE", help="Save this machine's snapshot as JSON.")
@json_option
def doctor(
    more: tuple[Path, ...],
    files: tuple[Path, ...],
    contract: Path | None,
    profile: str | None,
    nodes: int | None,
    nodelist: str | None,
    save: Path | None,
    as_json: bool,
) -> int:
    """Inspect GPUs, links and versions of this machine, or of many from files saved on each.

    Exit codes: 0 clean; 1 something is wrong, one line each with its remedy; 2 it could not be looked at.

    \b
    Examples:
      meshsweep doctor --contract mesh.toml
      srun --ntasks-per-node=1 bash -c 'meshsweep doctor --save $SLURMD_NODENAME.json'
      meshsweep doctor --contract mesh.toml --from node0.json node1.json
      meshsweep doctor --contract mesh.toml --profile mysite --nodes 16
      nvidia-smi -q > node0.q.txt; meshsweep doctor --from node0.q.txt
    """
    from harness.doctor import inspect, read_snapshots
    from harness.doctor.checks import counted
    from harness.doctor.look import look
    from harness.mesh import read_contract
    from harness.store import write_atomic

    paths = (*files, *more)
    if (paths or profile) and save is not None:
        raise UsageError("--save is for this machine's snapshot; leave out --from and --profile")
    if paths and profile:
        raise UsageError("--from reads saved files and --profile asks a cluster; give one of them")
    if profile is None and (nodes or nodelist):
        raise UsageError("--nodes and --nodelist go with --profile; add it, or leave them out")
    expected = None if contract is None else read_contract(contract)
    if profile is not None:
        snapshots = _on_nodes(profile, nodes or 1, nodelist)
    else:
        snapshots = read_snapshots(paths) if paths else (look(),)
    if save is not None:
        write_atomic(save, snapshots[0].model_dump_json(indent=1, exclude_none=True) + "\n")
        click.echo(f"saved {save}", err=True)
    _refuse_the_unseen(snapshots, contract, expected)
    faults = inspect(snapshots, expected, whole=bool(paths or profile))
    for fault in faults:
        click.echo(fault.text, err=as_json)
    if not faults:
        gpus = sum(len(one.gpus) for one in snapshots)
        click.echo(f"{counted(len(snapshots), 'node')}, {counted(gpus, 'GPU')}: nothing wrong", err=as_json)
    if as_json:
        document = {
            "snapshots": [one.model_dump(mode="json", exclude_none=True) for one in snapshots],
            "findings": [{**fault.model_dump(), "text": fault.text} for fault in faults],
        }
        click.echo(json.dumps(document, indent=1))
    return int(bool(faults))


def _on_nodes(profile: str, nodes: int, nodelist: str | None) -> tuple[Snapshot, ...]:
    """What every node of one Slurm job sees. The job's files lie in this folder while it runs, for nodes to see."""
    from harness.doctor import read_snapshots
    from harness.execute.probe import look_on_nodes
    from harness.slurm.profile import SlurmOptions, read_profile

    options = SlurmOptions(profile=read_profile(profile), nodes=nodes, nodelist=nodelist)
    with tempfile.TemporaryDirectory(prefix=".doctor-", dir=Path.cwd()) as folder:
        return read_snapshots(look_on_nodes(Path(folder), options))


def _refuse_the_unseen(snapshots: Sequence[Snapshot], contract: Path | None, expected: MeshContract | None) -> None:
    """
    Raises:
        UsageError: the contract is of CPU slots.
        TopologyError: no machine's GPUs could be looked at, which is no finding about them.
    """
    if expected is not None and all(device.kind == "cpu" for host in expected.hosts for device in host.devices):
        raise UsageError(
            f"{contract} lists CPU slots, and doctor looks at GPUs; 'meshsweep mesh check {contract}' checks CPU slots"
        )
    if any(one.gpus or one.pci_gpus for one in snapshots):
        return
    if expected is None or all(one.blind for one in snapshots):
        said = "; ".join(dict.fromkeys(problem for one in snapshots for problem in one.problems))
        raise TopologyError(
            f"could not look at any GPU ({said or 'no source names one'}); run it on a GPU node where the driver is "
            "loaded, or give outputs saved there with --from"
        )
