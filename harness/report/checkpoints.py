"""The report's section on checkpoints: sizes by kind, who wrote and read, times, ways, meshes, and two claims."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from harness.checkpoint.measured import CheckpointParts, RestoreCost, SaveCost
from harness.checkpoint.study import LOSS_TOLERANCE, CheckpointStudy, LayoutStudy, Pair
from harness.checkpoint.ways import RESTORE_WAYS, SAVE_WAYS, RestoreWay, SaveWay
from harness.compare import Comparison
from harness.compare.checkpoints import Labelled, default_restore, explain
from harness.layout.mesh import parse_mesh
from harness.predict.checkpoint import checkpoint_size
from harness.report.tables import MISSING, escape, markdown_rows, shown_cells
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


def checkpoint_section(comparison: Comparison) -> list[str]:
    """Blocks of Markdown; none if no checkpoint was measured with its parts."""
    cells = [
        Labelled(cell.label, cell.checkpoint.parts)
        for cell in shown_cells(comparison)
        if cell.checkpoint and cell.checkpoint.parts
    ]
    study = comparison.checkpoint_study
    blocks: list[str] = []
    if cells:
        blocks += ["### What they are made of", sizes_table(cells), "### Saving and restoring", costs_table(cells)]
        blocks += ["\n".join(f"- {escape(sentence)}" for sentence in explain(cells))]
    if study is not None:
        blocks += study_blocks(study)
    if blocks:
        blocks += ["### Two claims about meshes and checkpoints", claims_table(cells, study)]
    return ["## Checkpoints", *blocks] if blocks else []


def sizes_table(cells: Sequence[Labelled]) -> str:
    """Bytes by kind, metadata, duplicates, files and writers of each layout's default save."""
    found = [sizes for cell in cells if (sizes := _first_save(cell).sizes)]
    kinds = [kind for kind in KIND_WORDS if any(kind in sizes.bytes_by_kind for sizes in found)]
    rows = []
    for cell in cells:
        save = _first_save(cell)
        sizes = save.sizes
        if sizes is None:
            continue
        written = [n for n in save.written_bytes or () if n > 0]
        rows.append(
            (
                escape(cell.label),
                *(f"{sizes.bytes_by_kind.get(kind, 0):,}" for kind in kinds),
                f"{sizes.metadata_bytes:,}",
                f"{sizes.duplicate_bytes:,}",
                f"{sizes.total_bytes:,}",
                str(sizes.files),
                f"{len(written)} of {len(save.written_bytes or ())}" if written else MISSING,
                f"{max(written):,}" if written else MISSING,
            )
        )
    titles = [f"{KIND_WORDS[k]} (bytes)" for k in kinds]
    return markdown_rows(
        ("layout", *titles, "metadata", "duplicates", "total", "files", "ranks that write", "most of a rank"), rows
    )


def costs_table(cells: Sequence[Labelled]) -> str:
    """Times, rates beside the disk's own, and how often each byte was read."""
    times = time_unit(t for c in cells for t in (_first_save(c).time_s, *(r.time_s for r in c.parts.restores)))
    rows = []
    for cell in cells:
        save, disk = _first_save(cell), cell.parts.disk
        cold, warm = (next((r for r in cell.parts.restores if r.cache == cache), None) for cache in ("cold", "warm"))
        rows.append(
            (
                escape(cell.label),
                times.text(save.time_s),
                _share(save.total_bytes / save.time_s, disk.write_bytes_per_s if disk else None),
                times.text(cold.time_s) if cold else MISSING,
                _share(sum(cold.storage_bytes) / cold.time_s, disk.read_cold_bytes_per_s if disk else None)
                if cold
                else MISSING,
                times.text(warm.time_s) if warm else MISSING,
                f"{sum(cold.storage_bytes) / save.total_bytes:.2f}" if cold else MISSING,
                _peak(cold),
            )
        )
    return markdown_rows(
        (
            "layout",
            f"save ({times.name})",
            "of the disk's write rate",
            f"restore, cold cache ({times.name})",
            "of the disk's read rate",
            f"restore, warm ({times.name})",
            "times each byte is read",
            "host memory on top, fullest rank",
        ),
        rows,
    )


def study_blocks(study: CheckpointStudy) -> list[str]:
    """Tables of all ways, and of pairs of meshes."""
    blocks = []
    measured = [one for one in study.layouts if one.parts is not None]
    if measured:
        blocks += ["### Ways to save", _meanings(SAVE_WAYS), saves_table(measured)]
        blocks += ["### Ways to restore", _meanings(RESTORE_WAYS), restores_table(measured)]
    blocks += [f"**{escape(one.layout)}** failed: {escape(one.error)}" for one in study.layouts if one.error]
    if study.pairs:
        blocks += ["### From any mesh onto any other", pairs_text(study.pairs), *_impossible(study.pairs)]
    return blocks


def saves_table(layouts: Sequence[LayoutStudy]) -> str:
    """One row a layout and way."""
    rows = []
    for one in layouts:
        assert one.parts is not None
        for save in one.parts.saves:
            name = (
                save.way + (" behind training" if save.asynchronous else "") + ("" if save.digest else ", no SHA-256")
            )
            slow = f"{save.step_slowdown:.2f} x" if save.step_slowdown else MISSING
            rows.append(
                (
                    escape(one.layout),
                    name,
                    f"{save.total_bytes:,}",
                    f"{save.sizes.duplicate_bytes:,}" if save.sizes else MISSING,
                    str(save.sizes.files) if save.sizes else MISSING,
                    str(sum(n > 0 for n in save.written_bytes)) if save.written_bytes else MISSING,
                    number(save.blocking_s * 1e3),
                    number(save.time_s * 1e3),
                    slow,
                )
            )
    titles = (
        "layout",
        "way",
        "bytes",
        "duplicates",
        "files",
        "writers",
        "blocking (ms)",
        "total (ms)",
        "steps meanwhile",
    )
    return markdown_rows(titles, rows)


def restores_table(layouts: Sequence[LayoutStudy]) -> str:
    """One row a layout, way and state of the cache."""
    rows = []
    for one in layouts:
        assert one.parts is not None
        for restore in one.parts.restores:
            disk = one.parts.disk
            limit = None if disk is None or restore.cache == "warm" else disk.read_cold_bytes_per_s
            rows.append(
                (
                    escape(one.layout),
                    restore.way,
                    restore.cache,
                    str(restore.threads or MISSING),
                    number(restore.time_s * 1e3),
                    f"{sum(restore.storage_bytes):,}",
                    f"{sum(restore.device_bytes):,}" if restore.device_bytes else MISSING,
                    f"{sum(restore.received_bytes):,}" if restore.received_bytes else MISSING,
                    _share(sum(restore.storage_bytes) / restore.time_s, limit),
                )
            )
    titles = (
        "layout",
        "way",
        "cache",
        "threads",
        "time (ms)",
        "read from files",
        "from the device",
        "sent",
        "of the disk's rate",
    )
    return markdown_rows(titles, rows)


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
    return text + (f" Not so: {escape(', '.join(bad))}." if bad else "")


def _impossible(pairs: Sequence[Pair]) -> list[str]:
    reasons: dict[str, list[str]] = {}
    for pair in pairs:
        if pair.reason is not None:
            reasons.setdefault(pair.reason, []).append(f"{pair.source} -> {pair.target}")
    return (
        ["\n".join(f"- {escape(', '.join(which))}: {escape(why)}" for why, which in reasons.items())] if reasons else []
    )


def claims_table(cells: Sequence[Labelled], study: CheckpointStudy | None) -> str:
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
    return markdown_rows(
        ("claim", f"by formula: {CLAIMED_MODEL.name}, s128 -> r8s16", "measured here", "verdict"), rows
    )


def _both(one: Labelled | None, other: Labelled | None, text: Callable[[SaveCost], str]) -> str:
    if one is None or other is None:
        return MISSING
    return f"{text(_first_save(one))} -> {text(_first_save(other))} ({escape(one.label)} -> {escape(other.label)})"


def _ratio(one: Labelled | None, other: Labelled | None, value: Callable[[CheckpointParts], float | None]) -> str:
    if one is None or other is None:
        return MISSING
    a, b = value(one.parts), value(other.parts)
    return f"{a / b:.3f} x ({escape(one.label)} / {escape(other.label)})" if a and b else MISSING


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
                    f"{stock.time_s * 1e3:.0f} -> {own.time_s * 1e3:.0f} ms ({escape(layout.layout)})"
                )
    return "`meshsweep checkpoint measure` measures it"


def _first_save(cell: Labelled) -> SaveCost:
    return cell.parts.saves[0]


def _share(rate: float, limit: float | None) -> str:
    return f"{rate / limit:.0%}" if limit else MISSING


def _peak(restore: RestoreCost | None) -> str:
    if restore is None or not restore.peak_rss_growth_bytes:
        return MISSING
    unit = bytes_unit(restore.peak_rss_growth_bytes)
    return f"{unit.text(max(restore.peak_rss_growth_bytes))} {unit.name}"


def _meanings(ways: Mapping[SaveWay, str] | Mapping[RestoreWay, str]) -> str:
    return "\n".join(f"- `{name}`: {text}" for name, text in ways.items())
