"""Imports flow one way, and planning starts without torch."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import harness

ROOT = Path(harness.__file__).parent

# Each unit may import those before it, and itself. Units with the same number do not import each other.
LEVEL = {
    "errors": 0,
    "base": 0,
    "": 0,
    "workload": 1,
    "failure": 1,
    "startup": 1,
    "comms": 1,
    "accelerators": 1,
    "topology": 2,
    "layout": 3,
    "mesh": 4,
    "slurm": 4,
    "traffic": 4,
    "exposure": 4,
    "compute_profile": 4,
    "calibration": 5,
    "memory_kinds": 5,
    "checkpoint": 5,
    "spec": 5,
    "doctor": 6,
    "record": 6,
    "stats": 6,
    "gate": 7,
    "race": 7,
    "store": 7,
    "predict": 7,
    "launch": 8,
    "score": 8,
    "forecast": 8,
    "compare": 8,
    "measure": 8,
    "history": 9,
    "interchange": 9,
    "report": 10,
    "recommend": 11,
    "train": 9,
    "execute": 9,
    "sweep": 10,
    # what of predict runs the layouts' own code; nobody imports it at start
    "predict.fakes": 10,
    "predict.trace": 11,
    "nightly": 11,
    "cli": 12,
    "entry": 13,
}
TORCH_USERS = {"train", "measure", "predict.fakes", "predict.trace"}


def unit(module: str) -> str:
    parts = module.split(".")
    if ".".join(parts[1:3]) in LEVEL:
        return ".".join(parts[1:3])
    return parts[1] if len(parts) > 1 else ""


def imports(path: Path) -> list[str]:
    found = []
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module:
            found.append(node.module)
    return found


FILES = [pytest.param(path, id=str(path.relative_to(ROOT))) for path in sorted(ROOT.rglob("*.py"))]


@pytest.mark.parametrize("path", FILES)
def test_a_module_imports_only_what_lies_below_it(path: Path) -> None:
    relative = path.relative_to(ROOT).with_suffix("")
    own = unit(".".join(("harness", *relative.parts)).removesuffix(".__init__"))
    for name in imports(path) if own else []:  # the package itself is the front door, and imports when it is called
        if name.split(".")[0] == "harness":
            other = unit(name)
            assert other == own or LEVEL[other] < LEVEL[own], f"{own} imports {name}"
        if name.split(".")[0] == "torch":
            assert own in TORCH_USERS, f"{own} imports {name}"


def test_planning_does_not_import_torch(tmp_path: Path) -> None:
    code = (
        "import sys; from harness.cli import _run;"
        "codes = [_run(a.split()) for a in ('--help', 'layouts --device cpu', 'run --dry-run --device cpu')];"
        "heavy = [m for m in ('torch', 'pandas', 'matplotlib', 'scipy') if m in sys.modules];"
        "print(codes, heavy, file=sys.stderr); sys.exit(any(codes) or len(heavy))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
