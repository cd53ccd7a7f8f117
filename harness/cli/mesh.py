"""``meshsweep mesh``: write, show and check the mesh contract."""

from __future__ import annotations

import json
import os
from pathlib import Path

import click

from harness.cli.group import WholeGroup
from harness.cli.machine import MachineOptions, files_option, gap_notes, given_topology, machine_options
from harness.cli.options import json_option
from harness.cli.output import Output
from harness.errors import UsageError
from harness.execute.here import CPU_RANKS
from harness.topology.model import Topology

CONTRACT = "mesh.toml"


@click.group(cls=WholeGroup)
def mesh() -> None:
    """The mesh contract: a small TOML file that every job checks on every rank at start-up."""


@mesh.command()
@machine_options
@click.option("--mesh", "signature", metavar="MESH", help="Shape, e.g. r2s4t1; default follows from the machine.")
@click.option("--name", default="default", show_default=True, help="The contract's name.")
@click.option("--any-host", is_flag=True, help="Leave out host names, for jobs that land on other nodes each time.")
@click.option("--out", type=Output(), default=CONTRACT, show_default=True, help="File to write.")
@click.option("--force", is_flag=True, help="Replace the file if it exists.")
@json_option
def init(
    machine: MachineOptions,
    signature: str | None,
    name: str,
    any_host: bool,
    out: Path,
    force: bool,
    as_json: bool,
) -> int:
    """Write a contract from this machine, from saved listings or from a described cluster.

    \b
    Examples:
      meshsweep mesh init
      meshsweep mesh init --from node1.txt --from node2.txt --mesh r2s8
      meshsweep mesh init --nodes 2 --gpus-per-node 4 --any-host --out two-by-four.toml
    """
    from harness.layout import parse_mesh
    from harness.layout.subset import grouped, use_gpus
    from harness.mesh import contract_mesh, contract_toml, make_contract
    from harness.mesh.show import contract_text
    from harness.store import write_atomic

    if out.exists() and not force:
        raise UsageError(f"{out} exists; give another --out, or --force to replace it")
    topology = _machine(machine)
    topology = grouped(topology) if machine.use_gpus is None else use_gpus(topology, machine.use_gpus)
    shape = parse_mesh(signature) if signature else contract_mesh(topology)
    contract = make_contract(topology, shape, machine.order, name=name, any_host=any_host)
    write_atomic(out, contract_toml(contract))
    click.echo(contract_text(contract), err=as_json)
    for host in contract.hosts:
        indices = [device.index for device in host.devices]
        if indices != list(range(len(indices))):
            visible = ",".join(map(str, indices))
            click.echo(f"note: {host.host} needs CUDA_VISIBLE_DEVICES={visible}", err=as_json)
    for note in gap_notes(topology) if machine.use_gpus is None else ():
        click.echo(f"note: {note}", err=as_json)
    click.echo(f"\nwrote {out}; put it under version control", err=as_json)
    if as_json:
        click.echo(json.dumps({"file": str(out), "digest": contract.digest, **contract.model_dump(mode="json")}))
    return 0


@mesh.command()
@click.argument("file", type=click.Path(path_type=Path), default=CONTRACT)
@click.option("--picture", type=Output(), metavar="PNG", help="Draw it, too.")
@json_option
def show(file: Path, picture: Path | None, as_json: bool) -> int:
    """Show which rank lies where: groups of each axis, then coordinates, host, device and links of every rank.

    \b
    Examples:
      meshsweep mesh show
      meshsweep mesh show two-by-four.toml --picture mesh.png
    """
    from harness.mesh import read_contract
    from harness.mesh.show import contract_text, draw, rank_rows

    contract = read_contract(file)
    click.echo(contract_text(contract), err=as_json)
    if picture is not None:
        draw(contract, picture)
        click.echo(f"\npicture: {picture}", err=as_json)
    if as_json:
        groups = {axis: list(contract.mesh.groups(axis)) for axis in contract.used_axes()}
        document = {"name": contract.name, "digest": contract.digest, "groups": groups, "ranks": rank_rows(contract)}
        click.echo(json.dumps(document, indent=1))
    return 0


@mesh.command()
@click.argument("file", type=click.Path(path_type=Path), default=CONTRACT)
@files_option("Saved listings of every host instead of this machine; repeat for more.")
@json_option
def check(file: Path, files: tuple[Path, ...], as_json: bool) -> int:
    """Compare this machine, or saved listings, with a contract.

    Exit codes: 0 it is as the contract says; 1 it is not, one line a finding; 2 it could not be looked at.

    \b
    Examples:
      meshsweep mesh check
      meshsweep mesh check two-by-four.toml --from node0.txt --from node1.txt
    """
    from harness.mesh import check_machine, read_contract

    contract = read_contract(file)
    topology = _machine(MachineOptions(files=files), slots=max(len(host.devices) for host in contract.hosts))
    visible = None if files else os.environ.get("CUDA_VISIBLE_DEVICES")
    findings = check_machine(contract, topology, visible, whole=bool(files))
    for finding in findings:
        click.echo(finding.text, err=as_json)
    if not findings:
        hosts = ", ".join(node.host for node in topology.nodes)
        click.echo(f"{hosts}: as contract {contract.name} ({contract.digest}) says", err=as_json)
    if as_json:
        click.echo(json.dumps({"digest": contract.digest, "findings": [f.model_dump() for f in findings]}, indent=1))
    return int(bool(findings))


def _machine(options: MachineOptions, slots: int | None = None) -> Topology:
    """The machine of the options, else this one; a CPU-only host has ``slots`` rank slots."""
    if options.described:
        return given_topology(options)
    from harness.topology import cpu
    from harness.topology.detect import detect

    topology = detect()
    if all(device.kind == "cpu" for node in topology.nodes for device in node.devices):
        return cpu.read(slots=slots or CPU_RANKS)
    return topology
