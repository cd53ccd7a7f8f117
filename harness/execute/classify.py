"""What ended a run: one failure class from saved job output, or from the exit codes and outputs of its ranks.

The texts that decide are data (``failure_rules``). The engine here looks for the root cause: it collects the first
line of every rule, drops what another line makes a consequence, and takes the tier closest to the root.
"""

from __future__ import annotations

import re
import signal
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterator, Mapping
from itertools import accumulate
from typing import NamedTuple

from harness.base import Frozen
from harness.execute.failure_memory import memory_finding, phase
from harness.execute.failure_rules import (
    CONFIG_EXCEPTIONS,
    CONSEQUENCES,
    NOISE,
    RULES,
    TIERS_BETWEEN_RANKS,
    WRAPPER_EXCEPTIONS,
    Rule,
    Tier,
)
from harness.failure import FailureClass


class Verdict(Frozen):
    """Why a run ended, and what shows it."""

    failure: FailureClass
    line: str | None = None  # the line that decided, stripped, else as in the input
    rule: str  # the reason in a few words
    host: str | None = None  # the host that failed, where the text names it
    rank: int | None = None  # the rank that failed first, where the text names it
    fatal: bool = True  # False for a healthy run and for warnings that end none
    detail: str | None = None  # what more is known, such as "fragmentation, in backward"


HEALTHY = Verdict(failure=FailureClass.NONE, rule="no sign of failure", fatal=False)

# A pattern sees its line and the one after, cut to this many characters on either side of the place found, so that
# the time is linear in the text whatever the lines are.
_BEFORE, _AFTER = 400, 800
_LONG = 10_000  # characters kept of either end of a longer line
_REPEATS = 200  # lines kept of either end of those that differ in hexadecimal digits only
_LABEL = r"(?:\[?\w+\]?:\s?){0,3}"  # what srun --label and torchrun put before each line


def _literal(pattern: str) -> str:
    """The longest run of ``pattern`` that any match must hold as it stands; groups and classes hold none."""
    runs, depth, quantified = [""], 0, re.compile(r"[*?]|\{\d")
    for token in re.findall(r"\\.|\[\^?\]?[^\]]*\]|\{\d+,?\d*\}|.", pattern):
        if token in "()":
            depth += 1 if token == "(" else -1
            runs.append("")
        elif quantified.match(token):
            runs[-1] = runs[-1][:-1]
            runs.append("")
        elif depth or (len(token) > 1 and token[1].isalnum()) or token[0] in "[.^$+":
            runs.append("")
        else:
            runs[-1] += token[-1]
    best = max(runs, key=len)
    if len(best) < 3:
        raise ValueError(f"no literal to search for in {pattern!r}")
    return best


def _compiled(pattern: str) -> re.Pattern[str]:
    spaced = re.sub(r" (?![*+?{])", r"\\s+", pattern.replace("^", "^" + _LABEL)).replace(" ", r"\s")
    return re.compile(spaced, re.MULTILINE)


class _Probe(NamedTuple):
    """One text of a rule, ready to be searched."""

    word: str  # the longest word of the literal
    literal: str
    pattern: re.Pattern[str]

    @classmethod
    def of(cls, text: str) -> _Probe:
        literal = _literal(text)
        return cls(max(re.findall("[a-z]*", literal), key=len), literal, _compiled(text))


_PROBES: tuple[tuple[Rule, tuple[_Probe, ...]], ...] = tuple(
    (rule, tuple(map(_Probe.of, rule.texts))) for rule in RULES
)
_WORDS = {probe.word for _, probes in _PROBES for probe in probes}
_NOISE = _compiled("|".join(NOISE))
_LETTERS = bytes(c if chr(c).isalpha() and c < 128 else 32 for c in range(256))
_EXCEPTION = re.compile(
    rf"{_LABEL}((?:[A-Za-z_]\w{{0,60}}\.){{0,8}}[A-Z]\w{{0,60}}(?:Error|Exception|Exit|Interrupt))(?:: |:?$)"
)
_EXCEPTION_NAME = re.compile(r"([A-Za-z_][\w.]{0,200})(?:: |:?$)")
_ANSI = re.compile(r"\x1b\[[0-9;]{0,20}[A-Za-z]")
_TRACEBACK = "Traceback (most recent call last)"


def _condensed(raw: list[str]) -> list[str]:
    """``raw`` without endless repeats (lines equal but for hexadecimal digits) and the middle of very long lines."""
    pieces: list[str] = []
    for line in raw:
        pieces += (line,) if len(line) <= 2 * _LONG else (line[:_LONG], line[-_LONG:])
    kinds = [line.encode("ascii", "replace").translate(None, b"0123456789abcdef") for line in pieces]
    total = Counter(kinds)
    seen: Counter[bytes] = Counter()
    kept = []
    for line, kind in zip(pieces, kinds, strict=True):
        seen[kind] += 1
        if seen[kind] <= _REPEATS or seen[kind] > total[kind] - _REPEATS:
            kept.append(line)
    return kept


class _Text:
    """A text made searchable: stripped lines joined again, and the same in lower-case ASCII of equal length."""

    def __init__(self, text: str) -> None:
        self.raw = _condensed((_ANSI.sub("", text) if "\x1b" in text else text).splitlines())
        self.lines = [line.strip() for line in self.raw]
        self.flat = "\n".join(self.lines)
        ascii_bytes = self.flat.encode("ascii", "replace").lower()
        self.lower = ascii_bytes.decode("ascii")
        self.unwrapped = self.lower.replace("\n", " ")
        # A word that is not among the text's words spares a search through all of it.
        words = b" ".join(set(ascii_bytes.translate(_LETTERS).split())).decode("ascii")
        self.words = {word for word in _WORDS if word in words}
        self.starts = list(accumulate((len(line) + 1 for line in self.lines), initial=0))

    def line_at(self, position: int) -> int:
        return bisect_right(self.starts, position) - 1

    def window(self, position: int) -> tuple[int, int]:
        """The span around ``position``: from the line before to the end of the next one, cut to a fixed length."""
        line = self.line_at(position)
        start = max(self.starts[max(line - 1, 0)], position - _BEFORE)
        return start, min(self.starts[min(line + 2, len(self.lines))], position + _AFTER)

    def find(self, probe: _Probe) -> int | None:
        """The line of the first match of ``probe`` that is not noise."""
        if probe.word not in self.words:
            return None
        position = self.unwrapped.find(probe.literal)
        while position >= 0:
            start, end = self.window(position)
            for match in probe.pattern.finditer(self.lower[start:end]):
                line = self.line_at(start + match.start())
                if not self.is_noise(line):
                    return line
            position = self.unwrapped.find(probe.literal, self._next(position))
        return None

    def _next(self, position: int) -> int:
        return min(self.starts[self.line_at(position) + 1], position + _AFTER)

    def is_noise(self, line: int) -> bool:
        start = self.starts[line]
        return _NOISE.search(self.lower[start : min(self.starts[line + 1], start + _AFTER)]) is not None


class _Found(NamedTuple):
    """A rule that holds, and where."""

    tier: Tier
    line: int
    order: int  # place in the table: between rules that meet on one line the earlier wins
    rule: Rule


def _collect(text: _Text) -> list[_Found]:
    found = []
    for order, (rule, probes) in enumerate(_PROBES):
        lines = [line for probe in probes if (line := text.find(probe)) is not None]
        if lines:
            found.append(_Found(rule.tier, min(lines), order, rule))
    if (exception := _first_exception(text)) is not None:
        found.append(exception)
    return found


def _first_exception(text: _Text) -> _Found | None:
    """The first uncaught Python exception that no rule knows and that does not pass on another process's end."""
    ignored: set[int] = set()
    named = dict(_traceback_ends(text, ignored))
    for line, name in sorted({**dict(_exception_lines(text)), **named}.items()):
        if line in ignored or WRAPPER_EXCEPTIONS.search(name) or text.is_noise(line) or _is_known(text, line):
            continue
        failure = FailureClass.CONFIG if CONFIG_EXCEPTIONS.search(name) else FailureClass.CRASH
        rule = Rule(failure, Tier.TRACE, f"uncaught {name.rpartition('.')[2]}", ())
        return _Found(Tier.TRACE, line, len(_PROBES), rule)
    return None


def _exception_lines(text: _Text) -> Iterator[tuple[int, str]]:
    """Lines that read like the last one of a traceback, whose head may be missing."""
    for word in ("Error", "Exception"):
        position = text.flat.find(word)
        while position >= 0:
            line = text.line_at(position)
            match = _EXCEPTION.match(text.lines[line][:_BEFORE])
            if match is not None:
                yield line, match[1]
            position = text.flat.find(word, text.starts[line + 1])


def _traceback_ends(text: _Text, ignored: set[int]) -> Iterator[tuple[int, str]]:
    """The last line of each traceback and the exception's name; ``ignored`` receives those that Python swallowed."""
    position = text.flat.find(_TRACEBACK)
    while position >= 0:
        head = text.line_at(position)
        label = text.raw[head].partition("Traceback")[0]
        for line in range(head + 1, min(head + 400, len(text.raw))):
            body = text.raw[line].removeprefix(label)
            if body[:1].isspace() or not body or not text.raw[line].startswith(label):
                continue
            if head and text.lines[head - 1].startswith(label.strip() + "Exception ignored in"):
                ignored.add(line)
            match = _EXCEPTION_NAME.match(body)
            if match is not None:
                yield line, match[1]
            break
        position = text.flat.find(_TRACEBACK, text.starts[head + 1])


_ENDS = frozenset({Tier.KILL, Tier.EXIT, Tier.TERM, Tier.STOP, Tier.CANCEL})


def _is_known(text: _Text, line: int) -> bool:
    """Whether a rule about causes or symptoms matches the exception's line, or the one after if it goes on there."""
    goes_on = line + 1 < len(text.lines) and not _EXCEPTION.match(text.lines[line + 1][:_BEFORE])
    start = text.starts[line]
    window = text.lower[start : min(text.starts[line + 1 + goes_on], start + _AFTER)]
    unwrapped = window.replace("\n", " ")
    return any(
        probe.literal in unwrapped and probe.pattern.search(window)
        for rule, probes in _PROBES
        if rule.tier not in _ENDS
        for probe in probes
    )


def _root(found: list[_Found]) -> _Found | None:
    """The finding closest to the root cause."""
    after: dict[Tier, int] = {}
    for tier, silenced in CONSEQUENCES.items():
        lines = [f.line for f in found if f.tier is tier]
        for other in silenced if lines else ():
            after[other] = min(after.get(other, min(lines)), min(lines))
    causes = [f for f in found if f.line <= after.get(f.tier, f.line)]
    return min(causes or found, default=None)


_RANK = re.compile(
    r"\[rank ?(\d{1,7})\]|\brank[ :=#]{1,3}(\d{1,7})\b|\btasks? \[?(\d{1,7})|^(\d{1,7}): (?!.{0,20}rank)", re.IGNORECASE
)
_HOST = re.compile(
    r"[Nn]ode failure on (\S{1,200})|failed on node ([^\s:]{1,200})|srun: error: ([\w.-]{1,200}): tasks?\b"
    r"|(?:^|\s)([\w.-]{1,200}):\d+:\d+ \[\d+\]|\s([\w.-]{1,200}) kernel: |on node (\S{1,200}) exited"
)
_ROOT_CAUSE = re.compile(r"host\s*: (\S{1,200})\s+rank\s*: (\d{1,7})")
_LAGGING = re.compile(r"\[(\d{1,7})\] finished collective #\d+, but didn't join")


def _first_group(pattern: re.Pattern[str], line: str) -> str | None:
    match = pattern.search(line[:2000])
    return next((group for group in match.groups() if group), None) if match else None


def _rank_and_host(text: _Text, root: _Found, found: list[_Found]) -> tuple[int | None, str | None]:
    """The rank and the host that failed, from the lines of the deciding class, else from torchrun's summary."""
    same = [root, *sorted(f for f in found if f.rule.failure is root.rule.failure and f.tier is root.tier)]
    ranks = (_first_group(_RANK, text.lines[f.line]) for f in same)
    hosts = (_first_group(_HOST, text.lines[f.line]) for f in same)
    rank, host = next(filter(None, ranks), None), next(filter(None, hosts), None)
    summary = text.flat.find("Root Cause (first observed failure)")
    if summary >= 0 and root.tier > Tier.NODE and root.tier not in (Tier.STOP, Tier.CANCEL):
        match = _ROOT_CAUSE.search(text.flat[summary : summary + 1000])
        if match is not None:
            host, rank = host or match[1], rank or match[2]
    return None if rank is None else int(rank), host


def _frames_above(text: _Text, line: int) -> str:
    """The traceback that ends at ``line``, without its head; empty when there is none."""
    frames: list[str] = []
    for number in range(line - 1, max(line - 200, -1), -1):
        if _TRACEBACK in text.lines[number]:
            return "\n".join(frames)
        frames.append(text.lines[number][:300])
    return ""


def _detail(text: _Text, root: _Found) -> str | None:
    if root.rule.failure is FailureClass.DEVICE_OOM:
        start = text.starts[root.line]
        finding = memory_finding(text.lower[start : start + 1200])
        return ", ".join(filter(None, (finding, phase(_frames_above(text, root.line))))) or None
    if root.rule.failure is FailureClass.COLLECTIVE_TIMEOUT:
        lagging = sorted({int(rank) for rank in _LAGGING.findall(text.flat)})
        if lagging:
            return f"never joined the collective: rank {', '.join(map(str, lagging))}"
    return None


def _examine(raw: str) -> tuple[Tier, Verdict]:
    if not raw.strip():
        return Tier.LOST, Verdict(failure=FailureClass.LOST, rule="no output")
    text = _Text(raw)
    found = _collect(text)
    root = _root(found)
    if root is None:
        return Tier.LOST, HEALTHY
    rank, host = _rank_and_host(text, root, found)
    if root.rule.failure is FailureClass.COLLECTIVE_TIMEOUT and (lagging := _LAGGING.search(text.flat)):
        rank = int(lagging[1])
    return root.tier, Verdict(
        failure=root.rule.failure,
        line=_storable(text.lines[root.line]),
        rule=root.rule.why,
        host=None if host is None else _storable(host),
        rank=rank,
        fatal=root.tier is not Tier.NOTE,
        detail=_detail(text, root),
    )


def _storable(line: str) -> str:
    """``line`` without the lone surrogates that undecodable bytes leave behind."""
    return line.encode("utf-8", "replace").decode("utf-8")


def classify_text(text: str) -> Verdict:
    """The failure class of saved job output, with the line that decided it.

    Empty output is ``lost``; output without any sign of failure is ``none``. Any text has a verdict.
    """
    return _examine(text)[1]


_SIGNAL_TIERS = {
    **dict.fromkeys((signal.SIGSEGV, signal.SIGBUS, signal.SIGFPE, signal.SIGILL, signal.SIGSYS), Tier.OWN),
    signal.SIGABRT: Tier.ABORT,
    **dict.fromkeys((signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2), Tier.TERM),
}


def _judge_code(code: int | None) -> tuple[Tier, Verdict]:
    """What an exit code alone says: negative, or above 128, is the signal that the process died of."""
    if code is None:
        return Tier.LOST, Verdict(failure=FailureClass.LOST, rule="no exit code and no output that tells why")
    number = -code if code < 0 else code - 128
    try:
        name = signal.Signals(number).name
    except ValueError:
        return Tier.EXIT, Verdict(failure=FailureClass.CRASH, rule=f"exited with code {code}")
    tier = _SIGNAL_TIERS.get(signal.Signals(number), Tier.KILL)
    failure = FailureClass.CANCELLED if tier is Tier.TERM else FailureClass.CRASH
    return tier, Verdict(failure=failure, rule=f"killed by signal {number} ({name})")


def _judge_rank(code: int | None, raw: str) -> tuple[Tier, Verdict] | None:
    """What one rank's exit code and output say together; None for a rank that ended well."""
    tier, verdict = _examine(raw)
    told = verdict.failure not in (FailureClass.NONE, FailureClass.LOST)
    if code == 0:
        return (tier, verdict) if tier is Tier.NOTE else None
    by_code = _judge_code(code)
    if not told or tier is Tier.NOTE or (by_code[0] < tier and by_code[0] is not Tier.EXIT):
        return by_code
    return tier, verdict


def classify_exit(exit_codes: Mapping[int, int | None], text_by_rank: Mapping[int, str]) -> Verdict:
    """The root cause among the ranks of one run, from their exit codes (None: unknown) and outputs.

    The verdict's ``rank`` is the rank that died by a cause of its own; ranks that were only left alone by it, timed
    out on it or were asked to stop afterwards are symptoms.
    """
    judged = []
    for rank in sorted({*exit_codes, *text_by_rank}):
        result = _judge_rank(exit_codes.get(rank), text_by_rank.get(rank, ""))
        if result is not None:
            judged.append((TIERS_BETWEEN_RANKS.index(result[0]), rank, result[1]))
    if not judged:
        return HEALTHY if exit_codes else Verdict(failure=FailureClass.LOST, rule="no ranks reported")
    _, rank, verdict = min(judged, key=lambda item: item[:2])
    named = verdict.rank if verdict.failure is FailureClass.COLLECTIVE_TIMEOUT else None
    return verdict.model_copy(update={"rank": rank if named is None else named})
