"""Where NCCL's log of one rank lies in a launch's folder."""

from __future__ import annotations

from pathlib import Path

LOG_BYTES = 8 << 20


def nccl_log(folder: Path, rank: int) -> Path:
    """The file; its name begins as those of an attempt do, so that it is put aside with them."""
    return folder / f"rank{rank}.nccl.log"


def read_nccl_log(folder: Path, rank: int) -> str:
    """Its beginning, where communicators are made; empty if there is none."""
    try:
        with nccl_log(folder, rank).open("rb") as file:
            return file.read(LOG_BYTES).decode("utf-8", errors="replace")
    except OSError:
        return ""
