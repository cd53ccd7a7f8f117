"""A checkpoint study on this machine: every way for each layout, and every pair of meshes, in few sets of ranks."""

from __future__ import annotations

import os
import platform
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from datetime import UTC, datetime
from pathlib import Path

import harness
from harness.checkpoint.study import CheckpointStudy, LayoutStudy, Pair, Source
from harness.execute.ranks import RankError, RankGroup
from harness.layout import Layout
from harness.spec import DeviceKind, Ranks, RunSpec, Settings
from harness.workload import Workload

WORKER = "harness.train.worker"
MATRIX = "harness.train.checkpoint.matrix"
WAYS = "harness.train.remote:checkpoint_ways"
TIMEOUT_S = 900.0
# how long parts take in relation to each other, tiny on CPUs: every way, a save, a restore of one source
_WAYS, _SAVE, _RESTORE = 6.0, 0.7, 1.3

Say = Callable[[str], None]
Keep = Callable[[CheckpointStudy], None]


class _Parts:
    """Says which part comes now, of how many, and how long the rest takes at the pace so far.

    ``weights``: how long each part takes, in its order, in relation to the others.
    """

    def __init__(self, weights: Sequence[float], say: Say) -> None:
        self._weights, self._say = weights, say
        self._done, self._began = 0, time.monotonic()

    def next(self, text: str) -> None:
        done, left = sum(self._weights[: self._done]), sum(self._weights[self._done :])
        rest = f", about {left_text((time.monotonic() - self._began) * left / done)} left" if done else ""
        self._done += 1
        self._say(f"[{self._done}/{len(self._weights)}] {text}{rest}")


def left_text(seconds: float) -> str:
    """Whole seconds, minutes from 90 s on."""
    return f"{seconds / 60:.0f} min" if seconds > 90 else f"{seconds:.0f} s"


class _Groups:
    """Rank processes by world size, started when first asked for and anew after a failure."""

    def __init__(self, device: DeviceKind, logs: Path, stack: ExitStack) -> None:
        self._device, self._logs, self._stack = device, logs, stack
        self._found: dict[int, RankGroup] = {}

    def __call__(self, world_size: int) -> RankGroup:
        group = self._found.get(world_size)
        if group is None or not group.usable:
            env = {"GLOO_SOCKET_IFNAME": "lo"} if self._device == "cpu" else {}
            group = self._stack.enter_context(RankGroup(world_size, log_folder=self._logs, env=env))
            threads = max(1, len(os.sched_getaffinity(0)) // world_size)
            port = group.call_one(0, f"{WORKER}:serve_store")
            group.call(f"{WORKER}:enter", port, world_size, self._device, TIMEOUT_S, threads)
            self._found[world_size] = group
        return group


def study(
    layouts: Sequence[Layout],
    workload: Workload,
    device: DeviceKind,
    storage: Path,
    command: str,
    ways: bool = True,
    matrix: bool = True,
    settings: Settings | None = None,
    say: Say = lambda _: None,
    keep: Keep = lambda _: None,
    earlier: CheckpointStudy | None = None,
) -> CheckpointStudy:
    """Measure; checkpoints are written into a temporary folder in ``storage`` and removed.

    A layout or pair that fails is in the result with its reason, and the rest goes on. ``keep`` is given what there is
    after each layout, so that nothing measured is lost. What is not asked for, or not measured anew yet, stays as in
    ``earlier``, where that was made on the same ground.
    """
    specs = [
        RunSpec(
            layout=layout,
            workload=workload,
            ranks=Ranks(device=device, per_node=(layout.mesh.world_size,)),
            settings=settings or Settings(),
            purpose="verify",
        )
        for layout in layouts
    ]
    found = CheckpointStudy(
        created_at=datetime.now(UTC).isoformat(timespec="seconds"),
        command=command,
        model=workload.model.name,
        host=platform.node(),
        versions={"meshsweep": harness.__version__, "python": platform.python_version()},
        cpu_count=os.cpu_count(),
    )
    if earlier is not None and found.same_ground(earlier):
        found = found.on_top_of(earlier)
    count = len(specs)
    parts = _Parts([*[_WAYS] * count * ways, *[_SAVE] * count * matrix, *[_RESTORE * count] * count * matrix], say)
    storage.mkdir(parents=True, exist_ok=True)
    root = Path(tempfile.mkdtemp(prefix=".checkpoint-study-", dir=storage))
    try:
        with ExitStack() as stack:
            groups = _Groups(device, root, stack)
            for spec in specs if ways else ():
                found = found.with_layout(_ways(spec, groups, root, parts))
                keep(found)
            for pairs in _matrix(specs, groups, root, parts) if matrix else ():
                found = found.with_pairs(pairs)
                keep(found)
    finally:
        shutil.rmtree(root, ignore_errors=True)
    return found


def _ways(spec: RunSpec, groups: _Groups, root: Path, parts: _Parts) -> LayoutStudy:
    parts.next(f"{spec.layout.label}: every way to save and to restore")
    try:
        measured = groups(spec.ranks.world_size).call(WAYS, spec, root / "ways", timeout_s=TIMEOUT_S)[0]
    except RankError as error:
        return LayoutStudy(layout=spec.layout.text, error=str(error))
    return LayoutStudy(layout=spec.layout.text, parts=measured)


def _matrix(specs: Sequence[RunSpec], groups: _Groups, root: Path, parts: _Parts) -> Iterator[list[Pair]]:
    """All pairs with one target after the other."""
    sources: list[Source] = []
    failed: list[tuple[RunSpec, str]] = []
    for number, spec in enumerate(specs):
        parts.next(f"{spec.layout.label}: saved for every other mesh")
        try:
            group = groups(spec.ranks.world_size)
            sources.append(group.call(f"{MATRIX}:save_source", spec, root / f"source{number}", timeout_s=TIMEOUT_S)[0])
        except RankError as error:
            failed.append((spec, f"not saved: {error}"))
    for spec in specs:
        parts.next(f"{spec.layout.label}: restored from every mesh")
        try:
            group = groups(spec.ranks.world_size)
            pairs = group.call(f"{MATRIX}:restore_sources", spec, sources, timeout_s=TIMEOUT_S)[0]
        except RankError as error:
            pairs = [_no_pair(source.layout, source.world_size, spec, str(error)) for source in sources]
        yield [*pairs, *(_no_pair(s.layout.text, s.ranks.world_size, spec, why) for s, why in failed)]


def _no_pair(source: str, source_ranks: int, target: RunSpec, reason: str) -> Pair:
    return Pair(
        source=source,
        source_ranks=source_ranks,
        target=target.layout.text,
        target_ranks=target.ranks.world_size,
        reason=reason,
    )
