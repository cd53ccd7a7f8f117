"""Options that choose a machine other than this one, or a part of it, and the tables of placements."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from harness.cli.options import Decorated, Work, resolve
from harness.errors import UsageError
from harness.layout import AXES
from harness.layout.order import parse_order
from harness.layout.subset import described, filled, first_devices, use_gpus
from harness.spec import DeviceKind, Ranks
from harness.topology import cpulist
from harness.topology.model import Topology

if TYPE_CHECKING:
    from harness.layout.candidates import Candidates

_FOLDED = 6


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


def machine_options(command: Decorated) -> Decorated:
    """--from --nodes --gpus-per-node --use-gpus --order."""
    for option in reversed(
        (
            click.option(
                "--from",
                "files",
                multiple=True,
                type=click.Path(path_type=Path),
                metavar="FILE",
                help="Saved listings of another machine; repeat for more.",
            ),
            click.option("--nodes", type=click.IntRange(1), metavar="N", help="Describe a cluster of N alike nodes."),
            click.option("--gpus-per-node", type=click.IntRange(1), metavar="G", help="GPUs of each such node."),
            click.option("--use-gpus", metavar="LIST", help="Only these: 0-3,5 on every node, or node1:0-3,node2:0-3."),
            click.option(
                "--order",
                default=",".join(AXES),
                show_default=True,
                metavar="AXES",
                help="Axes outermost first; the last one runs fastest over devices.",
            ),
        )
    ):
        command = option(command)
    return command


def make_options(
    files: tuple[Path, ...], nodes: int | None, gpus_per_node: int | None, use_gpus: str | None, order: str
) -> MachineOptions:
    """The options as one value.

    Raises:
        UsageError: they contradict each other or --order is no order.
    """
    if nodes is not None and (files or gpus_per_node is None):
        raise UsageError("--nodes describes a cluster with --gpus-per-node and without --from; give these two")
    if gpus_per_node is not None and nodes is None and not files:
        raise UsageError("--gpus-per-node needs --nodes, or --from with a file that names nodes, such as topology.conf")
    return MachineOptions(files, nodes, gpus_per_node, use_gpus, parse_order(order))


def given_topology(options: MachineOptions) -> Topology:
    """The machine that the options describe, before --use-gpus.

    Raises:
        UsageError: it has no devices.
        TopologyError: a file cannot be read.
    """
    if options.nodes is not None:
        return described(options.nodes, options.gpus_per_node or 1)
    from harness.topology.detect import read_files

    topology = read_files(options.files).topology
    if options.gpus_per_node is not None:
        topology = filled(topology, options.gpus_per_node)
    if not topology.device_count:
        raise UsageError("the files name no devices; add --gpus-per-node, or a listing such as `nvidia-smi topo -m`")
    return topology


def resolve_on(
    options: MachineOptions,
    model: str | None,
    batch: int | None,
    seq_len: int | None,
    ranks: int | None,
    device: str,
    layout_texts: tuple[str, ...],
) -> Work:
    """As ``resolve``, on the machine that the options choose; only the devices that are used are in its topology.

    Raises:
        UsageError: what was asked for is not there, or names nothing known.
    """
    if not options.described and options.use_gpus is None:
        work = resolve(model, batch, seq_len, ranks, device, layout_texts)
        return Work(first_devices(work.topology, work.ranks.world_size), work.ranks, work.workload, work.requests)
    here = options if options.described else None
    topology = given_topology(here) if here else resolve(None, None, None, None, device, ()).topology
    if options.use_gpus is not None:
        topology = use_gpus(topology, options.use_gpus)
    topology = first_devices(topology, ranks or topology.device_count)
    per_node = topology.devices_per_node
    kind = device_kind(topology)
    # with a model and a batch given, `resolve` fills in nothing that depends on this machine
    model = model or ("tiny" if kind == "cpu" else "1b")
    batch = batch or (8 if kind == "cpu" else sum(per_node))
    asked = resolve(model, batch, seq_len or (64 if kind == "cpu" else 2048), 1, "cpu", layout_texts)
    return Work(topology, Ranks(device=kind, per_node=per_node), asked.workload, asked.requests)


def device_kind(topology: Topology) -> DeviceKind:
    """What torch calls the devices: ``cpu`` if all are CPU rank slots, else ``cuda``."""
    kinds = {device.kind for node in topology.nodes for device in node.devices}
    return "cpu" if kinds == {"cpu"} else "cuda"


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


def placements_text(found: Candidates) -> str:
    """Legal layouts with where each lies, then excluded ones by rule, then notes."""
    from tabulate import tabulate

    rows = [
        {
            "layout": layout.text,
            **dict(zip(AXES, layout.mesh.sizes, strict=True)),
            "node-aligned": "yes" if placement.node_aligned else "no",
            "placement": placement.remark,
        }
        for layout, placement in zip(found.layouts, found.placements, strict=True)
    ]
    lines = [tabulate(rows, headers="keys")]
    by_rule: dict[str, list[str]] = {}
    for one in found.excluded:
        by_rule.setdefault(one.rule, []).append(f"  {one.layout.text}: {one.reason}")
    for rule, reasons in by_rule.items():
        lines += ["", f"excluded by {rule}:", *reasons[:_FOLDED]]
        if len(reasons) > _FOLDED:
            lines.append(f"  and {len(reasons) - _FOLDED} more; --json shows all")
    lines += ["", *(f"note: {note}" for note in found.notes)] if found.notes else []
    return "\n".join(lines)


def placements_json(found: Candidates) -> dict[str, Any]:
    """Layouts with their placement, exclusions, notes."""
    return {
        "layouts": [
            {**layout.model_dump(mode="json"), "text": layout.text, "placement": placement.model_dump(mode="json")}
            for layout, placement in zip(found.layouts, found.placements, strict=True)
        ],
        "excluded": [
            {"layout": e.layout.model_dump(mode="json"), "rule": e.rule, "reason": e.reason} for e in found.excluded
        ],
        "notes": list(found.notes),
    }
