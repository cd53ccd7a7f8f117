"""Launch folders made by hand, and the records that they must give."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.execute.collect import collect
from harness.failure import FailureClass
from harness.launch import folder as files
from harness.launch.folder import LaunchOutcome, RankEnd, write_launch, write_outcome
from harness.launch.progress import ProgressWriter, create
from harness.record import RunRecord
from harness.spec import Design, Launch
from harness.startup import Startup
from harness.sweep.steps import next_launches
from tests.unit.factories import layout, make_ground, make_plan

PLAN = make_plan(("ddp:r2", "fsdp:s2", "tp:t2"), world_size=2)
TEXTS = ("ddp:r2", "fsdp:s2", "tp:t2")
PEER_LOST = "RuntimeError: [gloo/transport/tcp/pair.cc:525] Connection closed by peer [127.0.0.1]:4242"
TIMED_OUT = "RuntimeError: [gloo/transport/tcp/unbound_buffer.cc:78] Timed out waiting 8000ms for recv operation"


class Folder:
    """A launch of three runs on two ranks."""

    def __init__(self, path: Path, design: Design = "alternated") -> None:
        self.path = path
        runs = tuple(PLAN.run(layout(text), "time") for text in TEXTS)
        write_launch(path, Launch(launch_id=path.name, runs=runs, design=design))
        create(path, (2,))
        self.progress = [ProgressWriter(path, rank, (2,)) for rank in (0, 1)]

    def sample(self, rank: int, kind: str, run: int, **values: Any) -> None:
        with (self.path / f"rank{rank}.jsonl").open("a") as file:
            file.write(json.dumps({"kind": kind, "run": run, **values}) + "\n")

    def steps(self, run: int, counts: tuple[int, int], done: bool = False) -> None:
        """Warm-up and ``counts[rank]`` steps of a run; step c of rank r takes c + r / 10 seconds."""
        for rank, count in enumerate(counts):
            self.sample(rank, "warmup", run, warmup_s=[0.3, 0.2, 0.2], steady=True)
            for cycle in range(count):
                self.sample(rank, "step", run, cycle=cycle, step_time_s=cycle + rank / 10)
            if done:
                self.sample(rank, "done", run)

    def at(self, rank: int, run: int, phase: str, times: int = 1) -> None:
        for _ in range(times):
            self.progress[rank].at(run, phase, 1.0)

    def end(self, *ends: RankEnd, timed_out: bool = False) -> None:
        outcome = LaunchOutcome(
            host="node0",
            started_at="2026-01-02T03:04:05+00:00",
            started_unix=1_000.0,
            wall_s=9.0,
            timed_out=timed_out,
            ends=ends,
        )
        write_outcome(self.path, outcome)


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    return Folder(tmp_path / "001-time-round0")


def test_a_launch_is_read_back_as_it_was_written(tmp_path: Path) -> None:
    for launch in next_launches(PLAN, [], 0):
        write_launch(tmp_path / launch.launch_id, launch)
        assert files.read_launch(tmp_path / launch.launch_id) == launch


def status(records: list[RunRecord]) -> list[str]:
    return [record.status for record in records]


def test_a_finished_launch_gives_a_measured_record_a_run(folder: Folder) -> None:
    folder.sample(0, "ground", 0, ground=make_ground().model_dump(mode="json"))
    folder.sample(0, "first_step", 1, unix=1_002.5)
    for run in range(3):
        folder.steps(run, (2, 2), done=True)
    folder.end(RankEnd(rank=0), RankEnd(rank=1))
    records = collect(folder.path, {PLAN.run(layout("fsdp:s2"), "time").run_id: 1})
    assert status(records) == ["measured"] * 3
    assert [record.attempt for record in records] == [0, 1, 0]
    assert records[1].startup_s == 2.5
    assert records[1].startup is None, "nobody noted when ranks were ready"
    assert records[1].ground == make_ground()
    timing = records[1].timing
    assert timing is not None
    assert timing.step_time_s == ((0.0, 1.0), (0.1, 1.1))
    assert timing.cycles == (0, 1)
    assert timing.companions == ("ddp r2", "fsdp s2", "tp t2")


def test_a_killed_rank_fails_the_run_that_it_was_in_and_interrupts_the_others(folder: Folder) -> None:
    for run in range(3):
        folder.steps(run, (2, 1))
    folder.at(0, 2, "timing", times=7)
    folder.at(1, 1, "timing", times=6)
    folder.end(RankEnd(rank=0, error=PEER_LOST), RankEnd(rank=1, exit_code=-9))
    records = collect(folder.path, {})
    assert status(records) == ["interrupted", "failed", "interrupted"]
    failure = records[1].failure
    assert failure is not None
    assert (failure.failure_class, failure.rank, failure.phase) == (FailureClass.CRASH, 1, "timing")
    assert failure.log == "launches/001-time-round0/rank1.log"
    assert records[0].failure is None
    kept = records[0].timing
    assert kept is not None
    assert kept.step_time_s == ((0.0,), (0.1,)), "only steps that every rank finished are steps"


def test_a_rank_that_hangs_is_blamed_by_its_position(folder: Folder) -> None:
    folder.at(0, 2, "timing", times=9)
    folder.at(1, 1, "timing", times=8)
    folder.end(RankEnd(rank=0, error=TIMED_OUT), RankEnd(rank=1, hung=True))
    records = collect(folder.path, {})
    assert status(records) == ["interrupted", "failed", "interrupted"]
    assert records[1].failure is not None
    assert records[1].failure.failure_class is FailureClass.COLLECTIVE_TIMEOUT
    assert records[1].failure.rank == 1


def test_of_ranks_in_the_same_step_the_one_that_never_came_back_is_blamed(folder: Folder) -> None:
    folder.at(0, 1, "timing", times=8)
    folder.at(1, 1, "timing", times=8)
    folder.end(RankEnd(rank=0, error=TIMED_OUT), RankEnd(rank=1, hung=True))
    failure = collect(folder.path, {})[1].failure
    assert failure is not None
    assert failure.rank == 1


def test_a_launch_past_its_limit_is_a_time_limit(folder: Folder) -> None:
    folder.at(0, 0, "warmup", times=3)
    folder.at(1, 0, "warmup", times=3)
    folder.end(RankEnd(rank=0, hung=True), RankEnd(rank=1, hung=True), timed_out=True)
    failure = collect(folder.path, {})[0].failure
    assert failure is not None
    assert failure.failure_class is FailureClass.TIME_LIMIT


def test_out_of_memory_in_company_is_an_interruption(folder: Folder) -> None:
    folder.at(0, 1, "build", times=2)
    folder.at(1, 1, "build", times=2)
    text = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 20.00 MiB."
    folder.end(RankEnd(rank=0, error=text), RankEnd(rank=1, error=PEER_LOST))
    records = collect(folder.path, {})
    assert status(records) == ["interrupted"] * 3
    assert records[1].failure is not None
    assert records[1].failure.failure_class is FailureClass.DEVICE_OOM


def test_a_job_that_is_gone_without_an_outcome_is_lost(folder: Folder) -> None:
    folder.steps(0, (1, 1))
    folder.at(0, 1, "timing", times=4)
    folder.at(1, 1, "timing", times=4)
    records = collect(folder.path, {})
    assert status(records) == ["interrupted", "failed", "interrupted"]
    assert records[1].failure is not None
    assert records[1].failure.failure_class is FailureClass.LOST


def test_what_is_cancelled_blames_nobody_and_keeps_its_samples(folder: Folder) -> None:
    folder.steps(0, (3, 3))
    records = collect(folder.path, {}, cancelled=True)
    assert status(records) == ["interrupted"] * 3
    assert records[0].timing is not None
    assert all(record.failure is None for record in records)


def test_a_launch_that_never_started_gives_nothing(tmp_path: Path) -> None:
    path = tmp_path / "002"
    runs = (PLAN.run(layout("ddp:r2"), "time"),)
    write_launch(path, Launch(launch_id="002", runs=runs, design="launches"))
    assert collect(path, {}) == []


def test_a_line_cut_short_by_a_death_is_left_out(folder: Folder) -> None:
    folder.steps(0, (1, 1))
    with (folder.path / "rank0.jsonl").open("a") as file:
        file.write('{"kind": "step", "run": 0, "cyc')
    read = files.read_samples(folder.path, 0)
    assert (len(read.whole), read.torn) == (2, 1)
    records = collect(folder.path, {}, cancelled=True)
    assert {record.torn_ranks for record in records} == {(0,)}
    assert files.read_samples(folder.path, 7) == ([], 0)


WORDS = st.text(max_size=6)
PLAIN = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | WORDS
SAMPLES = st.fixed_dictionaries(
    {"kind": WORDS, "run": st.integers(0, 9)},
    optional={"value": st.recursive(PLAIN, lambda x: st.lists(x, max_size=3) | st.dictionaries(WORDS, x, max_size=3))},
)


@given(st.lists(SAMPLES, max_size=4), st.booleans(), st.data())
def test_of_any_first_bytes_only_whole_samples_are_read(
    tmp_path_factory: pytest.TempPathFactory, samples: list[dict[str, Any]], escaped: bool, data: st.DataObject
) -> None:
    """A rank may die after any byte, in the middle of a character too; all that it had finished is there."""
    lines = [json.dumps(one, ensure_ascii=escaped).encode("utf-8", "surrogatepass") for one in samples]
    written = b"".join(line + b"\n" for line in lines)
    cut = data.draw(st.integers(0, len(written)))
    path = tmp_path_factory.mktemp("launch")
    (path / "rank3.jsonl").write_bytes(written[:cut])
    ends = [sum(len(line) + 1 for line in lines[: at + 1]) for at in range(len(lines))]
    whole = sum(end - 1 <= cut for end in ends)  # a sample is whole without its line break too
    begun = cut - (ends[whole - 1] if whole else 0)
    assert files.read_samples(path, 3) == (samples[:whole], int(begun > 0))


def test_how_long_a_launch_took_to_get_going_counts_from_its_jobs_start(folder: Folder) -> None:
    folder.sample(0, "entered", 0, unix=1_006.0)
    folder.steps(0, (3, 3), done=True)
    for rank in (0, 1):
        folder.sample(rank, "warmup", 1, warmup_s=[0.1], steady=True, unix=1_009.5)
        folder.sample(rank, "step", 1, cycle=0, step_time_s=0.1)
    folder.end(RankEnd(rank=0), RankEnd(rank=1))
    first, second, third = collect(folder.path, {})
    assert second.startup == Startup(ranks_s=6.0, first_timed_s=9.5)
    assert first.startup == third.startup == Startup(ranks_s=6.0)
