"""Every shell command of the README and of the how-tos, in order, in a folder as its reader has it.

Commands that read records get sweeps made by hand; what trains is real, with sizes made small by options. A command
that needs what is not here is left to the test named in ``ELSEWHERE``; other ``run`` lines plan and stop
(``--dry-run``), since the ranks of one sweep are like those of any other.
"""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import NamedTuple

import pytest

from harness.cli import _run
from harness.store import SweepStore
from tests.e2e.conftest import Command
from tests.unit.factories import MIB, make_ground, make_plan, make_records

pytestmark = [pytest.mark.distributed, pytest.mark.slow, pytest.mark.timeout(900)]

ROOT = Path(__file__).parents[2]
DOCUMENTS = [ROOT / "README.md", *sorted((ROOT / "docs" / "howto").glob("*.md"))]
PROGRAMS = ("meshsweep", "make", "cp", "pytest", ".venv/bin/pytest", ".venv/bin/meshsweep")
WORLDS = {"tiny-w4": 4, "tiny-w8": 8, "before": 4, "after": 4, "before-upgrade": 4, "after-upgrade": 4}

# A line as documents write it -> options that make it small, or that fill a place held open.
SMALL = "--device cpu --ranks 2 --batch 4 --seq-len 16 --rounds 1 --steps 4 --exposure-steps 0 --keep-checkpoints"
TRAINS = {
    "meshsweep run --layouts fsdp,fsdp+reshard_after_forward=false,fsdp+activation_checkpointing=full": SMALL,
    "meshsweep checkpoint measure": "--layouts fsdp:s2 --no-matrix",
}
FILLED = {"<name>": "fsdp", "FILE...": "steps.json"}
AGAIN = ("cp ", "meshsweep mesh init")  # what a document's later lines need; others run once, wherever they stand
ELSEWHERE = {
    "meshsweep calibrate": "tests/e2e/test_parts.py",
    "meshsweep nightly nightly --profile mysite": "tests/slurm/test_nightly.py",
    "make test": ".ci/run",
    "make bench": ".ci/run",
    ".venv/bin/pytest benchmarks/test_layouts.py": ".ci/run",
    ".venv/bin/pytest tests/contract/test_layouts.py": "tests/contract/test_layouts.py",
}
CODES = {"meshsweep compare": (0, 1), "meshsweep doctor": (0, 1, 2)}  # findings; no GPU to look at


class Line(NamedTuple):
    document: Path
    text: str


def lines_of(document: Path) -> list[Line]:
    """Commands of the fenced blocks that name no language, without their comments, and those within the text."""
    found: list[str] = []
    language: str | None = None
    for row in document.read_text(encoding="utf-8").splitlines():
        if row.strip().startswith("```"):
            language = row.strip()[3:] if language is None else None
        elif language is None:
            found += [code for code in re.findall(r"`([^`]+)`", row) if code.startswith("meshsweep ")]
        elif language == "":
            found.append(re.split(r"\s+# ", row)[0].strip())
    return [Line(document, text) for text in dict.fromkeys(found) if text.split(" ")[0] in PROGRAMS]


ALL = [line for document in DOCUMENTS for line in lines_of(document)]
_FIRST = {line.text: line for line in reversed(ALL)}
LINES = [
    line
    for line in ALL
    if not line.text.startswith(tuple(ELSEWHERE)) and (line.text.startswith(AGAIN) or _FIRST[line.text] is line)
]


@pytest.fixture(scope="module")
def sweeps(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The sweeps that documents speak of, of two worlds and of some nights."""
    results = tmp_path_factory.mktemp("documents") / "results"
    today = datetime.now(UTC)
    nights = {f"nightly-{(today - timedelta(days=day)):%Y%m%d-%H%M%S}": 4 for day in range(3, 0, -1)}
    for name, world_size in {**nights, **WORLDS}.items():
        shards = world_size // 2
        layouts = (f"ddp:r{world_size}", f"fsdp:s{world_size}", f"hsdp:r2s{shards}")
        plan = make_plan(layouts, world_size=world_size, rounds=4)
        plan = plan.model_copy(update={"name": name, "created_at": today.isoformat()})
        store = SweepStore.create(results, plan)
        ground = make_ground(device_memory_bytes=8 * 1024 * MIB)
        for record in make_records(plan, dict(zip(layouts, (0.12, 0.1, 0.11), strict=True))):
            store.add(record.model_copy(update={"ground": ground}))
    return results


@pytest.fixture(scope="module")
def place(sweeps: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[Path, Path]:
    """A folder for each document, with what its reader has beside the results."""
    return {document: _folder(tmp_path_factory.mktemp(document.stem), sweeps) for document in DOCUMENTS}


def _folder(folder: Path, sweeps: Path) -> Path:
    shutil.copytree(sweeps, folder / "results")
    shutil.copytree(ROOT / "slurm" / "profiles", folder / "slurm" / "profiles")
    shutil.copy(ROOT / "tests/unit/topology/inputs/clush_merged.txt", folder / "topo.txt")
    for name in ("Makefile", "pyproject.toml", "constraints.txt"):
        shutil.copy(ROOT / name, folder)
    (folder / "slurm-1234.out").write_text("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB\n")
    (folder / "mypackage").mkdir()
    (folder / "mypackage" / "models.py").write_text("from tests.e2e.faulty import model as build\n")
    assert (
        _run(["export", "--to", "pytest-benchmark", "--output", f"{folder}/steps.json", "--results", f"{sweeps}"]) == 0
    )
    return folder


@pytest.mark.parametrize("line", [pytest.param(line, id=f"{line.document.stem}: {line.text}") for line in LINES])
def test_a_command_of_a_document_does_what_it_says(
    line: Line, place: dict[Path, Path], monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    folder = place[line.document]
    monkeypatch.chdir(folder)
    monkeypatch.syspath_prepend(folder)
    if "checkpoint verify" in line.text:
        _checkpoint(folder)
    words = _words(line.text)
    if words[0] == "meshsweep":
        code = _run(words[1:]) if line.text not in TRAINS else _trained(words[1:], folder)
    else:
        code = subprocess.run(words, check=False).returncode
    said = capfd.readouterr()
    expected = next((codes for start, codes in CODES.items() if line.text.startswith(start)), (0,))
    assert code in expected, said.err or said.out
    assert (said.out or said.err).strip() or words[0] == "cp"


def _words(text: str) -> Sequence[str]:
    for held, filled in FILLED.items():
        text = text.replace(held, filled)
    words = shlex.split(re.sub(r"\[[^\]]*\]", "", text).removeprefix(".venv/bin/"))
    if words[0] == "make":
        return ["make", "--dry-run", *words[1:]]
    more = shlex.split(TRAINS.get(text, ""))
    if words[:2] == ["meshsweep", "run"] and not more:
        more = ["--dry-run"]
    return [word for word in (*words, *more) if word != "--detach"]


def _trained(words: Sequence[str], folder: Path) -> int:
    """In processes of its own, which are all gone afterwards."""
    command = Command(folder / "results")
    done = command.run(*words, timeout_s=600)
    print(done.stdout, done.stderr)
    assert command.left() == []
    return done.returncode


def _checkpoint(folder: Path) -> None:
    """The name that the document gives to a checkpoint that this sweep has kept."""
    kept = sorted((folder / "results").glob("*/launches/*/checkpoints/*/*.safetensors"))
    (folder / "ckpt").mkdir()
    shutil.copytree(kept[0].parent, folder / "ckpt" / "step1000-r2s4t1")


@pytest.mark.parametrize("start", ELSEWHERE)
def test_what_runs_elsewhere_is_in_a_document_and_its_test_exists(start: str) -> None:
    assert (ROOT / ELSEWHERE[start]).is_file()
    assert any(line.text.startswith(start) for line in ALL)


@pytest.mark.parametrize("text", TRAINS)
def test_what_has_options_of_its_own_is_in_a_document(text: str) -> None:
    assert any(line.text == text for line in LINES)
