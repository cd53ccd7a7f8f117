"""The rows of Slurm's node listings, whatever the command and its columns; no meaning is given to them here."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, replace

from harness.errors import TopologyError
from harness.topology import hostlist

_KEYS = re.compile(
    r"(?:^|\s)(NodeName|Gres|GresUsed|State|CPUTot|CPUs|RealMemory|Partitions|CfgTRES|Name|Type|File|Count)=(\S+)",
    re.I,
)
_START = re.compile(r"\s*(?:NodeName=|Name=[A-Za-z]\w*\s|Gres=)", re.I)
_CONTINUED = re.compile(r"[ \t]+\S+=|(?:Gres|GresUsed|State|CPUAlloc|RealMemory|Partitions|CfgTRES|NodeAddr)=", re.I)
# What `scontrol show job -d` says of one node's share of a job.
_JOB_PART = re.compile(r"\s*Nodes=(\S+) CPU_IDs=\S+ .*?\bGRES=(\S*)", re.I)
_HEADERS = {
    "host": ("NODELIST", "HOSTNAMES", "NODE", "NODEHOST", "NODE_NAME", "NODENAME", "HOSTNAME"),
    "gres": ("GRES",),
    "used": ("GRES_USED", "GRESUSED"),
    "state": ("STATE", "STATECOMPACT", "STATELONG", "ST"),
    "cpus": ("CPUS", "CPUS(A/I/O/T)", "CPUSTATE", "CPUSSTATE"),
    "memory": ("MEMORY", "MEM"),
    "partition": ("PARTITION",),
}
_COLUMN = {name: key for key, names in _HEADERS.items() for name in names}
# From the most to the least harmful; the short forms are those of ``sinfo -o %t``.
_WORST_FIRST = (
    ("down", "unk", "unknown", "error", "err", "inval", "future", "futr"),
    ("fail", "failing", "failg"),
    ("drained", "drain", "draining", "drng"),
    ("maint", "reboot", "boot", "power_down", "powered_down", "powering_down", "pow_dn", "power_up", "pow_up"),
    ("npc", "perfctrs", "blocked", "block"),
    ("reserved", "resv", "planned", "plnd"),
    ("completing", "comp"),
    ("allocated", "alloc"),
    ("mixed", "mix"),
    ("idle",),
)
_STATES = {word for words in _WORST_FIRST for word in words}
_FLAGS = "*~#!%$@^-+"
_GRES = re.compile(r"(?:gres[/:])?[A-Za-z][\w-]*(?::[\w.-]+|:\(null\))*:[0-9]+[KMGT]?(?:[(,]|\Z)|\(null\)\Z")
_HOST = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.,\[\]-]*\Z")


@dataclass(frozen=True)
class NodeRow:
    """One node in one row; what the row does not have is None."""

    host: str
    gres: str | None = None
    used: str | None = None
    state: str | None = None
    cpus: int | None = None
    memory_mib: int | None = None
    partition: str | None = None


def matches(text: str) -> bool:
    """Whether ``text`` is such a listing: records, a known header, or rows for the most part."""
    if text.lstrip().startswith("{"):
        return '"gres"' in text and ('"nodes"' in text or '"sinfo"' in text)
    lines = [line for line in text.split("\n") if line.strip() and not line.lstrip().startswith("#")]
    if any(
        re.match(r"\s*(?:NodeName=|Gres=\S+:)", line, re.I) or _JOB_PART.match(line) or _header(line) for line in lines
    ):
        return True
    return bool(lines) and sum(_bare_row(line) is not None for line in lines) > 0.8 * len(lines)


def rows(text: str, host: str = "node0") -> list[NodeRow]:
    """Every row of ``text``; ``host`` names a record that has no name of its own."""
    if text.lstrip().startswith("{"):
        return _from_json(text)
    text = re.sub(r"\\[ \t]*\n", " ", text)
    found: list[NodeRow] = []
    records: list[str] = []
    header: list[tuple[str, int]] | None = None
    for line in text.split("\n"):
        if _START.match(line) and not (records and re.match(r"\s*Gres=", line, re.I)):
            records.append(line)
        elif part := _JOB_PART.match(line):
            found.extend(
                NodeRow(host=name, gres=part.group(2), used=part.group(2)) for name in hostlist.expand(part.group(1))
            )
        elif records and _CONTINUED.match(line):
            records[-1] += " " + line
        elif names := _header(line):
            header = names
        elif line.strip() and not line.lstrip().startswith(("#", "-")):
            found.extend(_row(line, header))
    return found + _from_records(records, host)


def badness(state: str) -> int:
    """How much a state keeps jobs away; greater is worse."""
    words = re.split(r"\+", state.lower().rstrip(_FLAGS))
    ranks = [rank for rank, group in enumerate(_WORST_FIRST) for word in words if word.strip(_FLAGS) in group]
    return -min(ranks) if ranks else -len(_WORST_FIRST)


def _header(line: str) -> list[tuple[str, int]] | None:
    """Names and places of a ``sinfo`` header's columns."""
    words = [(match.group(), match.start()) for match in re.finditer(r"[^\s|]+", line)]
    keys = {_COLUMN.get(word.upper()) for word, _ in words if word == word.upper()}
    if "host" not in keys or len(words) < 2 or "JOBID" in line or any("=" in word for word, _ in words):
        return None
    return words if all(re.fullmatch(r"[A-Z][A-Z_():/-]*", word) for word, _ in words) else None


def _row(line: str, header: list[tuple[str, int]] | None) -> list[NodeRow]:
    if header is None:
        bare = _bare_row(line)
        return [] if bare is None else [replace(bare, host=name) for name in hostlist.expand(bare.host)]
    words = [word.strip() for word in line.split("|")] if "|" in line else line.split()
    if len(words) != len(header):
        words = _fit(words, line, header)
    values = {_COLUMN[name]: word for (name, _), word in zip(header, words, strict=True) if name in _COLUMN}
    if not _HOST.match(values["host"]):
        return []
    made = NodeRow(
        host="",
        gres=values.get("gres"),
        used=values.get("used"),
        state=values.get("state") or None,
        cpus=_integer(values.get("cpus", "").rsplit("/", 1)[-1]),
        memory_mib=_integer(values.get("memory", "").rstrip("+")),
        partition=values.get("partition", "").rstrip("*") or None,
    )
    return [replace(made, host=name) for name in hostlist.expand(values["host"])]


def _fit(words: list[str], line: str, header: list[tuple[str, int]]) -> list[str]:
    """One word a column: the blanks are in the reason, else a column is empty and its place tells which."""
    extra = len(words) - len(header)
    reason = next((place for place, (name, _) in enumerate(header) if name == "REASON"), None)
    if extra > 0 and reason is not None:
        end = reason + extra + 1
        return [*words[:reason], " ".join(words[reason:end]), *words[end:]]
    ends = [place for _, place in header[1:]] + [len(line)]
    return [line[start:stop].strip() for (_, start), stop in zip(header, ends, strict=True)]


def _bare_row(line: str) -> NodeRow | None:
    """A row without a header, told by the look of its words; None if it has neither state nor GRES."""
    words = line.split("|") if "|" in line else line.split()
    words = [word.strip() for word in words if word.strip()]
    states = [word for word in words if _is_state(word)]
    gres = [word for word in words if _GRES.match(word) and not _is_state(word)]
    used = next((word for word in gres[::-1] if "(IDX:" in word), gres[1] if len(gres) > 1 else None)
    others = [word for word in words if word not in (*states, *gres) and _HOST.match(word)]
    others = [word for word in others if not word.isdigit()]
    prose = sum(word.isalpha() for word in others) > 2 or re.search(r"[a-z][.:](?:\s|\Z)", line) is not None
    default_form = len(words) >= 5 and words[1] in ("up", "down", "drain", "inact")
    if len(words) < 2 or not others or not (states or gres or default_form) or prose:
        return None
    cpus = next((word for word in words if re.fullmatch(r"[0-9]+/[0-9]+/[0-9]+/[0-9]+", word)), "")
    return NodeRow(
        host=words[-1] if default_form else others[0],
        gres=next((word for word in gres if word != used), None),
        used=used,
        state=states[-1] if states else None,
        cpus=_integer(cpus.rsplit("/", 1)[-1]),
    )


def _is_state(word: str) -> bool:
    parts = word.lower().rstrip(_FLAGS).split("+")
    return parts[0] in _STATES


def _from_records(records: list[str], host: str) -> list[NodeRow]:
    """``scontrol`` records, node lines of slurm.conf, lines of gres.conf."""
    found: list[NodeRow] = []
    devices: dict[str, list[str]] = {}
    defaults: dict[str, str] = {}
    for record in records:
        values = {key.lower(): value for key, value in reversed(_KEYS.findall(record))}
        name = values.get("nodename", host)
        if name.upper() == "DEFAULT":
            defaults.update(values)
            continue
        if "name" in values:
            entry = _device_entry(values)
            for one in hostlist.expand(name):
                devices.setdefault(one, []).append(entry)
            continue
        found.extend(_record_rows(name, {**defaults, **values}))
    if len(devices) > 1:
        devices.pop(host, None)  # a line without a node name holds for all nodes and describes none
    found.extend(NodeRow(host=name, gres=",".join(entries)) for name, entries in devices.items())
    return found


def _record_rows(name: str, values: dict[str, str]) -> list[NodeRow]:
    state = values.get("state")
    made = NodeRow(
        host="",
        gres=values.get("gres") or _from_tres(values.get("cfgtres", "")),
        used=values.get("gresused"),
        state=None if state is None or state.upper() == "UNKNOWN" else state,
        cpus=_integer(values.get("cputot") or values.get("cpus", "")),
        memory_mib=_integer(values.get("realmemory", "")),
        partition=values.get("partitions"),
    )
    return [replace(made, host=one) for one in hostlist.expand(name)]


def _from_tres(text: str) -> str | None:
    parts = re.findall(r"gres/(gpu(?::[^,=:]+)?)=([0-9]+)", text)
    typed = [part for part in parts if ":" in part[0]]
    return ",".join(f"{name}:{count}" for name, count in typed or parts) or None


def _device_entry(values: dict[str, str]) -> str:
    """A line of gres.conf in the form of a GRES column."""
    count = values.get("count") or str(len(hostlist.expand(values.get("file", ""))) or 1)
    return ":".join(part for part in (values["name"], values.get("type"), count) if part)


def _from_json(text: str) -> list[NodeRow]:
    """``scontrol show node --json`` and ``sinfo --json``."""
    try:
        document = json.loads(text)
        if "nodes" in document:
            return [_json_node(node) for node in document["nodes"]]
        return [row for entry in document["sinfo"] for row in _json_rows(entry)]
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise TopologyError(
            "this JSON is not that of `scontrol show node --json` or `sinfo --json`; save one of these"
        ) from error


def _json_node(node: dict[str, object]) -> NodeRow:
    state = node.get("state")
    partitions = node.get("partitions")
    return NodeRow(
        host=str(node.get("name") or node["hostname"]),
        gres=str(node.get("gres") or ""),
        used=str(node["gres_used"]) if node.get("gres_used") else None,
        state="+".join(map(str, state)) if isinstance(state, list) else str(state or "") or None,
        cpus=_integer(str(node.get("cpus", ""))),
        memory_mib=_integer(str(node.get("real_memory", ""))),
        partition=",".join(map(str, partitions)) if isinstance(partitions, list) else None,
    )


def _json_rows(entry: dict[str, dict[str, object]]) -> list[NodeRow]:
    state = entry["node"].get("state")
    gres = entry.get("gres", {})
    names = entry["nodes"]["nodes"]
    return [
        NodeRow(
            host=str(name),
            gres=str(gres.get("total") or ""),
            used=str(gres["used"]) if gres.get("used") else None,
            state="+".join(map(str, state)) if isinstance(state, list) else None,
        )
        for name in (names if isinstance(names, list) else [])
    ]


def _integer(text: str) -> int | None:
    return int(text) if re.fullmatch(r"[0-9]{1,12}", text) else None
