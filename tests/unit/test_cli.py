"""The command's manners: wrong use is exit code 2 and one line, and writes nothing."""

from __future__ import annotations

import json
from pathlib import Path

import click
import pytest

from harness.cli import _run, cli
from harness.store import SweepStore
from tests.unit.factories import make_plan, make_records, make_store

CPU = ("--device", "cpu")


@pytest.fixture(autouse=True)
def in_an_empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["run", "--layouts", "zero3", *CPU], "unknown layout 'zero3'; choose one of: single, ddp, fsdp, hsdp, tp"),
        (["run", "--layouts", "hsdp:r2x2", *CPU], "mesh 'r2x2' is not a signature; write r<dp_replicate>s<dp_shard>"),
        (["run", "--layouts", "fsdp+colour=red", *CPU], "unknown layout option 'colour'; choose one of: reshard_after"),
        (["run", "--layouts", "fsdp+precision=fp8", *CPU], "layout option precision=fp8 does not fit"),
        (
            ["run", "--layouts", "ddp+cpu_offload=true", *CPU],
            "no layout is legal on 4 ranks .*leave it out",
        ),
        (
            ["run", "--layouts", "hsdp:r2s4", *CPU],
            "hsdp r2s4 needs 8 ranks, not 4; the nearest .* is hsdp:r2s2",
        ),
        (
            ["run", "--layouts", "ddp:r4", "--batch", "6", *CPU],
            "global batch 6 does not divide .* batch is 4 or 8",
        ),
        (
            ["run", "--layouts", "hsdp", "--ranks", "5", *CPU],
            "no layout is legal .*5 ranks do not factor so",
        ),
        (["run", "--model", "9b", *CPU], "unknown model '9b'; choose one of: tiny, small, 125m"),
        (["run", "--model", "nowhere.at.all:build", *CPU], "cannot import 'nowhere.at.all'"),
        (["run", "--name", "a/b", *CPU], "--name 'a/b': use letters, digits"),
        (["run", "--run-timeout", "0", *CPU], "Invalid value for '--run-timeout': 0.0 is not in the range"),
        (["run", "--collective-timeout", "inf", *CPU], "Invalid value for '--collective-timeout': inf is not in the"),
        (["calibrate", "--run-timeout", "nan", *CPU], "Invalid value for '--run-timeout': nan is no number; give one"),
        (["calibrate", "--run-timeout", "-5", *CPU], "Invalid value for '--run-timeout': -5.0 is not in the range"),
        (["run", "--layouts", ",", *CPU], "--layouts names none; leave it out for every legal layout"),
        (["run", "--layouts", "zero3", "--detach", *CPU], "unknown layout 'zero3'"),
        (["run", "--layouts", "hsdp:r2s4", "--detach", *CPU], "hsdp r2s4 needs 8 ranks, not 4"),
        (["run", "--warmup-min", "10", "--warmup-max", "2", *CPU], "--warmup-min 10 is above --warmup-max 2; lower"),
        (["run", "--seed", str(2**63), *CPU], "9223372036854775808 is not in the range"),
        (["score", "absent.csv"], "absent.csv is no file"),
        (["run", "--mesh", "absent.toml", *CPU], "absent.toml"),
        (["run", "--order", "tp,dp", *CPU], "order 'tp,dp' must name each of dp_replicate, dp_shard, tp once"),
        (["run", "--ranks", "0", *CPU], "0 is not in the range x>=1"),
        (["run", "--device", "cuda"], "--device cuda, but no GPU was found"),
        (["run", "--frobnicate"], "No such option"),
        (["frobnicate"], "No such command 'frobnicate'"),
        (["status"], "no sweeps in results; start one with 'meshsweep run'"),
        (["report", "absent"], "no sweep folder results/absent; no sweeps in results"),
        (["resume", "/nowhere/at/all"], "no sweep folder /nowhere/at/all"),
        (["topology", "--from", "absent.txt"], "absent.txt"),
        (["layouts", "--nodes", "2"], "--nodes describes a cluster with --gpus-per-node"),
        (["layouts", "--gpus-per-node", "2"], "--gpus-per-node needs --nodes"),
    ],
)
def test_wrong_use_is_one_line_and_writes_nothing(
    arguments: list[str], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    import re

    assert _run(arguments) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert re.search(message, captured.err), captured.err
    assert captured.err.startswith("meshsweep: ")
    assert captured.err.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


def test_a_newer_or_broken_record_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    store = make_store(tmp_path)
    record = next((store.folder / "records").glob("*.json"))
    record.write_text(json.dumps({**json.loads(record.read_text()), "schema_version": 99}))
    assert _run(["report"]) == 2
    assert f"{record.name} has schema version 99" in capsys.readouterr().err
    record.write_text("half a rec")
    assert _run(["status"]) == 2
    assert "is not JSON" in capsys.readouterr().err
    assert not (store.folder / "report").exists()


def test_dry_run_shows_the_plan_and_writes_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert _run(["run", "--dry-run", "--detach", "--json", *CPU]) == 0
    captured = capsys.readouterr()
    document = json.loads(captured.out)
    meshes = {(x["strategy"], *x["mesh"].values()) for x in document["layouts"]}
    assert meshes == {
        ("ddp", 4, 1, 1),
        ("fsdp", 1, 4, 1),
        ("hsdp", 2, 2, 1),
        ("tp", 1, 1, 4),
        ("fsdp_tp", 1, 2, 2),
        ("ddp_tp", 2, 1, 2),
    }
    assert [p["layout"]["strategy"] for p in document["pruned"]] == ["hsdp_tp"]
    assert "ddp:r4" in captured.err
    assert list(tmp_path.iterdir()) == []


def test_report_names_the_winner_and_writes_its_files(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    store = make_store(tmp_path)
    assert _run(["report"]) == 0
    assert capsys.readouterr().out.startswith("Train with ddp r4: 10,000 tokens/s [9,879, 10,123], 50.0% [50.0,")
    assert {"report.md", "cells.csv", "tokens_per_s.png"} <= {p.name for p in (store.folder / "report").iterdir()}


def test_several_sweeps_give_one_report(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name, step_time_s in (("one", 0.1), ("two", 0.2)):
        plan = make_plan(["ddp:r4"]).model_copy(update={"name": name})
        store = SweepStore.create(tmp_path / "results", plan)
        for record in make_records(plan, {"ddp:r4": step_time_s}):
            store.add(record)
    assert _run(["report", "one", "two", "--json"]) == 0
    captured = capsys.readouterr()
    assert [found["plan"]["name"] for found in json.loads(captured.out)] == ["one", "two"]
    assert "one: Train with ddp r4: 10,000 tokens/s [" in captured.err
    assert "report: results/side-by-side/report.html" in captured.err
    page = (tmp_path / "results" / "side-by-side" / "report.html").read_text()
    assert "10,000 [" in page and "5,000 [" in page


def test_status_says_how_far_each_cell_is(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    make_store(tmp_path)
    assert _run(["status", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert {(c["layout"], c["state"], c["rounds"]) for c in document["cells"]} == {
        ("ddp r4", "measured", 3),
        ("fsdp s4", "measured", 3),
        ("hsdp r2s2", "measured", 3),
    }


@pytest.mark.parametrize("command", [*cli.commands])
def test_every_command_explains_itself_with_an_example(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert _run([command, "--help"]) == 0
    assert f"meshsweep {command}" in capsys.readouterr().out


@pytest.mark.parametrize("group", [[], ["mesh"], ["checkpoint"]])
@pytest.mark.parametrize("columns", ["60", "80", "200"])
def test_no_description_of_a_command_is_cut(
    group: list[str], columns: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", columns)
    assert _run([*group, "--help"]) == 0
    text = capsys.readouterr().out
    listed = " ".join(text.split("Commands:")[1].split())
    commands = cli.commands[group[0]] if group else cli
    assert isinstance(commands, click.Group)
    for name, command in commands.commands.items():
        sentence = (command.help or "").split(".\n")[0].split(". ")[0].split(".\n\n")[0]
        assert f"{name} {' '.join(sentence.split())}".replace("- ", "-") in listed.replace("- ", "-")
    assert "..." not in listed


def test_every_command_has_json() -> None:
    groups = [c.commands.values() if isinstance(c, click.Group) else [c] for c in cli.commands.values()]
    leaves = [one for group in groups for one in group]
    without = [one.name for one in leaves if "--json" not in [text for option in one.params for text in option.opts]]
    assert (len(leaves) > 20, without) == (True, [])


def test_cancel_answers_with_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    store = make_store(tmp_path)
    assert _run(["cancel", "--json"]) == 0
    out, err = capsys.readouterr()
    assert json.loads(out) == {"sweep": store.folder.name, "ended_jobs": []}
    assert err == f"sweep {store.folder.name}: ended nothing, no job ran\n"


def test_watch_leaves_stdout_to_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    store = make_store(tmp_path)
    assert _run(["status", "--watch", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["sweep"] == store.folder.name


def test_classify_names_the_class_and_the_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "a.out").write_text("step 1\nslurmstepd: error: *** JOB 7 ON n1 CANCELLED AT 1 DUE TO TIME LIMIT ***\n")
    (tmp_path / "b.out").write_text("epoch 1 loss 2.0\nepoch 2 loss 1.9\n")
    assert _run(["classify", "a.out", "b.out", "--json"]) == 0
    first, second = json.loads(capsys.readouterr().out)
    assert (first["file"], first["failure"]) == ("a.out", "time_limit")
    assert "DUE TO TIME LIMIT" in first["line"]
    assert (second["failure"], second["line"]) == ("none", None)
    assert _run(["classify", "absent.out"]) == 2
