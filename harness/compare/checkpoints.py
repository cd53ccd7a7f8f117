"""Why is this checkpoint larger, or slower? Answered in words, from measured parts alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from harness.checkpoint.measured import CheckpointParts, RestoreCost, SaveCost, Sizes

# Parts of a save and of a restore as the record names them -> what they are in words.
PART_WORDS: Mapping[str, str] = {
    "state": "collecting the state",
    "copy": "copying to host memory",
    "write": "writing",
    "digest": "waiting for digests",
    "flush": "flushing to the disk",
    "commit": "writing the manifest and the name",
    "plan and wait": "planning and waiting for other ranks",
    "manifest": "reading the manifest",
    "read": "waiting for reads",
    "send": "sending and receiving",
    "set state": "loading the state into the optimizer",
}
SAME_SIZE = 0.001  # sizes closer than this are the same
SAME_TIME = 0.10  # times closer than this are not told apart: one save is one sample


class Labelled(NamedTuple):
    """A layout's label and its measured parts."""

    label: str
    parts: CheckpointParts


def explain(cells: Sequence[Labelled]) -> list[str]:
    """Sentences on size, save time and restore time, each of the largest against the smallest layout."""
    found = [_size(cells), _time(cells, "save"), _time(cells, "restore")]
    return [sentence for sentence in found if sentence]


def _size(cells: Sequence[Labelled]) -> str | None:
    known = [
        (cell.label, cell.parts.saves[0].sizes) for cell in cells if cell.parts.saves and cell.parts.saves[0].sizes
    ]
    sized = [(label, sizes) for label, sizes in known if sizes is not None]
    if len(sized) < 2:
        return None
    (small, least), (large, most) = (pick(sized, key=lambda one: one[1].total_bytes) for pick in (min, max))
    more = most.total_bytes - least.total_bytes
    tensors = sum(most.bytes_by_kind.values()) - sum(least.bytes_by_kind.values())
    if more <= SAME_SIZE * least.total_bytes:
        return (
            f"All checkpoints have the same size within {SAME_SIZE:.1%} ({least.total_bytes:,} bytes): each tensor is "
            "stored once whatever the layout."
        )
    causes = {
        f"names and digests of {pieces(most)} ({most.metadata_bytes:,} bytes against {least.metadata_bytes:,})": (
            most.metadata_bytes - least.metadata_bytes
        ),
        f"copies of what is stored already ({most.duplicate_bytes:,} bytes)": most.duplicate_bytes
        - least.duplicate_bytes,
        f"tensors ({sum(most.bytes_by_kind.values()):,} bytes)": tensors,
    }
    main = max(causes, key=lambda cause: causes[cause])
    equal = "; parameters and optimizer state are the same bytes in both" if tensors == 0 else ""
    return (
        f"{large}'s checkpoint is {more / least.total_bytes:.1%} ({more:,} bytes) larger than {small}'s: "
        f"{causes[main] / more:.0%} of that are {main}{equal}."
    )


def pieces(sizes: Sizes) -> str:
    """``4 files``, the manifest left out."""
    count = sizes.files - 1
    return f"{count} file{'s' if count != 1 else ''}"


def _time(cells: Sequence[Labelled], what: str) -> str | None:
    timed: list[tuple[str, SaveCost | RestoreCost]] = []
    for cell in cells:
        cost = cell.parts.saves[0] if what == "save" else default_restore(cell.parts)
        if cost is not None and cost.seconds:
            timed.append((cell.label, cost))
    if len(timed) < 2:
        return None
    (quick, least), (slow, most) = (pick(timed, key=lambda one: one[1].time_s) for pick in (min, max))
    more = most.time_s - least.time_s
    if more <= SAME_TIME * least.time_s:
        return f"Times to {what} lie within {SAME_TIME:.0%} of each other, which one {what} each does not tell apart."
    before, after = least.seconds or {}, most.seconds or {}
    gains = {part: after.get(part, 0.0) - before.get(part, 0.0) for part in after}
    part = max(gains, key=lambda name: gains[name])
    return (
        f"To {what}, {slow} takes {most.time_s / least.time_s:.2f} times as long as {quick} "
        f"({most.time_s * 1e3:.0f} ms against {least.time_s * 1e3:.0f} ms); most of it is "
        f"{PART_WORDS.get(part, part)} (+{gains[part] * 1e3:.0f} ms). {_moved(slow, most, quick, least)}"
    )


def _moved(slow: str, most: SaveCost | RestoreCost, quick: str, least: SaveCost | RestoreCost) -> str:
    """How many ranks wrote or read how much."""

    def of(cost: SaveCost | RestoreCost) -> str:
        values = cost.written_bytes if isinstance(cost, SaveCost) else cost.storage_bytes
        busy = [value for value in values or () if value > 0]
        verb = "wrote" if isinstance(cost, SaveCost) else "read"
        who = f"{len(busy)} rank{'s' if len(busy) != 1 else ''}"
        return f"{who} {verb} {sum(busy):,} bytes, {max(busy, default=0):,} at most"

    return f"In {slow} {of(most)}; in {quick} {of(least)}."


def default_restore(parts: CheckpointParts) -> RestoreCost | None:
    """The restore of the default way from cold cache, else from warm."""
    own = [r for r in parts.restores if r.way != "stock"]
    return next((r for r in own if r.cache == "cold"), own[0] if own else None)
