"""Saved terminal output made plain: escapes, encodings and the host labels that launchers put around it."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from harness.errors import TopologyError
from harness.topology import hostlist

_MAX_BYTES = 64 << 20
_ANSI = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|[@-Z\\-_])")
_INVISIBLE = re.compile("[\x00-\x08\x0e-\x1f\x7f\u200b-\u200f\u2060\ufeff]")
_HOST = r"[A-Za-z0-9][A-Za-z0-9_.-]*"
_PROMPT = re.compile(rf"\s*(?:\([^()]*\)\s*)?\[?[\w.-]+@({_HOST})(?::|\s)[^$#>%]*[$#>%](?:\s|$)")
_PREFIX = re.compile(rf"({_HOST}):(?:[ ](?=[ \t]*\S)|\t|[ ]*$)")
_FRAME = re.compile(r"[-=]{4,}\Z")
_BANNER = re.compile(r"(?:==>|={2,}|#{2,}|-{2,}|\*{2,})\s*(\S+)\s*(?:<==|=*|#*|-*|\**)\Z")
_ANSIBLE = re.compile(rf"({_HOST}) \| (?:CHANGED|SUCCESS|FAILED)\b.*>>\Z")
_NAMED = re.compile(rf"(?i:host|hostname|node|nodename|SLURMD_NODENAME)\s*[:=]\s*({_HOST})\Z")
_ALONE = re.compile(r"([A-Za-z][A-Za-z_.-]*[0-9][A-Za-z0-9_.-]*):\Z")


@dataclass(frozen=True)
class Section:
    """One machine's part of a text; several hosts where a launcher merged equal outputs, none if unnamed."""

    hosts: tuple[str, ...]
    text: str


def load(path: Path) -> str:
    """The text of a saved file, whatever encoding the terminal or PowerShell gave it."""
    try:
        if path.stat().st_size > _MAX_BYTES:
            raise TopologyError(f"{path} is larger than 64 MiB; cut the part with the listing out of it")
        data = path.read_bytes()
    except OSError as error:
        cause = error.strerror or type(error).__name__
        raise TopologyError(f"cannot read {path}: {cause}; check the path and its permissions") from error
    except ValueError as error:
        raise TopologyError(f"cannot read {str(path)!r}: not a file name; check the path") from error
    return clean(decode(data))


def decode(data: bytes) -> str:
    """UTF-16 with a byte-order mark, else UTF-8, else Latin-1."""
    if data.startswith((b"\xff\xfe", b"\xfe\xff")):
        return data.decode("utf-16", errors="replace")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError:
        return data.decode("latin-1")


def clean(text: str) -> str:
    """``text`` without escapes, invisible characters, HTML entities and foreign line ends."""
    text = _ANSI.sub("", text).replace("\r\n", "\n").replace("\r", "\n")
    text = _INVISIBLE.sub("", text).replace("\u00a0", " ")
    for entity, character in (("&gt;", ">"), ("&lt;", "<"), ("&nbsp;", " "), ("&quot;", '"'), ("&amp;", "&")):
        text = text.replace(entity, character)
    return text


def sections(text: str) -> tuple[Section, ...]:
    """``text`` cut where it says that another machine begins; one unnamed section if it never does."""
    lines = text.split("\n")
    prefixed = _by_prefix(lines)
    if prefixed is not None:
        return prefixed
    found: list[tuple[tuple[str, ...], list[str]]] = [((), [])]
    for position, line in enumerate(lines):
        hosts = _marker(lines, position)
        if hosts and hosts != found[-1][0]:
            found.append((hosts, []))
        found[-1][1].append(line)
    kept = [Section(hosts, "\n".join(body)) for hosts, body in found if any(line.strip() for line in body)]
    return tuple(kept) or (Section((), text),)


def _by_prefix(lines: list[str]) -> tuple[Section, ...] | None:
    """The outputs of ``pdsh``, ``clush`` or ``srun -l``, where each line begins with its host or task."""
    matches = [_PREFIX.match(line) for line in lines]
    labels = Counter(match.group(1) for match in matches if match)
    filled = sum(bool(line.strip()) for line in lines)
    repeated = {label for label, count in labels.items() if count >= 2}
    if not repeated or 2 * sum(labels[label] for label in repeated) < filled:
        return None
    bodies: dict[str, list[str]] = {}
    for line, match in zip(lines, matches, strict=True):
        if match and match.group(1) in repeated:
            bodies.setdefault(match.group(1), []).append(line[match.end() :])
    return tuple(Section(() if label.isdigit() else (label,), "\n".join(body)) for label, body in bodies.items())


def _marker(lines: list[str], position: int) -> tuple[str, ...]:
    """The hosts that a line announces: a prompt, a banner, a frame of dashes, an ansible heading."""
    line = lines[position].strip()
    if not line or len(line) > 4096:
        return ()
    if prompt := _PROMPT.match(line):
        return (prompt.group(1),)
    framed = 0 < position < len(lines) - 1 and all(
        _FRAME.match(lines[near].strip()) for near in (position - 1, position + 1)
    )
    if framed:
        return _hosts(re.sub(r"\s*\([0-9]+\)\Z", "", line))
    for pattern in (_ANSIBLE, _NAMED, _ALONE):
        if match := pattern.match(line):
            return (match.group(1),)
    banner = _BANNER.match(line)
    if banner and re.search(r"[A-Za-z0-9]", banner.group(1)):
        return _hosts(re.sub(r"\.(?:txt|log|out)\Z", "", banner.group(1).strip("=#-*<>").rsplit("/", 1)[-1]))
    return ()


def _hosts(text: str) -> tuple[str, ...]:
    try:
        hosts = hostlist.expand(text)
    except TopologyError:
        return ()
    return hosts if all(re.fullmatch(_HOST, host) for host in hosts) else ()
