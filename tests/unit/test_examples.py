"""Every command has an example, and every example, in help and documents alike, is one that the command takes."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from harness.cli import cli

ROOT = Path(__file__).parents[2]
DOCUMENTS = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


def commands(command: click.Command, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    if isinstance(command, click.Group):
        for name, inner in command.commands.items():
            yield from commands(inner, (*path, name))
    else:
        yield path, command


def lines_of(text: str) -> list[str]:
    """Lines that start with the command, without prompt, comment, redirection and what follows in a pipe."""
    found = [line.strip().removeprefix("$ ").removeprefix(".venv/bin/") for line in text.splitlines()]
    return [re.split(r"\s+(?:#|>|\|)|\s{3,}", line)[0] for line in found if line.startswith("meshsweep ")]


def take(line: str) -> None:
    """Parse a line as the command would; files that are not here are no mistake of the line.

    Raises:
        click.ClickException: the command does not take it.
    """
    words = shlex.split(line)[1:]
    command: click.Command = cli
    context = click.Context(cli, info_name="meshsweep")
    while isinstance(command, click.Group) and words and not words[0].startswith("-"):
        name, command, words = command.resolve_command(context, words)  # type: ignore[assignment]
        context = click.Context(command, info_name=name, parent=context)
    if isinstance(command, click.Group) or {"--help", "--version"} & set(words):
        return
    try:
        command.make_context(context.info_name, words, parent=context.parent)
    except click.BadParameter as error:
        if "does not exist" not in error.message:
            raise


@pytest.mark.parametrize(("path", "command"), [pytest.param(p, c, id=" ".join(p)) for p, c in commands(cli)])
def test_a_commands_help_has_an_example_that_it_takes(path: tuple[str, ...], command: click.Command) -> None:
    examples = lines_of(command.help or "")
    own = f"meshsweep {' '.join(path)}"
    assert any(line == own or line.startswith(f"{own} ") for line in examples), f"'{own}' has no example in its help"
    for line in examples:
        take(line)


@pytest.mark.parametrize("document", [pytest.param(path, id=str(path.relative_to(ROOT))) for path in DOCUMENTS])
def test_the_command_takes_what_documents_show(document: Path) -> None:
    for line in lines_of(document.read_text(encoding="utf-8")):
        plain = re.sub(r"\[[^\]]*\]", "", line)  # optional parts
        take(plain)


@pytest.mark.parametrize(
    "line", ["meshsweep frobnicate", "meshsweep report --colour red", "meshsweep recommend --objective fast"]
)
def test_a_wrong_line_would_be_found(line: str) -> None:
    with pytest.raises(click.ClickException):
        take(line)


@pytest.mark.parametrize("document", [pytest.param(path, id=str(path.relative_to(ROOT))) for path in DOCUMENTS])
def test_links_of_documents_lead_somewhere(document: Path) -> None:
    for target in re.findall(r"\]\(([^)#:]+)\)", document.read_text(encoding="utf-8")):
        assert (document.parent / target).exists(), f"{document.name} links to {target}"
