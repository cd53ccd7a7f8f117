"""What a layout's checkpoint costs: the default ways, quickly, in every verify launch; all ways on request."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import median
from typing import Any, TypeVar

import torch
import torch.distributed as dist

from harness.checkpoint.manifest import read_manifest
from harness.checkpoint.measured import Cache, CheckpointParts, DiskRate, RestoreCost, SaveCost, sizes_of
from harness.checkpoint.names import MANIFEST
from harness.checkpoint.throttle import Throttle
from harness.checkpoint.ways import SAVE_WAYS, RestoreWay, SaveWay
from harness.measure.clock import timed
from harness.measure.memory import reset_rss_peak, rss_peak
from harness.mesh.contract import MeshContract
from harness.record import Checkpoint
from harness.spec import RunSpec
from harness.train.checkpoint import disk
from harness.train.checkpoint.reader import reads_past_cache
from harness.train.checkpoint.restore import DEFAULT_WAY as RESTORE_WAY
from harness.train.checkpoint.restore import Restored, restore, restore_stock
from harness.train.checkpoint.save import DEFAULT_WAY as SAVE_WAY
from harness.train.checkpoint.save import Saved, save, save_async
from harness.train.checkpoint.state import fingerprint, get_state, on_all_ranks
from harness.train.session import Session

Value = TypeVar("Value")

# (way, read threads, past the page cache): what is compared on request
Read = tuple[RestoreWay, int, bool]
READS: tuple[Read, ...] = (
    ("one_group", 2, False),
    ("spread", 2, False),
    ("each", 2, False),
    ("one_group", 1, False),
    ("one_group", 4, False),
    ("one_group", 2, True),
)
STOCK_CACHES: tuple[Cache, ...] = ("cold", "warm")
NO_WHOLE_STATE = ("fsdp1", "fsdp1_hybrid")  # gathering the whole state of theirs fails on CPUs
STEPS_BEFORE, MOST_STEPS = 10, 200


def measure_checkpoint(
    session: Session, spec: RunSpec, device: torch.device, step: int, root: Path, contract: MeshContract | None = None
) -> Checkpoint:
    """Save the session, close it, restore into a fresh one made from other weights, compare; the default ways.

    The folder is removed afterwards unless the settings keep it.
    """
    cost, folder = _save(session, step, root, SAVE_WAY, contract=contract)
    before = fingerprint(get_state(session))
    session.close()
    fresh = Session(spec, device, "adamw", seed=spec.seed + 1)
    get_state(fresh)  # makes the optimizer's state, which is a part of building and not of reading
    warm = _restore(fresh, folder, "warm", RESTORE_WAY)
    after = fingerprint(get_state(fresh))
    equal = on_all_ranks(all(after.get(key) == value for key, value in before.items()))
    cold = _restore(fresh, folder, "cold", RESTORE_WAY)
    fresh.close()
    limits = _on_first(lambda: disk.sequential_rates(root, cost.total_bytes))
    if not spec.settings.keep_checkpoints:
        remove(folder)
    assert cost.sizes is not None
    return Checkpoint(
        folder=folder.name,
        total_bytes=cost.total_bytes,
        files=cost.sizes.files,
        save_time_s=cost.time_s,
        restore_time_s=warm.time_s,
        equal=equal,
        parts=CheckpointParts(saves=(cost,), restores=(warm, cold), disk=limits),
    )


def measure_ways(
    spec: RunSpec,
    device: torch.device,
    steps: int,
    root: Path,
    ways: Sequence[SaveWay] = tuple(SAVE_WAYS),
    reads: Sequence[Read] = READS,
    throttle: Throttle | None = None,
) -> CheckpointParts:
    """Ways to save and to restore, on one session of ``spec`` that has trained ``steps`` steps.

    Restores are of the default way's checkpoint, and of the stock one. ``throttle`` slows their reading down.
    """
    session = Session(spec, device, "adamw")
    for number in range(steps):
        session.step(session.batch(number), spec.settings.max_grad_norm)
    saves: list[SaveCost] = []
    restores: list[RestoreCost] = []
    for way in ways:
        if way == "full" and spec.layout.strategy in NO_WHOLE_STATE:
            continue
        cost, folder = _save(session, steps, root / way, way)
        saves.append(cost)
        if way == SAVE_WAY:
            direct = reads_past_cache(folder / MANIFEST)
            possible = [read for read in reads if direct or not read[2]]
            restores += [_restore(session, folder, cache, *r, throttle) for r in possible for cache in _caches(r)]
        elif way == "stock":
            restores += [_restore_stock(session, folder, cache, throttle) for cache in STOCK_CACHES]
        remove(folder)
    if len(ways) == len(SAVE_WAYS):
        bare, folder = _save(session, steps, root / "bare", SAVE_WAY, digest=False)
        remove(folder)
        saves += [bare, _save_behind(session, steps, root / "behind")]
    session.close()
    limits = _on_first(lambda: disk.sequential_rates(root, saves[0].total_bytes))
    return CheckpointParts(saves=tuple(saves), restores=tuple(restores), disk=limits)


def _caches(read: Read) -> tuple[Cache, ...]:
    return ("direct",) if read[2] else ("cold", "warm")


def _save(
    session: Session,
    step: int,
    root: Path,
    way: SaveWay,
    digest: bool = True,
    contract: MeshContract | None = None,
) -> tuple[SaveCost, Path]:
    dist.barrier()
    mine = save(session, step, root, way, digest, contract)
    everyone = gathered(mine)
    return _save_cost(way, everyone, digest=digest), mine.folder


def _save_cost(way: SaveWay, everyone: Sequence[Saved], **more: Any) -> SaveCost:
    folder = everyone[0].folder
    total = sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())
    time_s = max(one.time_s for one in everyone)
    own = way != "stock"
    return SaveCost(
        way=way,
        sizes=sizes_of(read_manifest(folder), (folder / MANIFEST).stat().st_size) if own else None,
        total_bytes=total,
        time_s=time_s,
        written_bytes=tuple(one.written_bytes for one in everyone) if own else None,
        seconds=_slowest_parts([one.seconds for one in everyone]),
        **{"blocking_s": time_s, **more},
    )


def _save_behind(session: Session, steps: int, root: Path) -> SaveCost:
    """An asynchronous save, and how much slower steps are while it runs."""
    batch = session.batch(steps)

    def step_s() -> float:
        return timed(lambda: session.step(batch, session.spec.settings.max_grad_norm), session.device)

    before = [step_s() for _ in range(STEPS_BEFORE)]
    saving = save_async(session, steps, root)
    meanwhile: list[float] = []
    while len(meanwhile) < MOST_STEPS and not on_all_ranks(saving.done()):
        meanwhile.append(step_s())
    everyone = gathered(saving.wait())
    cost = _save_cost(
        SAVE_WAY,
        everyone,
        blocking_s=max(gathered(saving.blocking_s)),
        asynchronous=True,
        step_slowdown=max(gathered(median(meanwhile) / median(before))) if meanwhile else None,
    )
    remove(everyone[0].folder)
    return cost


def _restore(
    session: Session,
    folder: Path,
    cache: Cache,
    way: RestoreWay,
    threads: int = 2,
    direct: bool = False,
    throttle: Throttle | None = None,
) -> RestoreCost:
    def work() -> Restored:
        return restore(session, folder, way, threads, direct=direct, throttle=throttle)

    mine, device_bytes, growth, _ = _observed(work, folder, cache)
    everyone = gathered(mine)
    return RestoreCost(
        way=way,
        cache=cache,
        time_s=max(one.time_s for one in everyone),
        storage_bytes=tuple(one.storage_bytes for one in everyone),
        device_bytes=device_bytes,
        received_bytes=tuple(one.received_bytes for one in everyone),
        peak_rss_growth_bytes=growth,
        seconds=_slowest_parts([one.seconds for one in everyone]),
        threads=threads,
        throttled_to_bytes_per_s=throttle.bytes_per_s if throttle else None,
    )


def _restore_stock(session: Session, folder: Path, cache: Cache, throttle: Throttle | None) -> RestoreCost:
    time_s, device_bytes, growth, file_bytes = _observed(
        lambda: restore_stock(session, folder, throttle), folder, cache
    )
    return RestoreCost(
        way="stock",
        cache=cache,
        time_s=max(gathered(time_s)),
        storage_bytes=file_bytes or (),
        device_bytes=device_bytes,
        peak_rss_growth_bytes=growth,
        throttled_to_bytes_per_s=throttle.bytes_per_s if throttle else None,
    )


def _observed(
    work: Callable[[], Value], folder: Path, cache: Cache
) -> tuple[Value, tuple[int, ...] | None, tuple[int, ...] | None, tuple[int, ...] | None]:
    """(value, device bytes, growth of the resident set, file bytes; the last three a value a rank) of ``work``."""
    if cache == "cold" and dist.get_rank() == 0:
        disk.drop_cache(folder)
    reset_rss_peak()
    dist.barrier()
    start, rss = disk.process_io(), rss_peak()
    value = work()
    end, peak = disk.process_io(), rss_peak()
    read = (end[0] - start[0], end[1] - start[1]) if start and end else None
    growth = peak - rss if rss is not None and peak is not None else None
    return (
        value,
        _if_all(gathered(read[1] if read else None)),
        _if_all(gathered(growth)),
        _if_all(gathered(read[0] if read else None)),
    )


def _if_all(values: Sequence[int | None]) -> tuple[int, ...] | None:
    found = tuple(value for value in values if value is not None)
    return found if len(found) == len(values) else None


def _slowest_parts(everyone: Sequence[dict[str, float]]) -> dict[str, float]:
    return {part: max(one.get(part, 0.0) for one in everyone) for part in everyone[0]}


def gathered(value: Value) -> list[Value]:
    """Each rank's value, in rank order."""
    found: list[Any] = [None] * dist.get_world_size()
    dist.all_gather_object(found, value)
    return found


def _on_first(work: Callable[[], DiskRate]) -> DiskRate:
    """Rank 0's value, while the others wait."""
    found: list[Any] = [work() if dist.get_rank() == 0 else None]
    dist.broadcast_object_list(found)
    result: DiskRate = found[0]
    return result


def remove(folder: Path) -> None:
    """Remove a folder once no rank uses it any more."""
    dist.barrier()
    if dist.get_rank() == 0:
        shutil.rmtree(folder, ignore_errors=True)
    dist.barrier()
