"""Options that choose a machine other than this one, or a part of it."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from harness.errors import UsageError
from harness.layout import AXES
from harness.layout.order import parse_order
from harness.layout.subset import described, filled
from harness.topology import cpulist
from harness.topology.model import Topology

Decorated = Callable[..., Any]


@dataclass(frozen=True)
class MachineOptions:
    """What the machine options say, before anything is detected."""

    files: tuple[Path, ...] = ()
    nodes: int | None = None
    gpus_per_node: int | None = None
    use_gpus: str | None = None
    order: tuple[str, ...] = AXES

    @property
    def described(self) -> bool:
        """Whether a machine is given, so that this one need not be asked."""
        return bool(self.files) or self.nodes is not None or self.gpus_per_node is not None


def gathered(command: Decorated, into: str, kind: Callable[..., object], names: Sequence[str]) -> Decorated:
    """``command``, to which the options ``names`` come as one value, ``kind(**options)``, in its parameter ``into``."""

    @functools.wraps(command)
    def with_value(**options: Any) -> Any:
        chosen = {name: options.pop(name) for name in names}
        return command(**{into: kind(**chosen)}, **options)

    return with_value


def files_option(text: str, *names: str) -> Decorated:
    """``--from FILE``, also by other ``names``, as often as there are files; ``text`` is its help."""
    return click.option(
        "--from", *names, "files", multiple=True, type=click.Path(path_type=Path), metavar="FILE", help=text
    )


_DEVICES = (
    click.option("--use-gpus", metavar="LIST", help="Only these: 0-3,5 on every node, or node1:0-3,node2:0-3."),
    click.option(
        "--order",
        default=",".join(AXES),
        show_default=True,
        metavar="AXES",
        help="Axes outermost first; the last one runs fastest over devices.",
    ),
)
_MACHINES = (
    files_option("Saved listings of another machine; repeat for more.", "--topology"),
    click.option("--nodes", type=click.IntRange(1), metavar="N", help="Describe a cluster of N alike nodes."),
    click.option("--gpus-per-node", type=click.IntRange(1), metavar="G", help="GPUs of each such node."),
)


def declared(command: Decorated, options: Sequence[Decorated]) -> Decorated:
    """``command`` with ``options``, which its help lists in this order."""
    for option in reversed(options):
        command = option(command)
    return command


def machine_options(command: Decorated) -> Decorated:
    """--from --nodes --gpus-per-node --use-gpus --order, as ``machine: MachineOptions``."""
    names = ("files", "nodes", "gpus_per_node", "use_gpus", "order")
    return declared(gathered(command, "machine", make_options, names), (*_MACHINES, *_DEVICES))


def device_options(command: Decorated) -> Decorated:
    """--use-gpus --order, as ``machine: MachineOptions``."""
    return declared(gathered(command, "machine", make_options, ("use_gpus", "order")), _DEVICES)


def make_options(
    use_gpus: str | None,
    order: str,
    files: tuple[Path, ...] = (),
    nodes: int | None = None,
    gpus_per_node: int | None = None,
) -> MachineOptions:
    """The options as one value.

    Raises:
        UsageError: --order is no order.
    """
    return MachineOptions(files, nodes, gpus_per_node, use_gpus, parse_order(order))


def given_topology(options: MachineOptions) -> Topology:
    """The machine that the options describe, before --use-gpus.

    Raises:
        UsageError: they contradict each other, or it has no devices.
        TopologyError: a file cannot be read.
    """
    if options.nodes is not None:
        if options.files or options.gpus_per_node is None:
            raise UsageError("--nodes describes a cluster with --gpus-per-node and without --from; give these two")
        return described(options.nodes, options.gpus_per_node)
    if not options.files:
        raise UsageError("--gpus-per-node needs --nodes, or --from with a file that names nodes, such as topology.conf")
    from harness.topology.detect import read_files

    topology = read_files(options.files).topology
    if options.gpus_per_node is not None:
        topology = filled(topology, options.gpus_per_node)
    if not topology.device_count:
        raise UsageError("the files name no devices; add --gpus-per-node, or a listing such as `nvidia-smi topo -m`")
    return topology


def gap_notes(topology: Topology) -> tuple[str, ...]:
    """A note for each node whose device numbers have a gap, as when a GPU is missing."""
    notes = []
    for node in topology.nodes:
        indices = sorted(device.index for device in node.devices)
        gap = set(range(max(indices, default=0))) - set(indices)
        if gap:
            usable = indices[: 1 << (len(indices).bit_length() - 1)]
            notes.append(
                f"{node.host} has devices {cpulist.render(indices)} and lacks {cpulist.render(gap)}; "
                f"--use-gpus {cpulist.render(usable)} takes {len(usable)} of them"
            )
    return tuple(notes)
