"""Options that send a sweep to a cluster, its probe, and the command that drives it in the background."""

from __future__ import annotations

import contextlib
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, Any

import click

from harness.cli.machine import Decorated, declared
from harness.cli.options import WorkOptions
from harness.errors import StoreError, UsageError
from harness.slurm.profile import SlurmOptions, read_profile
from harness.store import is_held, take_lock, write_atomic
from harness.sweep.drive import CANCEL
from harness.topology import hostlist
from harness.topology.model import Topology
from harness.topology.speed import speed_lines

COMMAND = "command.json"  # what started a sweep, so that one whose probe was cut short can be started again
DETACHED_LOG = "detached.log"


def cluster_options(command: Decorated) -> Decorated:
    """--cluster and what goes with it."""
    slurm_only = "With --cluster slurm: "
    return declared(
        command,
        (
            click.option("--cluster", type=click.Choice(["local", "slurm"]), default="local", show_default=True),
            click.option(
                "--profile", metavar="NAME", help=slurm_only + "site profile, slurm/profiles/NAME.toml or a file."
            ),
            click.option(
                "--nodes", type=click.IntRange(1), metavar="N", help=slurm_only + "nodes of each job; default 1."
            ),
            click.option(
                "--pack",
                type=click.IntRange(1),
                metavar="K",
                help=slurm_only + "layouts timed side by side in one job.",
            ),
            click.option(
                "--max-jobs",
                type=click.IntRange(1),
                metavar="N",
                help=slurm_only + "jobs at a time. Default: all; 1 where jobs leave room on their nodes.",
            ),
            click.option(
                "--depend", metavar="DEPENDENCY", help=slurm_only + "as sbatch --dependency: afterok:123, or 123."
            ),
            click.option("--exclude", metavar="HOSTS", help=slurm_only + "nodes not to use."),
            click.option("--nodelist", metavar="HOSTS", help=slurm_only + "nodes to use."),
            click.option(
                "--launcher",
                type=click.Choice(["agent", "torchrun"]),
                default="agent",
                help=slurm_only + "starts ranks.",
            ),
            click.option(
                "--debug-comms",
                is_flag=True,
                help="Keep what NCCL or gloo says of its communicators, a log a rank and cell, and report transports.",
            ),
            click.option("--detach", is_flag=True, help="Go on in the background; print the sweep's name and return."),
        ),
    )


def slurm_options(values: Mapping[str, Any]) -> SlurmOptions | None:
    """The options as one value; None for this host.

    Raises:
        UsageError: --profile is missing, or an option belongs to --cluster slurm.
    """
    names = ("profile", "nodes", "pack", "max_jobs", "depend", "exclude", "nodelist")
    given = [name for name in names if values[name] is not None]
    if values["cluster"] != "slurm":
        if given or values["launcher"] != "agent":
            option = (given[0] if given else "launcher").replace("_", "-")
            raise UsageError(f"--{option} goes with --cluster slurm; add that, or take it out")
        return None
    if values["profile"] is None:
        raise UsageError("--cluster slurm needs --profile; copy slurm/profiles/template.toml and name it")
    depend = values["depend"]
    return SlurmOptions(
        profile=read_profile(values["profile"]),
        nodes=values["nodes"] or 1,
        pack=values["pack"],
        max_jobs=values["max_jobs"],
        depend=f"afterok:{depend}" if depend and depend.isdigit() else depend,
        exclude=values["exclude"],
        nodelist=values["nodelist"],
        launcher=values["launcher"],
    )


def default_name(model: str | None, options: SlurmOptions | None) -> str:
    """A name for a sweep whose ranks are not known yet."""
    what = re.sub(r"[^A-Za-z0-9._-]+", "-", model or "default").strip("-")[:60]
    return f"{datetime.now(UTC):%Y%m%d-%H%M%S}-{what}-n{options.nodes if options else 1}"


def probed(folder: Path, options: SlurmOptions, wanted: WorkOptions) -> tuple[Topology, SlurmOptions]:
    """The nodes that a probe job found, and the options with their names where one node is not like another."""
    context = click.get_current_context()
    write_atomic(folder / COMMAND, json.dumps(context.params, default=str))
    context.with_resource(_held(folder / COMMAND))
    return look_at_nodes(folder, options, wanted)


def look_at_nodes(folder: Path, options: SlurmOptions, wanted: WorkOptions) -> tuple[Topology, SlurmOptions]:
    """The same for a command that is simply given again where it was cut short."""
    from harness.execute.probe import probe

    (folder / CANCEL).unlink(missing_ok=True)
    click.echo(f"sweep {folder.name}: a probe job looks at {options.nodes} nodes", err=True)
    slots = None if wanted.ranks is None or wanted.device == "cuda" else -(-wanted.ranks // options.nodes)
    found = probe(folder / "probe", folder.name, options, wanted.device, slots, stop=(folder / CANCEL).exists)
    for node in found.nodes:
        click.echo(f"  {node.host}: {len(node.devices)} {node.devices[0].name or node.devices[0].kind}", err=True)
    for line in speed_lines(found.measured):
        click.echo(f"  {line}", err=True)
    if len(set(found.devices_per_node)) > 1 and options.nodelist is None:
        hosts = hostlist.compress([node.host for node in found.nodes])
        options = options.model_copy(update={"nodelist": hosts})
    return found, options


def started_before_its_plan(folder: Path) -> dict[str, Any] | None:
    """The parameters of a ``run`` that ended before its probe did; None for anything else."""
    path = folder / COMMAND
    if (folder / "sweep.json").exists() or not path.is_file():
        return None
    try:
        saved: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        contract = saved["contract_file"]
        paths = {"results": folder.parent, "contract_file": Path(contract) if contract else None}
        return {**saved, **paths, "layout_texts": tuple(saved["layout_texts"]), "name": folder.name, "detach": False}
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise StoreError(f"{path} cannot be read ({error}); start the sweep again with 'meshsweep run'") from error


def without_plan(results: Path, sweep: str | None) -> Path | None:
    """The folder of a sweep that was started and whose probe has not told yet what there is; None for any other.

    ``sweep``: its name or path; None: the newest one, if no sweep with a plan is newer.
    """
    if sweep is not None:
        folders = [folder for folder in (Path(sweep), results / sweep) if _begun(folder) is not None]
        return folders[0] if folders and not (folders[0] / "sweep.json").exists() else None
    begun = {path.parent: at for path in results.glob(f"*/{COMMAND}") if (at := _begun(path.parent)) is not None}
    begun |= {path.parent: at for path in results.glob(f"*/{DETACHED_LOG}") if (at := _begun(path.parent)) is not None}
    newest = max(begun, key=lambda folder: begun[folder], default=None)
    if newest is None or (newest / "sweep.json").exists():
        return None
    planned = max((path.stat().st_mtime for path in results.glob("*/sweep.json")), default=0.0)
    return newest if begun[newest] > planned else None


def _begun(folder: Path) -> float | None:
    """When a sweep on a cluster was started there, Unix seconds; None where none was."""
    times = [path.stat().st_mtime for name in (COMMAND, DETACHED_LOG) if (path := folder / name).is_file()]
    return min(times, default=None)


def waiting_text(folder: Path) -> str:
    """What is known of such a sweep."""
    from harness.execute.probe import probe_state

    lines = [f"sweep {folder.name} has no plan yet: {probe_state(folder / 'probe')}"]
    with contextlib.suppress(OSError):
        said = (folder / DETACHED_LOG).read_text(encoding="utf-8", errors="replace").strip().splitlines()
        lines += [f"its output: {said[-1]}"] if said else []
    if starting(folder):
        lines.append("it is being started")
    elif (folder / COMMAND).is_file():
        lines.append(f"nothing drives it; 'meshsweep resume {folder.name}' starts it again")
    else:
        lines.append(f"nothing drives it; give 'meshsweep run' again, with --name {folder.name} to start it anew")
    return "\n".join(lines)


def starting(folder: Path) -> bool:
    """Whether a process that is to plan the sweep lives."""
    return any(is_held(folder / name) for name in (COMMAND, DETACHED_LOG))


@contextlib.contextmanager
def _held(path: Path) -> Iterator[IO[bytes]]:
    """The file, locked as long as this process, or one that has inherited it, keeps it open.

    Raises:
        StoreError: another process holds it.
    """
    with path.open("ab") as file:
        if not take_lock(file):
            raise StoreError(
                f"another meshsweep starts {path.parent}; watch it with 'meshsweep status', or end it first"
            )
        yield file


def detach(name: str, results: Path, arguments: Sequence[str]) -> Path:
    """Start the same command without ``--detach`` in a session of its own; the file that takes its output."""
    folder = results / name
    if (folder / "sweep.json").exists():
        raise StoreError(f"sweep {name} exists in {results}; choose another --name or use 'meshsweep resume'")
    folder.mkdir(parents=True, exist_ok=True)
    log = folder / DETACHED_LOG
    named = any(one == "--name" or one.startswith("--name=") for one in arguments)
    command = [sys.executable, "-m", "harness.cli", *(one for one in arguments if one != "--detach")]
    command += [] if named else ["--name", name]
    # it inherits the lock with its output
    with _held(log) as file:
        subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=file,
            start_new_session=True,
            env=dict(os.environ),
        )
    return log
