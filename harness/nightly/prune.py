"""Old logs thrown away; plans, records and reports never."""

from __future__ import annotations

import shutil
import time
from collections.abc import Sequence
from pathlib import Path

DAY_S = 86_400.0
LOGS = ("launches", "jobs")


def prune_logs(sweeps: Sequence[Path], keep_days: float, keep_count: int, now: float | None = None) -> list[Path]:
    """Remove the log folders of sweeps that are both older than ``keep_days`` and not among the newest ``keep_count``.

    A sweep whose launches are not all recorded keeps its logs, since they are its samples. Returns what was removed.
    """
    moment = time.time() if now is None else now
    newest_first = sorted(sweeps, key=lambda sweep: (sweep / "sweep.json").stat().st_mtime, reverse=True)
    removed = []
    for sweep in newest_first[keep_count:]:
        age_s = moment - (sweep / "sweep.json").stat().st_mtime
        launches = [p for p in (sweep / "launches").glob("*") if p.is_dir()]
        if age_s <= keep_days * DAY_S or not all((launch / "collected").exists() for launch in launches):
            continue
        for name in LOGS:
            if (sweep / name).is_dir():
                shutil.rmtree(sweep / name)
                removed.append(sweep / name)
    return removed
