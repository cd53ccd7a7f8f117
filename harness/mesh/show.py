"""A contract as tables and as a picture: coordinates, host, device and link class of every rank."""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tabulate import tabulate

from harness.errors import StoreError, UsageError
from harness.layout import AXES
from harness.mesh.contract import ANY_HOST, MeshContract
from harness.topology import hostlist

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MAX_DRAWN = 512
_MAX_GROUPS = 32
_CELL_IN = 0.62
_COLUMNS = 16  # devices side by side; a host with more takes several lines


def host_names(contract: MeshContract) -> tuple[str, ...]:
    """A name for each host; the hosts that may be any are numbered."""
    return tuple(f"any host {at}" if host.host == ANY_HOST else host.host for at, host in enumerate(contract.hosts))


def rank_rows(contract: MeshContract) -> list[dict[str, Any]]:
    """A row a rank: coordinate on each axis, host, local rank, device, and the link class of its group per axis."""
    names = host_names(contract)
    places = contract.slots()
    used = contract.used_axes()
    across = {axis: _across(contract, axis) for axis in used}
    rows = []
    for rank, slot in enumerate(places):
        row: dict[str, Any] = {"rank": rank}
        row.update(dict(zip(AXES, contract.mesh.coordinate(rank), strict=True)))
        row.update(host=names[slot.host], local_rank=slot.local_rank, device=contract.device(slot).index)
        for axis in used:
            row[f"{axis}_link"] = _link_word(contract, axis, rank in across[axis])
        rows.append(row)
    return rows


def contract_text(contract: MeshContract) -> str:
    """Shape, groups of each axis and the table of ranks."""
    mesh = contract.mesh
    hosts = ", ".join(host_names(contract))
    if all(host.host != ANY_HOST for host in contract.hosts):
        hosts = hostlist.compress(host_names(contract))
    lines = [
        f"mesh {contract.name}: {' x '.join(f'{axis} {size}' for axis, size in zip(AXES, mesh.sizes, strict=True))}"
        f" = {mesh.world_size} ranks on {len(contract.hosts)} host{'s' * (len(contract.hosts) > 1)} ({hosts}), "
        f"digest {contract.digest}",
        f"fastest over devices: {contract.order[-1]} (order {','.join(contract.order)})",
    ]
    for axis in contract.used_axes():
        groups = list(mesh.groups(axis))
        shown = " ".join("{" + ",".join(map(str, group)) + "}" for group in groups[:_MAX_GROUPS])
        more = f" and {len(groups) - _MAX_GROUPS} more" if len(groups) > _MAX_GROUPS else ""
        expected = contract.axes[axis]
        link = expected.link_class.value if expected.link_class else "any link"
        count = f" x{expected.nvlink_count} or more" if expected.nvlink_count else ""
        lines.append(f"{axis} over {link}{count}: {shown}{more}")
    return "\n".join([*lines, "", tabulate(rank_rows(contract), headers="keys", disable_numparse=True)])


def figure(contract: MeshContract) -> Figure:
    """One panel an axis, hosts as rows and devices as columns; ranks of one group share colour and letter.

    Raises:
        UsageError: too many ranks to draw.
    """
    if contract.world_size > MAX_DRAWN:
        raise UsageError(
            f"a picture shows at most {MAX_DRAWN} ranks and the mesh has {contract.world_size}; see --json"
        )
    from matplotlib.figure import Figure

    used = contract.used_axes() or AXES[-1:]
    widest = max(len(host.devices) for host in contract.hosts)
    width = max(4.0, _CELL_IN * 1.6 * min(widest, _COLUMNS) + 1.4)
    height = max(2.2, _CELL_IN * len(contract.hosts) * ceil(widest / _COLUMNS) + 1.3)
    drawn = Figure(figsize=(width, height * len(used)), layout="constrained")
    panels = drawn.subplots(len(used), 1, squeeze=False)
    for panel, axis in zip(panels[:, 0], used, strict=True):
        _draw_axis(panel, contract, axis, widest)
    drawn.suptitle(f"mesh {contract.name} {contract.mesh.short}, digest {contract.digest}", fontsize=9)
    return drawn


def draw(contract: MeshContract, path: Path) -> None:
    """Write the figure; the name's end says which kind of file.

    Raises:
        UsageError: too many ranks to draw, or a file type that matplotlib does not know.
        StoreError: the file cannot be written.
    """
    drawn = figure(contract)
    try:
        drawn.savefig(path, dpi=150)
    except ValueError as error:
        raise UsageError(f"cannot draw {path}: {str(error).splitlines()[0]}; use a name that ends in .png") from None
    except OSError as error:
        raise StoreError(f"cannot write {path}: {error.strerror or error}; choose another folder") from None


def _draw_axis(panel: Axes, contract: MeshContract, axis: str, widest: int) -> None:
    from matplotlib import colormaps
    from matplotlib.patches import Rectangle

    colours = colormaps["tab20"].colors  # type: ignore[attr-defined]  # matplotlib's stubs know the base class only
    places = contract.slots()
    lines, columns = ceil(widest / _COLUMNS), min(widest, _COLUMNS)
    for number, group in enumerate(contract.mesh.groups(axis)):
        for rank in group:
            slot = places[rank]
            line, column = divmod(slot.local_rank, columns)
            row = slot.host * lines + line
            corner = (column + 0.04, row + 0.06)
            # tab20 has ten pairs of a dark and a light shade; dark ones first
            shade = colours[(2 * number + number // 10) % 20]
            panel.add_patch(Rectangle(corner, 0.92, 0.88, facecolor=(*shade, 0.55), edgecolor="black", linewidth=0.6))
            replicate, shard, tp = contract.mesh.coordinate(rank)
            panel.text(
                column + 0.5,
                row + 0.5,
                f"rank {rank}   {_letters(number)}\nr{replicate} s{shard} t{tp}",
                ha="center",
                va="center",
                fontsize=6.5,
            )
    expected = contract.axes[axis].link_class
    link = "any link" if expected is None else expected.value
    where = "crosses hosts" if _across(contract, axis) else "inside a host"
    panel.set_title(f"{axis} groups (one letter each): {where}, {link}", fontsize=8, loc="left")
    starts = [f", {line * columns}+" for line in range(lines)] if lines > 1 else [""]
    rows = [name + start for name in host_names(contract) for start in starts]
    panel.set_xlim(0, columns)
    panel.set_ylim(len(rows), 0)
    panel.set_yticks([at + 0.5 for at in range(len(rows))], rows, fontsize=7)
    titles = _columns(contract, widest) if lines == 1 else [f"+{at}" for at in range(columns)]
    panel.set_xticks([at + 0.5 for at in range(columns)], titles, fontsize=7)
    panel.tick_params(length=0)
    for side in panel.spines.values():
        side.set_visible(False)


def _columns(contract: MeshContract, widest: int) -> Sequence[str]:
    """Device numbers over the columns where all hosts agree, else local ranks."""
    numbers = {tuple(device.index for device in host.devices) for host in contract.hosts}
    if len(numbers) == 1:
        return [f"device {index}" for index in next(iter(numbers))]
    return [f"local rank {at}" for at in range(widest)]


def _letters(number: int) -> str:
    """A, B, ... Z, AA, AB, ..."""
    text = ""
    number += 1
    while number:
        number, digit = divmod(number - 1, 26)
        text = chr(ord("A") + digit) + text
    return text


def _across(contract: MeshContract, axis: str) -> frozenset[int]:
    """Ranks whose group on ``axis`` spans several hosts."""
    places = contract.slots()
    found: set[int] = set()
    for group in contract.mesh.groups(axis):
        if len({places[rank].host for rank in group}) > 1:
            found.update(group)
    return frozenset(found)


def _link_word(contract: MeshContract, axis: str, across: bool) -> str:
    """The link class of one group: the contract's, where it speaks of groups of that kind."""
    expected = contract.axes[axis].link_class
    if expected is not None and expected.crosses_nodes == across:
        return expected.value
    return "across hosts" if across else "inside a host"
