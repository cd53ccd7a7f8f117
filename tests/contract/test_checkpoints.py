"""Checkpoints on real ranks: the matrix of meshes, who writes and reads what, faults."""

from __future__ import annotations

import os
import pickle
import shutil
import signal
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from harness.checkpoint.manifest import read_manifest
from harness.checkpoint.names import MANIFEST, latest, partial_folder
from harness.checkpoint.study import LOSS_TOLERANCE, Pair, Source
from harness.checkpoint.verify import pieces_of, verify
from harness.execute.checkpoints import study
from harness.execute.ranks import RankError
from harness.predict.checkpoint import checkpoint_size
from harness.workload import make_workload
from tests.contract.conftest import GetGroup, start
from tests.contract.specs import layout, make_spec

pytestmark = pytest.mark.distributed

HERE = "tests.contract.checkpointing"
MATRIX = "harness.train.checkpoint.matrix"
FOUR = ("ddp:r4", "fsdp:s4", "hsdp:r2s2", "tp:t4", "fsdp_tp:s2t2", "ddp_tp:r2t2")
SMALLER = {"fsdp:s8": "fsdp:s4", "hsdp:r4s2": "hsdp:r2s2", "hsdp_tp:r2s2t2": "fsdp_tp:s2t2"}  # 8 <-> 4 ranks


def test_every_pair_of_meshes_is_equal_and_trains_on(rank_group: GetGroup, tmp_path: Path) -> None:
    """4 -> 4 for all, 8 -> 4 and 4 -> 8 for three, and down to one process. hsdp_tp needs 8 ranks, 2 on each axis."""

    def saved(text: str, ranks: int) -> Source:
        found: Source = rank_group(ranks).call(f"{MATRIX}:save_source", make_spec(text), tmp_path / str(ranks))[0]
        return found

    four = {text: saved(text, 4) for text in FOUR}
    eight = {text: saved(text, 8) for text in SMALLER}
    pairs: list[Pair] = []
    for target in FOUR:
        more = [eight[large] for large, small in SMALLER.items() if small == target]
        pairs += rank_group(4).call(f"{MATRIX}:restore_sources", make_spec(target), [*four.values(), *more])[0]
    for target, small in SMALLER.items():
        pairs += rank_group(8).call(f"{MATRIX}:restore_sources", make_spec(target), [four[small]])[0]
    last = [four["fsdp:s4"], four["tp:t4"], eight["hsdp_tp:r2s2t2"]]
    pairs += rank_group(1).call(f"{MATRIX}:restore_sources", make_spec("single"), last)[0]
    assert len(pairs) == 6 * 6 + 3 + 3 + 3
    assert all(pair.reason is None for pair in pairs)
    assert {(p.source, p.target): p.unequal for p in pairs if p.unequal} == {}
    assert {(p.source, p.target): p.loss_difference for p in pairs if not p.good} == {}
    assert {p.step for p in pairs} == {2}
    assert all(p.loss_difference == 0.0 for p in pairs if p.source == p.target), "the same mesh goes on bit by bit"
    assert all((p.loss_difference or 0.0) <= LOSS_TOLERANCE for p in pairs)


def test_a_study_keeps_what_it_has_and_leaves_no_checkpoint(tmp_path: Path) -> None:
    kept: list[int] = []
    said: list[str] = []
    found = study(
        [layout("ddp:r2"), layout("fsdp:s2")],
        make_workload("tiny", 8, 32),
        "cpu",
        tmp_path,
        "command",
        ways=False,
        say=said.append,
        keep=lambda one: kept.append(len(one.pairs)),
    )
    assert [(p.source, p.target, p.good) for p in found.pairs] == [
        (source, target, True) for target in ("ddp:r2", "fsdp:s2") for source in ("ddp:r2", "fsdp:s2")
    ]
    assert kept == [2, 4]
    assert [line.split(",")[0] for line in said] == [
        "[1/4] ddp r2: saved for every other mesh",
        "[2/4] fsdp s2: saved for every other mesh",
        "[3/4] ddp r2: restored from every mesh",
        "[4/4] fsdp s2: restored from every mesh",
    ]
    assert ["left" in line for line in said] == [False, True, True, True]
    assert list(tmp_path.iterdir()) == []


def test_a_pair_that_cannot_work_says_why_before_it_touches_anything(rank_group: GetGroup, tmp_path: Path) -> None:
    source = rank_group(4).call(f"{MATRIX}:save_source", make_spec("fsdp:s4"), tmp_path)[0]
    (pair,) = rank_group(4).call(f"{MATRIX}:restore_sources", make_spec("hsdp_tp:r2s2t2"), [source])[0]
    assert pair.reason is not None and "8" in pair.reason
    assert (pair.good, pair.equal, pair.time_s) == (None, None, None)


def test_ways_write_and_read_what_the_formulas_say(rank_group: GetGroup, tmp_path: Path) -> None:
    spec = make_spec("hsdp:r2s2")
    shape, mesh = spec.workload.model, spec.layout.mesh
    parts = rank_group(4).call(f"{HERE}:ways", spec, tmp_path)[0]
    plain = {s.way: s for s in parts.saves if s.digest and not s.asynchronous}
    assert set(plain) == {"one_group", "spread", "per_rank", "full", "stock"}
    for way, save in plain.items():
        if way == "stock":
            continue
        expected = checkpoint_size(shape, mesh, way)
        assert save.sizes.bytes_by_kind == expected.bytes_by_kind, way
        assert save.sizes.duplicate_bytes == expected.duplicate_bytes, way
        assert sum(n > 0 for n in save.written_bytes) == expected.files == save.sizes.files - 1, way
        assert sum(save.written_bytes) == save.total_bytes == save.sizes.total_bytes, way
    behind = next(s for s in parts.saves if s.asynchronous)
    assert behind.sizes == plain["one_group"].sizes.model_copy(update={"metadata_bytes": behind.sizes.metadata_bytes})
    unique = checkpoint_size(shape, mesh).unique_bytes
    for restore in parts.restores:
        extra = sum(restore.storage_bytes) - unique * (2 if restore.way in ("each", "stock") else 1)
        assert extra > 0, restore
        # on top of tensors the manifest once; stock adds its metadata on every rank and a container a tensor
        assert restore.way == "stock" or extra < plain["one_group"].sizes.metadata_bytes, restore
    assert {r.way for r in parts.restores} == {"one_group", "spread", "each", "stock"}


def test_four_replicas_read_each_byte_once(rank_group: GetGroup, tmp_path: Path) -> None:
    spec = make_spec("hsdp:r4s2")
    expected = checkpoint_size(spec.workload.model, spec.layout.mesh)
    parts = rank_group(8).call(f"{HERE}:reads", spec, tmp_path)[0]
    read = {(r.way, r.cache): sum(r.storage_bytes) for r in parts.restores}
    manifest = read["one_group", "cold"] - expected.unique_bytes
    assert 0 < manifest < parts.saves[0].sizes.metadata_bytes
    assert read["each", "cold"] == expected.read_by_each_bytes + manifest > 4 * expected.unique_bytes
    assert read["stock", "cold"] > 4 * expected.unique_bytes


def test_an_asynchronous_save_holds_the_state_of_its_step(rank_group: GetGroup, tmp_path: Path) -> None:
    spec = make_spec("hsdp:r2s2")
    saved = rank_group(4).call(f"{HERE}:save_behind", spec, tmp_path)[0]
    assert verify(latest(tmp_path), read_manifest(latest(tmp_path))) == []
    assert rank_group(4).call(f"{HERE}:restored", spec, latest(tmp_path))[0] == saved


@pytest.fixture(scope="module")
def two_ranks(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, dict[str, str]]]:
    """A root with the checkpoint ``step1-r1s2t1``, and its fingerprint."""
    root = tmp_path_factory.mktemp("saved")
    group = start(2, root)
    yield root, group.call(f"{HERE}:save_after", make_spec("fsdp:s2"), root, 1)[0]
    group.close()


def test_a_rank_killed_while_saving_leaves_the_previous_checkpoint(
    two_ranks: tuple[Path, dict[str, str]], rank_group: GetGroup, tmp_path: Path
) -> None:
    (root, saved), group = two_ranks, start(2, tmp_path)
    partial = partial_folder(root / "step2-r1s2t1")

    def kill_while_writing() -> None:
        deadline = time.monotonic() + 60
        while not list(partial.glob("shard-*")) and time.monotonic() < deadline:
            time.sleep(0.01)
        os.kill(group._processes[1].pid, signal.SIGKILL)

    killer = threading.Thread(target=kill_while_writing)
    killer.start()
    outcomes = group.run(f"{HERE}:save_after", make_spec("fsdp:s2"), root, 2, 200_000.0, timeout_s=60)
    killer.join()
    group.close()
    assert outcomes[1].exit_code == -signal.SIGKILL
    assert partial.is_dir(), "it was killed in the middle"
    assert not (root / "step2-r1s2t1").exists()
    whole = latest(root)
    assert whole.name == "step1-r1s2t1"
    assert verify(whole, read_manifest(whole)) == []
    assert rank_group(1).call(f"{HERE}:restored", make_spec("single"), whole)[0] == saved
    # and the next save of that step is not in the way of what was left
    group = start(2, tmp_path)
    group.call(f"{HERE}:save_after", make_spec("fsdp:s2"), root, 2)
    group.close()
    assert latest(root).name == "step2-r1s2t1"
    assert not partial.exists()
    shutil.rmtree(root / "step2-r1s2t1")


def test_a_full_disk_is_a_clear_failure_and_the_previous_checkpoint_whole(tmp_path: Path) -> None:
    done = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=3m", "tmpfs", str(tmp_path)], capture_output=True)
    if done.returncode != 0:
        pytest.skip("mounting a tmpfs is not permitted here")
    logs = tmp_path.with_name("logs")
    logs.mkdir()
    group = start(2, logs)
    try:
        group.call(f"{HERE}:save_after", make_spec("fsdp:s2"), tmp_path, 1)
        with pytest.raises(RankError, match=r"No space left on device on rank \d; older checkpoints are as they were"):
            group.call(f"{HERE}:save_after", make_spec("fsdp:s2"), tmp_path, 2)
        assert [path.name for path in tmp_path.iterdir()] == ["step1-r1s2t1"], "nothing half-written is left"
        assert verify(latest(tmp_path), read_manifest(latest(tmp_path))) == []
    finally:
        group.close()
        subprocess.run(["umount", str(tmp_path)], check=True)


def test_damage_is_named_by_file_and_key(
    two_ranks: tuple[Path, dict[str, str]], rank_group: GetGroup, tmp_path: Path
) -> None:
    root, _ = two_ranks
    folder = tmp_path / "step1-r1s2t1"
    shutil.copytree(root / folder.name, folder)
    manifest = read_manifest(folder)
    shard = manifest.files[1].name
    key, _, piece = pieces_of(manifest, shard)[3]
    content = bytearray((folder / shard).read_bytes())
    content[piece.begin + piece.nbytes // 2] ^= 1
    (folder / shard).write_bytes(content)
    with pytest.raises(RankError, match=f"{shard}: {key}: altered since it was written"):
        rank_group(2).call(f"{HERE}:restored", make_spec("fsdp:s2"), folder)
    (folder / shard).write_bytes(content[: piece.begin + 1])
    with pytest.raises(RankError, match=f"{shard}: {key}.*cut off"):
        rank_group(2).call(f"{HERE}:restored", make_spec("fsdp:s2"), folder)


class Bomb:
    """Runs a command when it is unpickled."""

    def __init__(self, proof: Path) -> None:
        self.proof = proof

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return os.system, (f"touch {self.proof}",)


def test_nothing_in_a_checkpoint_is_unpickled(
    two_ranks: tuple[Path, dict[str, str]], rank_group: GetGroup, tmp_path: Path
) -> None:
    (root, saved), proof = two_ranks, tmp_path / "executed"
    folder = tmp_path / "step1-r1s2t1"
    shutil.copytree(root / folder.name, folder)
    bomb = pickle.dumps(Bomb(proof))
    (folder / ".metadata").write_bytes(bomb)
    (folder / "__0_0.distcp").write_bytes(bomb)
    assert rank_group(2).call(f"{HERE}:restored", make_spec("fsdp:s2"), folder)[0] == saved
    strange = verify(folder, read_manifest(folder))
    assert [one.file for one in strange] == [".metadata", "__0_0.distcp"]
    shard = read_manifest(folder).files[0]
    (folder / shard.name).write_bytes(bomb.ljust(shard.size_bytes, b"\0"))
    with pytest.raises(RankError, match=f"{shard.name}: .* altered since it was written"):
        rank_group(2).call(f"{HERE}:restored", make_spec("fsdp:s2"), folder)
    (folder / MANIFEST).write_bytes(bomb)
    with pytest.raises(RankError, match=r"cannot read .*manifest.json|manifest.json is damaged"):
        rank_group(2).call(f"{HERE}:restored", make_spec("fsdp:s2"), folder)
    assert not proof.exists()
    pickle.loads(bomb)
    assert proof.exists(), "the bomb would have worked"
