"""Commands that are interrupted, before and while they print a document, and options that are given twice."""

from __future__ import annotations

import fcntl
import json
import signal
import struct
import subprocess
import sys
import termios
import time
from pathlib import Path

import pytest

from harness import entry
from harness.cli import _run
from tests.unit.factories import make_store

BIG = ("plan", "--model", "405b", "--nodes", "512", "--gpus-per-node", "8", "--gpu", "b200", "--json")


@pytest.fixture(autouse=True)
def in_an_empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def waiting_bytes(process: subprocess.Popen[bytes]) -> int:
    """Bytes in the pipe that nobody has read."""
    assert process.stdout is not None
    found: int = struct.unpack("i", fcntl.ioctl(process.stdout, termios.FIONREAD, b"0000"))[0]
    return found


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_nothing_follows_a_document_that_was_interrupted(number: signal.Signals) -> None:
    """The document is larger than a pipe holds, so that the command is in the middle of it."""
    whole = subprocess.run([sys.executable, "-m", "harness.cli", *BIG], capture_output=True, check=True).stdout
    assert len(whole) > 100_000
    process = subprocess.Popen(
        [sys.executable, "-m", "harness.cli", *BIG], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    limit = time.monotonic() + 60
    last = 0
    while time.monotonic() < limit and not (0 < (now := waiting_bytes(process)) == last):
        last = now
        time.sleep(0.2)
    process.send_signal(number)
    time.sleep(0.2)
    out, err = process.communicate(timeout=30)
    assert process.returncode == 130
    assert whole.startswith(out)
    assert err.splitlines()[-1] == b"meshsweep: interrupted"
    assert b"Traceback" not in err


@pytest.mark.parametrize("command", ["report", "recommend", "status"])
def test_an_interruption_before_the_document_is_one(
    command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    make_store(tmp_path)

    def interrupted(_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("harness.store.SweepStore.records", interrupted)
    assert _run([command, "--json"]) == 130
    out, err = capsys.readouterr()
    error = {"type": "KeyboardInterrupt", "message": "interrupted", "exit_code": 130}
    assert json.loads(out) == {"error": error}
    assert err.strip() == "meshsweep: interrupted"
    assert _run([command]) == 130
    assert capsys.readouterr().out == ""


def test_a_sweep_that_is_interrupted_says_how_it_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    store = make_store(tmp_path)

    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("harness.sweep.drive.drive", interrupted)
    assert _run(["resume", store.folder.name, "--results", str(tmp_path / "results"), "--json"]) == 130
    out, err = capsys.readouterr()
    message = f"'meshsweep resume sweep --results {tmp_path / 'results'}' runs the rest"
    assert message in err
    assert message in json.loads(out)["error"]["message"]
    assert _run(["resume"]) == 130
    assert "what was measured is kept, 'meshsweep resume sweep' runs the rest" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["recommend", "--weights", "speed=1", "--weights", "restore=1"], "--weights is given 2 times; give it once"),
        (["run", "--batch", "8", "--batch=16", "--batch", "32"], "--batch is given 3 times"),
        (["checkpoint", "measure", "--matrix", "--no-matrix"], "--matrix is given 2 times"),
        (["mesh", "check", "--file", "a", "--file", "b"], "--file"),
    ],
)
def test_an_option_that_takes_one_value_is_given_once(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert _run(arguments) == 2
    err = capsys.readouterr().err
    assert message in err
    assert err.count("\n") == 1


def test_saying_the_same_again_or_listing_more_is_no_mistake(capsys: pytest.CaptureFixture[str]) -> None:
    cluster = ("--model", "tiny", "--nodes", "1", "--gpus-per-node", "4", "--layouts", "ddp", "--layouts", "fsdp")
    assert _run(["layouts", *cluster, "--json", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert {one["strategy"] for one in found["layouts"]} == {"ddp", "fsdp"}


def test_an_interruption_while_everything_is_imported_is_one_line_too(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    class Importing:
        def __getattr__(self, name: str) -> object:
            raise KeyboardInterrupt

    monkeypatch.setitem(sys.modules, "harness.cli", Importing())
    with pytest.raises(SystemExit) as ended:
        entry.main()
    assert ended.value.code == 130
    assert capsys.readouterr().err == "meshsweep: interrupted\n"
