"""report.md: the answer, the table, every candidate that is not in it and why, warnings, then the ground."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence

from harness.compare import OUTCOMES, CellResult, Comparison, sentence
from harness.record import Ground
from harness.report.race import race_lines, stopped_lines
from harness.report.tables import (
    AGAINST,
    AGAINST_ORDER,
    RACED_SPEED,
    escape,
    markdown_rows,
    markdown_tables,
    shown_cells,
    shown_marks,
)
from harness.report.units import bytes_unit, number
from harness.topology.model import Node

_ALT = {
    "tokens_per_s": "tokens per second of each layout with 95% intervals",
    "speed_memory": "speed against peak memory, with the frontier",
    "peak_memory": "peak memory of each layout",
    "checkpoint": "checkpoint size, save and restore time of each layout",
}
_MEANINGS = {
    "diverged": "Losses or gradient norms do not follow the reference: never to be chosen, however fast.",
    "failed": "Ended by an error.",
    "not_run": "No complete result yet.",
    "pruned": "Ruled out before anything ran.",
}


def to_markdown(comparison: Comparison, pictures: Sequence[str] = ()) -> str:
    """The whole report; ``pictures`` are paths relative to it."""
    plan = comparison.plan
    blocks = [f"# {escape(plan.name)}", f"**{escape(sentence(comparison))}**", *_table(comparison)]
    blocks += [f"![{_ALT.get(path.removesuffix('.png'), path)}]({path})" for path in pictures]
    blocks += _race(comparison)
    for outcome in OUTCOMES:
        if outcome != "measured" and (cells := comparison.with_outcome(outcome)):
            title = outcome.replace("_", " ").capitalize()
            blocks += [f"## {title} ({len(cells)})", _MEANINGS[outcome], *map(_excluded, cells)]
    if comparison.warnings:
        blocks += ["## Warnings", _list([escape(w.text) for w in comparison.warnings])]
    blocks += ["## Ground", *_ground(comparison)]
    return "\n\n".join(blocks) + "\n"


def _table(comparison: Comparison) -> list[str]:
    table, *more = markdown_tables(comparison) or [""]
    if not table:
        return []
    against = f" *Against fastest* is {AGAINST}, with its 95% interval; {AGAINST_ORDER}."
    marks = "".join(f" `{mark}` {meaning}." for mark, meaning in shown_marks(comparison).items())
    raced = f"; {RACED_SPEED}" if comparison.race else ""
    notes = [
        "Speed, which orders the rows, is the tokens of a global batch over the median step time of the slowest rank, "
        f"with a bootstrap 95% interval{raced}.{against if len(comparison.ranked) > 1 else ''}{marks} "
        "Memory is the peak of the fullest rank; `*` marks layouts that no other beats in both speed and memory. "
        "Checkpoints hold the optimizer state; their times are the slowest rank's."
    ]
    notes += [
        f"{'The reference ' if c.is_reference else ''}{escape(c.label)} is not ranked: it {escape(c.unranked)}."
        for c in shown_cells(comparison)
        if c.unranked
    ]
    return ["## Layouts", table, *notes, *(["### More figures", *more] if more else [])]


def _race(comparison: Comparison) -> list[str]:
    lines, stopped = race_lines(comparison), stopped_lines(comparison)
    blocks = ["## Race", " ".join(map(escape, lines))] if lines else []
    if stopped:
        blocks += [f"### Stopped early ({len(stopped)})"]
        blocks += [f"**{escape(label)}**: {escape(text)}" for label, text in stopped]
    return blocks


def _excluded(cell: CellResult) -> str:
    rule = f" ({escape(cell.rule)})" if cell.rule else ""
    line = f"**{escape(cell.label)}**{rule}: {escape(cell.reason or 'no reason recorded')}"
    tail = cell.failure.log_tail if cell.failure else ""
    return f"{line}\n\n{_folded('end of its log', tail)}" if tail.strip() else line


def _folded(title: str, text: str) -> str:
    """Text in a fence that it cannot close, folded away."""
    clean = re.sub(r"[^\S\n ]|[\x00-\x09\x0b-\x1f\x7f-\x9f]", " ", re.sub(r"\x1b\[[0-9;]*[A-Za-z]", "", text)).rstrip()
    fence = "`" * max(3, 1 + max((len(run) for run in re.findall(r"`+", clean)), default=0))
    return f"<details><summary>{title}</summary>\n\n{fence}text\n{clean}\n{fence}\n\n</details>"


def _ground(comparison: Comparison) -> list[str]:
    plan = comparison.plan
    model = plan.workload.model
    designs = dict.fromkeys(d for c in comparison.ranked for d in c.designs)
    work = {
        "command": plan.command,
        "created": plan.created_at,
        "model": f"{model.name}: {model.param_count:,} parameters, {model.n_layers} layers, dim {model.dim}, "
        f"{model.n_heads} heads ({model.n_kv_heads} KV), ffn {model.ffn_dim}, vocabulary {model.vocab_size}",
        "global batch": f"{plan.workload.global_batch} sequences of {plan.workload.seq_len} tokens",
        "ranks": f"{plan.ranks.world_size} on {plan.ranks.device}, a node: {_counted(map(str, plan.ranks.per_node))}",
        "seed": str(plan.seed),
        "design": ", ".join(designs) or str(plan.design),
        "losses checked against": comparison.gate_reference or "nothing",
        "settings": ", ".join(f"{name} {value}" for name, value in plan.settings),
        "race": ", ".join(f"{name} {value}" for name, value in plan.race) if plan.race else "none, all rounds of all",
    }
    first, *others = [_ground_lines(ground) for ground in comparison.grounds] or [[]]
    blocks = [_list([*(f"{name}: {escape(value)}" for name, value in work.items()), *first])]
    for lines in others:
        blocks += ["Other ground, whose rounds are not ranked against those above:", _list(lines)]
    return [*blocks, "### Topology", *_topology(comparison)]


def _ground_lines(ground: Ground) -> list[str]:
    said = {"device_names"} if set(ground.device_names) <= {ground.device} else set()
    facts = [(name, _shown(name, value)) for name, value in ground if value not in (None, ()) and name not in said]
    return [f"{name.removesuffix('_bytes').replace('_', ' ')}: {escape(text)}" for name, text in facts]


def _shown(name: str, value: object) -> str:
    if isinstance(value, tuple):
        return _counted(str(item) for item in value)
    if name.endswith("_bytes") and isinstance(value, int):
        unit = bytes_unit([value])
        return f"{unit.text(value)} {unit.name}"
    return number(value) if isinstance(value, float) else str(value)


def _topology(comparison: Comparison) -> list[str]:
    topology = comparison.plan.topology
    kinds = Counter(map(_node_facts, topology.nodes))
    rows = [(str(count), *facts) for facts, count in kinds.items()]
    blocks = [markdown_rows(("nodes", "devices of each", "links of each"), rows)] if rows else []
    if topology.nodes:
        blocks.append(f"Hosts: {escape(_counted(_host(node) for node in topology.nodes))}.")
    if topology.sources:
        blocks.append(f"Read from {escape(', '.join(topology.sources))}.")
    return [*blocks, *([_list([escape(w) for w in topology.warnings])] if topology.warnings else [])]


def _node_facts(node: Node) -> tuple[str, str]:
    devices = _counted(f"{d.kind} {d.name or 'of unknown name'}" for d in node.devices)
    return devices or "none", _counted(str(link.link_class) for link in node.links) or "none recorded"


def _host(node: Node) -> str:
    return f"{node.host} (switch {node.switch})" if node.switch else node.host


def _counted(items: Iterable[str]) -> str:
    """``4 x nvlink, 2 x pcie_switch``; something that occurs once stands alone."""
    counts = Counter(items)
    return ", ".join(f"{count} x {item}" if count > 1 else str(item) for item, count in counts.items())


def _list(lines: Sequence[str]) -> str:
    return "\n".join(f"- {line}" for line in lines)
