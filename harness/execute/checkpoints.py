"""A checkpoint study on this machine: every way for each layout, and every pair of meshes, in few sets of ranks."""

from __future__ import annotations

import os
import platform
import shutil
import tempfile
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

Say = Callable[[str], None]
Keep = Callable[[CheckpointStudy], None]


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
    after each layout, so that nothing measured is lost. What is not asked for stays as in ``earlier``.
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
        layouts=earlier.layouts if earlier and not ways else (),
        pairs=earlier.pairs if earlier and not matrix else (),
    )
    storage.mkdir(parents=True, exist_ok=True)
    root = Path(tempfile.mkdtemp(prefix=".checkpoint-study-", dir=storage))
    try:
        with ExitStack() as stack:
            groups = _Groups(device, root, stack)
            for spec in specs if ways else ():
                found = found.model_copy(update={"layouts": (*found.layouts, _ways(spec, groups, root, say))})
                keep(found)
            for pairs in _matrix(specs, groups, root, say) if matrix else ():
                found = found.model_copy(update={"pairs": (*found.pairs, *pairs)})
                keep(found)
    finally:
        shutil.rmtree(root, ignore_errors=True)
    return found


def _ways(spec: RunSpec, groups: _Groups, root: Path, say: Say) -> LayoutStudy:
    say(f"{spec.layout.label}: every way to save and to restore")
    try:
        parts = groups(spec.ranks.world_size).call(WAYS, spec, root / "ways", timeout_s=TIMEOUT_S)[0]
    except RankError as error:
        return LayoutStudy(layout=spec.layout.text, error=str(error))
    return LayoutStudy(layout=spec.layout.text, parts=parts)


def _matrix(specs: Sequence[RunSpec], groups: _Groups, root: Path, say: Say) -> Iterator[list[Pair]]:
    """All pairs with one target after the other."""
    sources: list[Source] = []
    failed: list[tuple[RunSpec, str]] = []
    for number, spec in enumerate(specs):
        say(f"{spec.layout.label}: saved for every other mesh")
        try:
            group = groups(spec.ranks.world_size)
            sources.append(group.call(f"{MATRIX}:save_source", spec, root / f"source{number}", timeout_s=TIMEOUT_S)[0])
        except RankError as error:
            failed.append((spec, f"not saved: {error}"))
    for spec in specs:
        say(f"{spec.layout.label}: restored from every mesh")
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
