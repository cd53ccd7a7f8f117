"""``meshsweep classify``: the failure class of saved job outputs."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import click

from harness.cli.options import json_option
from harness.errors import UsageError


@click.command()
@click.argument("files", nargs=-1, required=True, type=click.Path(path_type=Path), metavar="FILE...")
@json_option
def classify(files: tuple[Path, ...], as_json: bool) -> int:
    """Name what ended a job, and the line that shows it, from its saved output (``-`` reads standard input).

    Exit code 0 whatever the class is.

    \b
    Examples:
      meshsweep classify slurm-1234.out
      meshsweep classify results/mysweep/launches/*/rank*.log --json
    """
    from harness.execute.classify import classify_text

    verdicts = [(str(path), classify_text(_read(path))) for path in files]
    for name, verdict in verdicts:
        known = {"rank": verdict.rank, "host": verdict.host}
        place = "".join(f", {word} {value}" for word, value in known.items() if value is not None)
        detail = f" ({verdict.detail})" if verdict.detail else ""
        click.echo(f"{name}: {verdict.failure}{place}: {verdict.rule}{detail}", err=as_json)
        if verdict.line:
            click.echo(f"    {verdict.line}", err=as_json)
    if as_json:
        document = [{"file": name, **verdict.model_dump(mode="json")} for name, verdict in verdicts]
        click.echo(json.dumps(document, indent=1))
    return 0


def _read(path: Path) -> str:
    try:
        data = sys.stdin.buffer.read() if str(path) == "-" else path.read_bytes()
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror or error}; give the saved output of a job") from error
    return data.decode("utf-8", errors="replace")
