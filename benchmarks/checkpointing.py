"""On ranks: one session and its checkpoints, kept between calls of a benchmark."""

from __future__ import annotations

from pathlib import Path

import torch.distributed as dist

from harness.checkpoint.throttle import Throttle
from harness.spec import RunSpec
from harness.train.checkpoint import disk
from harness.train.checkpoint.measure import gathered, remove
from harness.train.checkpoint.restore import restore, restore_stock
from harness.train.checkpoint.save import save
from harness.train.remote import device
from harness.train.session import Session

_session: Session | None = None


def open_session(spec: RunSpec) -> None:
    """A session that has trained a step."""
    global _session
    _session = Session(spec, device(), "adamw")
    _session.step(_session.batch(0), spec.settings.max_grad_norm)


def close_session() -> None:
    global _session
    assert _session is not None
    _session.close()
    _session = None


def save_once(root: Path) -> tuple[str, int]:
    """(folder, bytes) of the checkpoint; an earlier one of the name is removed first."""
    assert _session is not None
    folder = root / f"step1-{_session.spec.layout.mesh.signature}"
    remove(folder)
    saved = save(_session, 1, root)
    return str(saved.folder), sum(file.stat().st_size for file in saved.folder.iterdir())


def save_stock(root: Path) -> str:
    """A checkpoint as torch saves it."""
    assert _session is not None
    return str(save(_session, 1, root, "stock").folder)


def forget(folder: str) -> None:
    """Drop the folder's files from the page cache."""
    dist.barrier()
    if dist.get_rank() == 0:
        disk.drop_cache(Path(folder))
    dist.barrier()


def restore_once(folder: str, way: str, bytes_per_s: float | None = None) -> tuple[int, int]:
    """(bytes read from files by all ranks, bytes fetched from devices by all ranks)."""
    assert _session is not None
    throttle = Throttle(Path(folder).parent / "clock", bytes_per_s) if bytes_per_s else None
    start = disk.process_io() or (0, 0)
    if way == "stock":
        restore_stock(_session, Path(folder), throttle)
        end = disk.process_io() or (0, 0)
        read = end[0] - start[0]
    else:
        read = restore(_session, Path(folder), way, throttle=throttle).storage_bytes  # type: ignore[arg-type]
        end = disk.process_io() or (0, 0)
    return sum(gathered(read)), sum(gathered(end[1] - start[1]))


def sequential(root: Path, nbytes: int) -> dict[str, float]:
    """The disk's own rates, bytes a second; rank 0 measures."""
    if dist.get_rank() != 0:
        return {}
    rates = disk.sequential_rates(root, nbytes)
    return {"write": rates.write_bytes_per_s, "read": rates.read_cold_bytes_per_s}
