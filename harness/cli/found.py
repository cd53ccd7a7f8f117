"""What saved files say besides devices, as lines: nodes of Slurm, switches, blocks, host lists, NCCL's facts, NICs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from tabulate import tabulate

_MOST_ROWS = 40
_MOST_NAMES = 8

Form = Mapping[str, Any]


def found_lines(form: Form) -> list[str]:
    """All that ``json_object`` holds besides devices, links and meshes; empty where there is nothing."""
    nccl = form.get("nccl")
    return [
        *_nodes(form),
        *_nics(form.get("nodes", ())),
        *_job(form),
        *_switches(form),
        *[f"host list {one['text']}: {_named('host', one['hosts'])}" for one in form.get("hostlists", ())],
        *(_nccl(nccl) if nccl else ()),
    ]


def _nodes(form: Form) -> list[str]:
    """A table of nodes, where some have no devices or Slurm says more of them; lists below it may name all."""
    rows = [
        {
            "host": node["host"],
            "devices": str(len(node["devices"]) or ""),
            "tasks": str(node.get("tasks", "")),
            "GRES": _gres(node.get("gres") or ()),
            "GRES in use": _gres(node.get("gres_used") or ()),
            "state": node.get("state") or "",
            "switch": node.get("switch") or "",
        }
        for node in form.get("nodes", ())
    ]
    known = [name for name in (rows[0] if rows else ()) if any(row[name] for row in rows)]
    listed = any(form.get(key) for key in ("hostlists", "switches", "blocks"))
    if (known == ["host", "devices"] and all(row["devices"] for row in rows)) or (
        listed and set(known) <= {"host", "switch"}
    ):
        return []
    table = [{name: row[name] or "-" for name in known} for row in rows[:_MOST_ROWS]]
    more = [f"and {len(rows) - _MOST_ROWS} more nodes; --json shows all"] if len(rows) > _MOST_ROWS else []
    return [tabulate(table, headers="keys", disable_numparse=True), *more] if table else []


def _gres(entries: Iterable[Form]) -> str:
    return " ".join(":".join(str(e[key]) for key in ("name", "type", "count") if e[key] is not None) for e in entries)


def _nics(nodes: Sequence[Form]) -> list[str]:
    counts = [len(node["nics"]) for node in nodes]
    if not any(counts):
        return []
    if len(set(counts)) == 1:
        return [f"NICs: {counts[0]}{' a node' if len(nodes) > 1 else ''}"]
    each = [f"{node['host']} {count}" for node, count in zip(nodes, counts, strict=True)]
    return ["NICs: " + _some(each)]


def _job(form: Form) -> list[str]:
    facts = (
        ("job", form.get("job_id")),
        ("tasks", form.get("ntasks")),
        ("GPUs on this node", form.get("gpus_on_node")),
    )
    shown = [f"{name} {value}" for name, value in facts if value is not None]
    return ["Slurm: " + ", ".join(shown)] if shown else []


def _switches(form: Form) -> list[str]:
    lines = []
    for kind in ("switch", "block"):
        found = form.get(f"{kind}es" if kind == "switch" else "blocks", ())
        lines += [f"{kind} {one['name']}: {_under(one)}" for one in found[:_MOST_ROWS]]
        if len(found) > _MOST_ROWS:
            lines.append(f"and {len(found) - _MOST_ROWS} more of that kind; --json shows all")
    return lines


def _under(one: Form) -> str:
    parts = [_named(kind, one[key]) for kind, key in (("switch", "switches"), ("node", "nodes")) if one.get(key)]
    return "; ".join(parts) or "nothing"


def _nccl(facts: Form) -> list[str]:
    shown = [
        text.format(facts[key])
        for key, text in (
            ("nranks", "ranks {}"),
            ("nodes", "nodes {}"),
            ("ranks_per_node", "ranks a node {}"),
            ("channels", "channels {}"),
            ("intra", "inside a node {}"),
            ("inter_node", "between nodes {}"),
        )
        if facts.get(key) is not None
    ] + ["GPUDirect RDMA"] * bool(facts.get("gpu_direct"))
    name = " ".join(filter(None, (facts["library"], facts.get("version"))))
    warned = [f"{facts['library']} warned: {text}" for text in facts.get("warnings", ())[:_MOST_ROWS]]
    return [f"{name}: {', '.join(shown) or 'neither ranks nor transports'}", *warned]


def _named(kind: str, names: Sequence[str]) -> str:
    plural = "" if len(names) == 1 else "es" if kind == "switch" else "s"
    return f"{len(names)} {kind}{plural}: {_some(names)}"


def _some(names: Sequence[str]) -> str:
    rest = f" and {len(names) - _MOST_NAMES} more" if len(names) > _MOST_NAMES else ""
    return ", ".join(names[:_MOST_NAMES]) + rest
