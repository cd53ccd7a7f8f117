"""Slurm's compressed host lists, both ways, with the order kept: rank order follows it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import product

from harness.errors import TopologyError
from harness.topology.plain import one_line

MAX_HOSTS = 1 << 17
_MAX_DIGITS = 18  # of a number that counts; GUIDs and the like are never ranges
_RANGE = re.compile(r"([0-9]{1,18})(?:-([0-9]{1,18}))?\Z")
_NOTHING = {"", "(null)", "none assigned", "n/a", "none"}


def expand(text: str) -> tuple[str, ...]:
    """The hosts of ``text`` in its own order: ``n[1-2,05],login`` gives n1, n2, n05, login."""
    if text.strip().lower() in _NOTHING:
        return ()
    hosts: list[str] = []
    for part in _split(text):
        hosts.extend(_expand_one(part, MAX_HOSTS - len(hosts)))
    return tuple(hosts)


def compress(hosts: Sequence[str]) -> str:
    """A host list that :func:`expand` turns back into ``hosts``, in the same order."""
    for host in hosts:
        if not host or re.search(r"[\s,\[\]]", host):
            raise TopologyError(f"{one_line(host)!r} cannot stand in a host list; give plain host names")
    parts: list[str] = []
    start = 0
    while start < len(hosts):
        end, part = _longest_run(hosts, start)
        parts.append(part)
        start = end
    text = ",".join(parts)
    # A single host that reads as "no host" needs brackets or company; it is refused rather than lost.
    if text.lower() in _NOTHING and hosts:
        raise TopologyError(f"{text!r} means 'no host' in Slurm; give the node another name")
    return text


def expand_counts(text: str) -> tuple[int, ...]:
    """Per-node counts as Slurm writes them: ``2(x3),1`` gives 2, 2, 2, 1."""
    counts: list[int] = []
    for part in text.strip().split(","):
        match = re.fullmatch(r"\s*([0-9]{1,9})(?:\(x([0-9]{1,9})\))?\s*", part)
        if match is None:
            raise TopologyError(f"{one_line(text)!r} is no list of counts; expected the form 2(x3),1")
        repeat = int(match.group(2) or 1)
        if repeat + len(counts) > MAX_HOSTS:
            raise TopologyError(f"{one_line(text)!r} counts more than {MAX_HOSTS} nodes; check the repeats")
        counts.extend([int(match.group(1))] * repeat)
    return tuple(counts)


def _split(text: str) -> list[str]:
    """The parts between the commas (or blanks) that stand outside brackets."""
    parts, depth, start = [], 0, 0
    for position, character in enumerate(text):
        if character == "[":
            depth += 1
        elif character == "]":
            depth -= 1
        elif depth == 0 and (character == "," or character.isspace()):
            parts.append(text[start:position])
            start = position + 1
        if depth not in (0, 1):
            break
    if depth != 0:
        raise TopologyError(f"host list {one_line(text)!r} has brackets that do not pair; copy the whole list")
    parts.append(text[start:])
    return [part for part in parts if part.strip()]


def _expand_one(part: str, room: int) -> list[str]:
    """The hosts of one part; several brackets multiply, the last one fastest."""
    pieces = re.split(r"\[([^\[\]]*)\]", part)
    choices: list[list[str]] = []
    total = 1
    for position, piece in enumerate(pieces):
        choices.append(_numbers(piece, part) if position % 2 else [piece])
        total *= len(choices[-1])
        if total > room:
            raise TopologyError(f"host list {one_line(part)!r} names more than {MAX_HOSTS} hosts; shorten it")
    return ["".join(combination) for combination in product(*choices)]


def _numbers(inside: str, part: str) -> list[str]:
    numbers: list[str] = []
    for item in inside.split(","):
        match = _RANGE.match(item.strip())
        if match is None:
            raise TopologyError(f"{one_line(item)!r} in host list {one_line(part)!r} is no number or range")
        first, last = match.group(1), match.group(2) or match.group(1)
        if int(last) < int(first):
            raise TopologyError(f"range {item.strip()!r} in host list {one_line(part)!r} runs backward; swap it")
        if int(last) - int(first) + len(numbers) >= MAX_HOSTS:
            raise TopologyError(f"host list {one_line(part)!r} names more than {MAX_HOSTS} hosts; shorten it")
        numbers.extend(str(value).zfill(len(first)) for value in range(int(first), int(last) + 1))
    return numbers


def _longest_run(hosts: Sequence[str], start: int) -> tuple[int, str]:
    """End and text of the longest run from ``start`` whose names differ in one number only."""
    first = re.split(r"([0-9]+)", hosts[start])
    varying: int | None = None
    end = start + 1
    while end < len(hosts):
        place = _one_difference(first, re.split(r"([0-9]+)", hosts[end]))
        if place is None or (varying is not None and place != varying):
            break
        varying = place
        end += 1
    if varying is None:
        return start + 1, hosts[start]
    values = [re.split(r"([0-9]+)", host)[varying] for host in hosts[start:end]]
    before, after = "".join(first[:varying]), "".join(first[varying + 1 :])
    return end, f"{before}[{_ranges(values)}]{after}"


def _one_difference(first: list[str], other: list[str]) -> int | None:
    """The place of the one number in which two split names differ; None if they differ otherwise."""
    if len(first) != len(other):
        return None
    places = [place for place, pair in enumerate(zip(first, other, strict=True)) if pair[0] != pair[1]]
    if len(places) != 1 or places[0] % 2 == 0:
        return None
    place = places[0]
    return place if max(len(first[place]), len(other[place])) <= _MAX_DIGITS else None


def _ranges(values: list[str]) -> str:
    """Numbers as ranges where each follows the one before in value and padding, else singly."""
    runs: list[list[str]] = []
    for value in values:
        if runs and str(int(runs[-1][-1]) + 1).zfill(len(runs[-1][0])) == value:
            runs[-1].append(value)
        else:
            runs.append([value])
    return ",".join(run[0] if len(run) == 1 else f"{run[0]}-{run[-1]}" for run in runs)
