"""What was run, where and with what, as plain names and values."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from harness.compare import Comparison
from harness.compare.models import GroupTransports
from harness.record import Ground
from harness.report.units import bytes_unit, number
from harness.topology.model import Node
from harness.topology.speed import speed_lines

Facts = tuple[tuple[str, str], ...]  # (name, value)


def work_facts(comparison: Comparison) -> Facts:
    """The work that every layout did."""
    plan = comparison.plan
    model = plan.workload.model
    designs = dict.fromkeys(d for c in comparison.ranked for d in c.designs)
    return (
        ("command", plan.command),
        ("created", plan.created_at),
        (
            "model",
            f"{model.name}: {model.param_count:,} parameters, {model.n_layers} layers, dim {model.dim}, "
            f"{model.n_heads} heads ({model.n_kv_heads} KV), ffn {model.ffn_dim}, vocabulary {model.vocab_size}",
        ),
        ("global batch", f"{plan.workload.global_batch} sequences of {plan.workload.seq_len} tokens"),
        ("ranks", f"{plan.ranks.world_size} on {plan.ranks.device}, a node: {grouped(map(str, plan.ranks.per_node))}"),
        ("seed", str(plan.seed)),
        ("design", ", ".join(designs) or str(plan.design)),
        ("losses checked against", comparison.gate_reference or "nothing"),
        ("settings", ", ".join(f"{name} {value}" for name, value in plan.settings)),
        ("race", ", ".join(f"{name} {value}" for name, value in plan.race) if plan.race else "none, all rounds of all"),
    )


def ground_facts(ground: Ground) -> Facts:
    """Where and with what rounds were timed; what is not known is left out."""
    said = {"device_names"} if set(ground.device_names) <= {ground.device} else set()
    facts = [(name, _shown(name, value)) for name, value in ground if value not in (None, ()) and name not in said]
    return tuple((name.removesuffix("_bytes").replace("_", " "), text) for name, text in facts)


def node_rows(comparison: Comparison) -> list[tuple[str, str, str]]:
    """A row a kind of node: how many, devices of each, links of each."""
    kinds = Counter(map(_node_facts, comparison.plan.topology.nodes))
    return [(str(count), *facts) for facts, count in kinds.items()]


def topology_facts(comparison: Comparison) -> Facts:
    """Hosts, measured links, what communicators used, readers, and what the readers warn of."""
    topology = comparison.plan.topology
    found = [("hosts", grouped(map(_host, topology.nodes)))] if topology.nodes else []
    found += [("measured", line) for line in speed_lines(topology.measured)]
    found += [("communicators", _used(one)) for one in comparison.transports]
    found += [("read from", ", ".join(topology.sources))] if topology.sources else []
    return (*found, *(("warning", warning) for warning in topology.warnings))


def _used(one: GroupTransports) -> str:
    rings = f", {one.rings} rings" if one.rings else ""
    paths = ", ".join(one.transports) or "nothing seen"
    return f"{one.cell}, {one.role}, {one.groups} x {one.size} ranks: {paths}{rings} ({one.source})"


def grouped(items: Iterable[str]) -> str:
    """``4 x nvlink, 2 x pcie_switch``; something that occurs once stands alone."""
    counts = Counter(items)
    return ", ".join(f"{count} x {item}" if count > 1 else str(item) for item, count in counts.items())


def _shown(name: str, value: object) -> str:
    if isinstance(value, tuple):
        return grouped(str(item) for item in value)
    if name.endswith("_bytes") and isinstance(value, int):
        unit = bytes_unit([value])
        return f"{unit.text(value)} {unit.name}"
    return number(value) if isinstance(value, float) else str(value)


def _node_facts(node: Node) -> tuple[str, str]:
    devices = grouped(f"{d.kind} {d.name or 'of unknown name'}" for d in node.devices)
    return devices or "none", grouped(str(link.link_class) for link in node.links) or "none recorded"


def _host(node: Node) -> str:
    return f"{node.host} (switch {node.switch})" if node.switch else node.host
