"""Options that several commands share, and what they resolve to."""

from __future__ import annotations

import sys
from dataclasses import dataclass, fields
from pathlib import Path

import click

from harness.cli.machine import Decorated, MachineOptions, declared, gathered, given_topology
from harness.errors import UsageError
from harness.execute.here import device_kind, this_machine
from harness.layout import STRATEGIES, LayoutOptions, LayoutRequest, parse_layout
from harness.layout.candidates import default_requests, with_order
from harness.layout.subset import first_devices, use_gpus
from harness.spec import Ranks
from harness.topology.model import Topology
from harness.workload import PRESETS, Workload, make_workload

RESULTS = "results"


@dataclass(frozen=True)
class WorkOptions:
    """What to train, on how many ranks of which kind, and the layouts to try, before anything is detected."""

    model: str | None = None
    batch: int | None = None
    seq_len: int | None = None
    ranks: int | None = None
    device: str = "auto"
    layout_texts: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        _ = self.requests  # a text that is no layout is refused before a cluster is asked for anything

    @property
    def requests(self) -> tuple[LayoutRequest, ...]:
        """The layouts that were named.

        Raises:
            UsageError: a text is no layout, or --layouts names none.
        """
        named = [text for texts in self.layout_texts for text in texts.split(",") if text.strip()]
        if self.layout_texts and not named:
            raise UsageError("--layouts names none; leave it out for every legal layout, or name some, e.g. ddp,fsdp")
        return tuple(parse_layout(text) for text in named)


_WORK = (
    click.option(
        "--model",
        metavar="NAME",
        help=f"{', '.join(PRESETS)}, or package.module:function. Default: tiny on CPUs, else 1b.",
    ),
    click.option(
        "--batch",
        type=click.IntRange(1),
        metavar="N",
        help="Global batch, samples a step. Default: 8 on CPUs, else one a GPU.",
    ),
    click.option(
        "--seq-len",
        type=click.IntRange(1),
        metavar="N",
        help="Tokens a sample. Default: 64 on CPUs, else 2048.",
    ),
    click.option("--ranks", type=click.IntRange(1), metavar="N", help="Ranks; default every GPU, or 4 on CPU."),
    click.option(
        "--device",
        type=click.Choice(["auto", "cpu", "cuda"]),
        default="auto",
        show_default=True,
        help="auto takes GPUs where there are any.",
    ),
    click.option(
        "--layouts",
        "layout_texts",
        multiple=True,
        metavar="LIST",
        help="What to try: strategy[:mesh][+option=value], e.g. ddp,hsdp:r2s2,fsdp+precision=bf16. Strategies: "
        f"{', '.join(STRATEGIES)}. Options: {', '.join(LayoutOptions.model_fields)}. Default: every legal one.",
    ),
)


def work_options(command: Decorated) -> Decorated:
    """--model --batch --seq-len --ranks --device --layouts, as ``wanted: WorkOptions``."""
    names = [field.name for field in fields(WorkOptions)]
    return declared(gathered(command, "wanted", WorkOptions, names), _WORK)


def results_option(command: Decorated) -> Decorated:
    """--results."""
    return click.option(
        "--results", type=click.Path(path_type=Path), default=RESULTS, show_default=True, help="Folder of all sweeps."
    )(command)


def cross_node_tp_option(command: Decorated) -> Decorated:
    """``--allow-cross-node-tp``."""
    return click.option("--allow-cross-node-tp", is_flag=True, help="Keep layouts whose tp groups cross nodes.")(
        command
    )


def json_option(command: Decorated) -> Decorated:
    """--json."""
    return click.option("--json", "as_json", is_flag=True, help="Print one JSON document, last, on stdout.")(command)


@dataclass(frozen=True)
class Work:
    """What the shared options resolve to on this machine."""

    topology: Topology
    ranks: Ranks
    workload: Workload
    requests: tuple[LayoutRequest, ...]


def resolve(wanted: WorkOptions, machine: MachineOptions, probed: Topology | None = None) -> Work:
    """Fill in defaults from the machine: on CPUs 4 ranks of ``tiny``, else every GPU and ``1b``.

    Only the devices that are used are in its topology. ``probed``: the nodes of a cluster, instead of this machine.

    Raises:
        UsageError: what was asked for is not there, or names nothing known.
    """
    search_current_folder()
    named = wanted.requests
    topology = probed or (given_topology(machine) if machine.described else this_machine(wanted.device, wanted.ranks))
    if machine.use_gpus is not None:
        topology = use_gpus(topology, machine.use_gpus)
    topology = first_devices(topology, wanted.ranks or topology.device_count)
    count, kind = topology.device_count, device_kind(topology)
    requests = with_order(named or default_requests(count), machine.order)
    small = kind == "cpu"
    workload = make_workload(
        wanted.model or ("tiny" if small else "1b"),
        wanted.batch or (8 if small else count),
        wanted.seq_len or (64 if small else 2048),
    )
    return Work(topology, Ranks(device=kind, per_node=topology.devices_per_node), workload, requests)


def search_current_folder() -> None:
    """Let a user's model be looked for in the current folder too, as `python -m` would."""
    sys.path.insert(0, str(Path.cwd()))


def sweep_folder(results: Path, name: str | None) -> Path:
    """The folder of a sweep given by name or path; the newest one when no name is given.

    Raises:
        StoreError: there is none.
    """
    from harness.errors import StoreError
    from harness.store import SweepStore, sweeps

    if name is None:
        found = sweeps(results)
        if not found:
            raise StoreError(f"no sweeps in {results}; start one with 'meshsweep run', or give --results")
        return max(found, key=lambda folder: (folder / "sweep.json").stat().st_mtime)
    path = Path(name)
    if not (path / "sweep.json").is_file() and (results / name / "sweep.json").is_file():
        path = results / name
    if not path.exists() and len(path.parts) == 1:
        path = results / name
    return SweepStore.open(path).folder
