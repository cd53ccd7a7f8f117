"""The report's section on checkpoints: sizes by kind, who wrote and read, times, ways, meshes, and two claims."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from harness.checkpoint.measured import CheckpointParts, RestoreCost, SaveCost
from harness.checkpoint.study import LOSS_TOLERANCE, CheckpointStudy, Pair
from harness.checkpoint.ways import RESTORE_WAYS, SAVE_WAYS
from harness.compare import Comparison
from harness.compare.checkpoints import Labelled, default_restore, explain
from harness.layout.mesh import parse_mesh
from harness.predict.checkpoint import checkpoint_size
from harness.report.tables import MISSING, shown_cells
from harness.report.units import bytes_unit, number, time_unit
from harness.workload import PRESETS

KIND_WORDS = {
    "parameters": "parameters",
    "exp_avg": "first moment",
    "exp_avg_sq": "second moment",
    "momentum": "momentum",
    "step": "steps",
    "buffers": "buffers",
    "other": "other state",
}
CLAIMED_MODEL = PRESETS["70b"]
FLAT, MESHED = parse_mesh("s128"), parse_mesh("r8s16")


class Part(NamedTuple):
    """A part of the section as plain text: a table under its heads, then notes."""

    title: str
    titles: tuple[str, ...] = ()
    rows: tuple[tuple[str, ...], ...] = ()
    notes: tuple[str, ...] = ()


def checkpoint_parts(comparison: Comparison) -> tuple[Part, ...]:
    """The parts that have something to show."""
    cells = [
        Labelled(cell.label, cell.checkpoint.parts)
        for cell in shown_cells(comparison)
        if cell.checkpoint and cell.checkpoint.parts
    ]
    study = comparison.checkpoint_study
    found = [sizes_part(cells), costs_part(cells)] if cells else []
    if study is not None:
        found += study_parts(study)
    return (*found, claims_part(cells, study)) if found else ()


def sizes_part(cells: Sequence[Labelled]) -> Part:
    """Bytes by kind, metadata, duplicates, files and writers of each layout's default save."""
    sized = [(cell.label, save, save.sizes) for cell in cells if (save := cell.parts.saves[0]).sizes]
    kinds = [kind for kind in KIND_WORDS if any(sizes and kind in sizes.bytes_by_kind for _, _, sizes in sized)]
    rows = []
    for label, save, sizes in sized:
        assert sizes is not None
        written = [n for n in save.written_bytes or () if n > 0]
        amounts = [sizes.bytes_by_kind.get(kind, 0) for kind in kinds]
        amounts += [sizes.metadata_bytes, sizes.duplicate_bytes, sizes.total_bytes]
        who = (MISSING, MISSING)
        if written:
            who = (f"{len(written)} of {len(save.written_bytes or ())}", f"{max(written):,}")
        rows.append((label, *(f"{n:,}" for n in amounts), str(sizes.files), *who))
    titles = (
        *("layout", *(KIND_WORDS[kind] for kind in kinds), "metadata", "duplicates", "total bytes"),
        *("files", "ranks that write", "most bytes of a rank"),
    )
    return Part("What checkpoints are made of, bytes", titles, tuple(rows))


def costs_part(cells: Sequence[Labelled]) -> Part:
    """Times, rates beside the disk's own, how often each byte was read, and why one is larger or slower."""
    times = time_unit(t for c in cells for t in (c.parts.saves[0].time_s, *(r.time_s for r in c.parts.restores)))
    rows = []
    for cell in cells:
        save, disk = cell.parts.saves[0], cell.parts.disk
        cold, warm = (next((r for r in cell.parts.restores if r.cache == cache), None) for cache in ("cold", "warm"))
        rows.append(
            (
                cell.label,
                times.text(save.time_s),
                _share(save.total_bytes / save.time_s, disk.write_bytes_per_s if disk else None),
                times.text(cold.time_s) if cold else MISSING,
                _rate_share(cold, cell.parts),
                times.text(warm.time_s) if warm else MISSING,
                f"{sum(cold.storage_bytes) / save.total_bytes:.2f}" if cold else MISSING,
                _peak(cold),
            )
        )
    titles = (
        *("layout", f"save, {times.name}", "of the disk's write rate", f"restore cold, {times.name}"),
        *("of the disk's read rate", f"restore warm, {times.name}", "times each byte is read", "host memory on top"),
    )
    return Part("Saving and restoring", titles, tuple(rows), tuple(explain(_on_several_ranks(cells))))


def _on_several_ranks(cells: Sequence[Labelled]) -> list[Labelled]:
    """Without the single process, which moves nothing between ranks and is no choice."""
    return [cell for cell in cells if len(cell.parts.saves[0].written_bytes or ()) != 1]


def study_parts(study: CheckpointStudy) -> list[Part]:
    """Tables of all ways, and of pairs of meshes."""
    measured = [(one.layout, one.parts) for one in study.layouts if one.parts is not None]
    found = []
    if measured:
        found.append(saves_part([Labelled(*one) for one in measured]))
        found.append(restores_part([Labelled(*one) for one in measured]))
    errors = tuple(f"{one.layout} failed: {one.error}" for one in study.layouts if one.error)
    if errors:
        found.append(Part("Ways that could not be measured", notes=errors))
    if study.pairs:
        found.append(Part("From any mesh onto any other", notes=(pairs_text(study.pairs), *_impossible(study.pairs))))
    return found


def saves_part(layouts: Sequence[Labelled]) -> Part:
    """One row a layout and way to save."""
    rows = []
    for label, parts in layouts:
        for save in parts.saves:
            behind = " behind training" if save.asynchronous else ""
            rows.append(
                (
                    label,
                    f"{save.way}{behind}" + ("" if save.digest else ", no SHA-256"),
                    f"{save.total_bytes:,}",
                    f"{save.sizes.duplicate_bytes:,}" if save.sizes else MISSING,
                    str(save.sizes.files) if save.sizes else MISSING,
                    str(sum(n > 0 for n in save.written_bytes)) if save.written_bytes else MISSING,
                    number(save.blocking_s * 1e3),
                    number(save.time_s * 1e3),
                    f"{save.step_slowdown:.2f} x" if save.step_slowdown else MISSING,
                )
            )
    titles = (
        *("layout", "way", "bytes", "duplicates", "files", "writers"),
        *("blocking, ms", "total, ms", "steps meanwhile"),
    )
    return Part("Ways to save", titles, tuple(rows), tuple(f"{name}: {text}" for name, text in SAVE_WAYS.items()))


def restores_part(layouts: Sequence[Labelled]) -> Part:
    """One row a layout, way to restore and state of the cache."""
    rows = []
    for label, parts in layouts:
        for restore in parts.restores:
            rows.append(
                (
                    label,
                    restore.way,
                    restore.cache,
                    str(restore.threads or MISSING),
                    number(restore.time_s * 1e3),
                    f"{sum(restore.storage_bytes):,}",
                    f"{sum(restore.device_bytes):,}" if restore.device_bytes else MISSING,
                    f"{sum(restore.received_bytes):,}" if restore.received_bytes else MISSING,
                    MISSING if restore.cache == "warm" else _rate_share(restore, parts),
                )
            )
    titles = (
        *("layout", "way", "cache", "threads", "time, ms", "read from files", "from the device"),
        *("sent", "of the disk's rate"),
    )
    return Part("Ways to restore", titles, tuple(rows), tuple(f"{name}: {text}" for name, text in RESTORE_WAYS.items()))


def pairs_text(pairs: Sequence[Pair]) -> str:
    """One line: how many pairs work, and how exactly."""
    done = [p for p in pairs if p.reason is None]
    equal = [p for p in done if p.equal]
    worst = max((p.loss_difference or 0.0 for p in done), default=0.0)
    bad = [f"{p.source} -> {p.target}" for p in done if not p.good]
    text = (
        f"{len(equal)} of {len(done)} pairs restore every tensor, optimizer state and step bit by bit. The losses of "
        f"the next steps follow those of training without interruption within {worst:.1e} (the tolerance is "
        f"{LOSS_TOLERANCE:.0e}, since another mesh adds up in another order; on the same mesh they are equal)."
    )
    return text + (f" Not so: {', '.join(bad)}." if bad else "")


def _impossible(pairs: Sequence[Pair]) -> list[str]:
    reasons: dict[str, list[str]] = {}
    for pair in pairs:
        if pair.reason is not None:
            reasons.setdefault(pair.reason, []).append(f"{pair.source} -> {pair.target}")
    return [f"{', '.join(which)}: {why}" for why, which in reasons.items()]


def claims_part(cells: Sequence[Labelled], study: CheckpointStudy | None) -> Part:
    """What a mesh changes about a checkpoint and what it cannot change, by formula at 128 ranks and as measured."""
    flat, meshed = checkpoint_size(CLAIMED_MODEL, FLAT), checkpoint_size(CLAIMED_MODEL, MESHED)
    again = checkpoint_size(CLAIMED_MODEL, MESHED, "per_rank")
    unit = bytes_unit([flat.stored_bytes])
    by_strategy = {cell.label.split()[0]: cell for cell in cells}
    fsdp, hsdp, ddp = (by_strategy.get(name) for name in ("fsdp", "hsdp", "ddp"))
    rows = [
        (
            "files 128 -> 16 when one sub-mesh saves",
            f"{flat.files} -> {meshed.files}: one writer for each place of dp_shard x tp",
            _both(fsdp, hsdp, lambda s: f"{s.sizes.files - 1}" if s.sizes else MISSING),
            "true: the number of writers falls by dp_replicate",
        ),
        (
            "volume -31%",
            f"{unit.text(flat.stored_bytes)} -> {unit.text(meshed.stored_bytes)} {unit.name}: "
            "12 P + 4 n bytes whatever the mesh",
            _both(fsdp, hsdp, lambda s: f"{s.total_bytes:,}"),
            "only names and headers shrink. Less volume means that copies were stored before: all of "
            f"r8s16's replicas would be {unit.text(again.stored_bytes)} {unit.name}",
        ),
        (
            "restore 8m23s -> 5m17s",
            f"storage reads {unit.text(meshed.read_by_each_bytes)} -> {unit.text(meshed.read_once_bytes)} {unit.name} "
            "if one replica group reads and sends",
            _reads(study),
            "possible where storage is the limit: reads fall by dp_replicate, the rest goes over the network",
        ),
        (
            "FSDP's checkpoint 40% larger than DDP's",
            "equal: both hold each tensor once",
            _ratio(fsdp, ddp, lambda p: p.saves[0].total_bytes),
            "metadata alone, a share that falls as the model grows",
        ),
        (
            "FSDP's restore 17 minutes longer than DDP's",
            "the same bytes; DDP's go to every rank, FSDP's to one each",
            _ratio(fsdp, ddp, _cold_s),
            "not a property of FSDP: see above what the time went into",
        ),
    ]
    titles = ("claim", f"by formula: {CLAIMED_MODEL.name}, s128 -> r8s16", "measured here", "verdict")
    return Part("Two claims about meshes and checkpoints", titles, tuple(rows))


def _both(one: Labelled | None, other: Labelled | None, text: Callable[[SaveCost], str]) -> str:
    if one is None or other is None:
        return MISSING
    return f"{text(one.parts.saves[0])} -> {text(other.parts.saves[0])} ({one.label} -> {other.label})"


def _ratio(one: Labelled | None, other: Labelled | None, value: Callable[[CheckpointParts], float | None]) -> str:
    if one is None or other is None:
        return MISSING
    a, b = value(one.parts), value(other.parts)
    return f"{a / b:.3f} x ({one.label} / {other.label})" if a and b else MISSING


def _cold_s(parts: CheckpointParts) -> float | None:
    restored = default_restore(parts)
    return restored.time_s if restored else None


def _reads(study: CheckpointStudy | None) -> str:
    for layout in study.layouts if study else ():
        if layout.layout.startswith("hsdp:") and layout.parts:
            own = default_restore(layout.parts)
            stock = next((r for r in layout.parts.restores if r.way == "stock" and r.cache == "cold"), None)
            if own and stock:
                return (
                    f"{sum(stock.storage_bytes):,} -> {sum(own.storage_bytes):,} bytes, "
                    f"{stock.time_s * 1e3:.0f} -> {own.time_s * 1e3:.0f} ms ({layout.layout})"
                )
    return "'meshsweep checkpoint measure' measures it"


def _share(rate: float, limit: float | None) -> str:
    if not limit:
        return MISSING
    share = rate / limit
    return f"{share:.0%}" if share >= 0.1 else f"{share:.1%}"


def _rate_share(restore: RestoreCost | None, parts: CheckpointParts) -> str:
    """The checkpoint's own bytes over the time: what is read again does not count as speed."""
    if restore is None or parts.disk is None:
        return MISSING
    return _share(parts.saves[0].total_bytes / restore.time_s, parts.disk.read_cold_bytes_per_s)


def _peak(restore: RestoreCost | None) -> str:
    if restore is None or not restore.peak_rss_growth_bytes:
        return MISSING
    unit = bytes_unit(restore.peak_rss_growth_bytes)
    return f"{unit.text(max(restore.peak_rss_growth_bytes))} {unit.name}"
