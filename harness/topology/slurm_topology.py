"""Slurm's ``topology.conf`` and ``topology.yaml``: switch trees, forests, cyclic graphs and blocks of nodes."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterable, Iterator

from harness.base import Frozen
from harness.errors import TopologyError
from harness.topology import hostlist
from harness.topology.model import Node, Topology
from harness.topology.plain import one_line

_HERE = re.compile(
    r"^[ \t#]*(?:SwitchName|BlockName|BlockSizes)[ \t]*=|^[ \t-]*(?:switch|block)[ \t]*:[ \t]*\S", re.I | re.M
)
_PAIR = re.compile(r"(\w+)\s*=\s*(\S+)")
_YAML = re.compile(r"\s*(-?)\s*(\w+)\s*:\s*(.*?)\s*\Z")
_KEYS = {"switchname": "switch", "blockname": "block", "blocksizes": "block_sizes", "switches": "children"}
_ALL_BLOCKS = "all blocks"
SOURCE = "slurm topology.conf: switches, blocks"


class Switch(Frozen):
    """A switch: the switches below it, or for a leaf its nodes."""

    name: str
    switches: tuple[str, ...] = ()
    nodes: tuple[str, ...] = ()


class Block(Frozen):
    """Nodes that topology/block keeps together."""

    name: str
    nodes: tuple[str, ...] = ()


class Fabric(Frozen):
    """Switches and blocks in the file's order. Distances are found in graphs of any shape."""

    switches: tuple[Switch, ...] = ()
    blocks: tuple[Block, ...] = ()
    block_sizes: tuple[int, ...] = ()

    @property
    def leaves(self) -> tuple[Switch, ...]:
        """Switches with nodes of their own."""
        return tuple(switch for switch in self.switches if switch.nodes)

    @property
    def nodes(self) -> tuple[str, ...]:
        """Every node once, in the file's order."""
        parts = [switch.nodes for switch in self.switches] or [block.nodes for block in self.blocks]
        return tuple(dict.fromkeys(node for part in parts for node in part))

    @property
    def roots(self) -> tuple[str, ...]:
        """Switches that are below no other; none in a cyclic graph."""
        below = {child for switch in self.switches for child in switch.switches}
        return tuple(switch.name for switch in self.switches if switch.name not in below)

    @property
    def cyclic(self) -> bool:
        """Whether following the switches downward can come back to where it began."""
        waiting = {switch.name: 0 for switch in self.switches}
        children = {switch.name: [c for c in switch.switches if c in waiting] for switch in self.switches}
        for below in children.values():
            for child in below:
                waiting[child] += 1
        free = [name for name, parents in waiting.items() if parents == 0]
        done = 0
        while free:
            done += 1
            for child in children[free.pop()]:
                waiting[child] -= 1
                if waiting[child] == 0:
                    free.append(child)
        return done < len(waiting)

    def leaf_of(self) -> dict[str, str]:
        """The leaf switch of each node, else its block."""
        found: dict[str, str] = {}
        parts = [(part.name, part.nodes) for part in self.switches]
        for name, nodes in [*parts, *((block.name, block.nodes) for block in self.blocks)]:
            for node in nodes:
                found.setdefault(node, name)
        return found

    def path_up(self, switch: str) -> tuple[str, ...]:
        """``switch`` and all switches above it, nearest first; each once, cycles or not."""
        parents: dict[str, list[str]] = {}
        for parent in self.switches:
            for child in parent.switches:
                parents.setdefault(child, []).append(parent.name)
        return tuple(_reach(switch, parents))

    def distance(self, a: str, b: str) -> int | None:
        """Switches on the shortest way between two nodes (1 = same leaf); None if there is no way."""
        leaf = self.leaf_of()
        if a not in leaf or b not in leaf:
            raise TopologyError(f"topology.conf does not name {one_line(b if a in leaf else a)}; add it there")
        near: dict[str, list[str]] = {switch.name: list(switch.switches) for switch in self.switches}
        for switch in self.switches:
            for child in switch.switches:
                near.setdefault(child, []).append(switch.name)
        return _reach(leaf[a], near).get(leaf[b])


def matches(text: str) -> bool:
    """Whether ``text`` is such a file, even one with every line commented out."""
    return _HERE.search(text) is not None


def read(text: str) -> tuple[Topology, Fabric]:
    """The nodes with their switches, and the fabric itself."""
    yaml = re.search(r"^[ \t-]*(?:switch|block)[ \t]*:", text, re.M) is not None
    fabric = _fabric(_yaml_items(text) if yaml else _conf_items(text))
    paths = {name: fabric.path_up(name) for name in {*fabric.leaf_of().values()}}
    blocks = {block.name for block in fabric.blocks}
    nodes = []
    for host, leaf in fabric.leaf_of().items():
        path = (leaf, _ALL_BLOCKS) if leaf in blocks else paths[leaf]
        nodes.append(Node(host=host, switch=leaf, switch_path=path))
    return Topology(nodes=tuple(nodes), sources=(SOURCE,), warnings=tuple(_doubts(fabric))), fabric


def _reach(start: str, near: dict[str, list[str]]) -> dict[str, int]:
    """Every name reachable from ``start`` with its step count (1 for ``start``), in order of distance."""
    found = {start: 1}
    queue = deque([start])
    while queue:
        name = queue.popleft()
        for other in near.get(name, ()):
            if other not in found:
                found[other] = found[name] + 1
                queue.append(other)
    return found


def _conf_items(text: str) -> Iterator[dict[str, str]]:
    for line in re.sub(r"\\[ \t]*\n", " ", text).split("\n"):
        values = {key.lower(): value for key, value in _PAIR.findall(line.split("#")[0])}
        if values:
            yield {_KEYS.get(key, key): value for key, value in values.items()}


def _yaml_items(text: str) -> Iterator[dict[str, str]]:
    """Items of topology.yaml, whose form is fixed enough to be read line by line."""
    item: dict[str, str] = {}
    for line in text.split("\n"):
        line = line.split("#")[0]
        if number := re.fullmatch(r"\s*-\s*([0-9]{1,9})\s*", line):
            item["block_sizes"] = f"{item.get('block_sizes', '')},{number.group(1)}".strip(",")
        elif pair := _YAML.match(line):
            dash, key, value = pair.groups()
            if dash or key in ("tree", "block_sizes", "blocks"):
                yield item
                item = {}
            item[key] = value.strip("\"'") if key != "block_sizes" else re.sub(r"[\[\]\s]", "", value)
    yield item


def _fabric(items: Iterable[dict[str, str]]) -> Fabric:
    switches: dict[str, Switch] = {}
    blocks: dict[str, Block] = {}
    sizes: tuple[int, ...] = ()
    for item in items:
        nodes = hostlist.expand(item.get("nodes", ""))
        for name in hostlist.expand(item.get("switch", "")):
            old = switches.get(name, Switch(name=name))
            below = hostlist.expand(item.get("children", ""))
            switches[name] = Switch(name=name, switches=old.switches + below, nodes=old.nodes + nodes)
        for name in hostlist.expand(item.get("block", "")):
            blocks[name] = Block(name=name, nodes=blocks.get(name, Block(name=name)).nodes + nodes)
        if "block_sizes" in item:
            sizes = _sizes(item["block_sizes"])
    # `scontrol show topology` repeats at every switch all nodes below it; only a leaf's are its own.
    own = {
        name: switch.model_copy(update={"nodes": ()}) if switch.switches else switch
        for name, switch in switches.items()
    }
    return Fabric(switches=tuple(own.values()), blocks=tuple(blocks.values()), block_sizes=sizes)


def _sizes(text: str) -> tuple[int, ...]:
    if not text:
        return ()
    if not re.fullmatch(r"[0-9]{1,9}(?:,[0-9]{1,9})*", text):
        raise TopologyError(f"BlockSizes={one_line(text)} is no list of numbers; expected the form 30,120")
    return tuple(map(int, text.split(",")))


def _doubts(fabric: Fabric) -> list[str]:
    doubts = []
    if not fabric.switches and not any(block.nodes for block in fabric.blocks):
        doubts.append("topology.conf has no active switch or block; all nodes count as equally far")
    if fabric.cyclic:
        doubts.append("topology.conf has switches in a cycle; distances are those of the shortest way")
    known = {switch.name for switch in fabric.switches}
    missing = [child for switch in fabric.switches for child in switch.switches if child not in known]
    if missing:
        doubts.append(f"topology.conf names switches that it does not define: {one_line(', '.join(missing))}")
    listed = [node for switch in fabric.switches for node in switch.nodes]
    if len(listed) != len(set(listed)):
        doubts.append("topology.conf puts a node under two switches; the first one counts")
    if len(fabric.roots) > 1 and fabric.switches:
        doubts.append(f"topology.conf has {len(fabric.roots)} separate trees with no path between them")
    return doubts
