"""``rocm-smi --showtopo`` and ``--showtoponuma``, and the link tables of ``amd-smi topology``."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from harness.errors import TopologyError
from harness.topology import lookalike
from harness.topology.model import Device, Link, LinkClass, Node, Topology
from harness.topology.plain import small_int

_TITLE = re.compile(r"(weight|hops|link type)(?: between two GPUs| TABLE:)", re.I)
_OTHER_TITLE = re.compile(r"={3,}|\bTABLE:|^[ \t]*Legend", re.I)
_NUMA = re.compile(r"GPU ?\[?([0-9]{1,4})\]?\s*:\s*(?:\(Topology\) )?Numa (Node|Affinity)\s*:\s*(-?[0-9]{1,6})")
_LABEL = re.compile(r"GPU[0-9]{1,4}\Z|[0-9a-fA-F]{4,8}:[0-9a-fA-F]{2}:[0-9a-fA-F]{2}\.[0-9a-fA-F]\Z")
_JSON_PAIR = re.compile(
    r'"\(Topology\) (Weight|Hops|Link type) between DRM devices ([0-9]{1,4}) and ([0-9]{1,4})"\s*:\s*"(\w+)"', re.I
)
_JSON_NUMA = re.compile(r'"card([0-9]{1,4})"\s*:\s*\{[^{}]*?"\(Topology\) Numa Node"\s*:\s*"(-?[0-9]{1,6})"')
_HERE = re.compile(r"ROCm System Management|\(Topology\)|: Numa Node|between two GPUs|LINK TYPE TABLE:")
SOURCE = "rocm-smi --showtopo: links, NUMA nodes"


@dataclass
class _Listing:
    """Tables of one node: cells by kind and label pair, NUMA values by label."""

    tables: dict[str, dict[tuple[str, str], str]] = field(default_factory=dict)
    numa: dict[str, dict[str, int]] = field(default_factory=dict)
    labels: list[str] = field(default_factory=list)

    def add_label(self, label: str) -> None:
        if label not in self.labels:
            self.labels.append(label)


def matches(text: str) -> bool:
    """Whether ``text`` is output of an AMD tool with topology in it."""
    return _HERE.search(text) is not None


def read(text: str, host: str = "node0") -> Topology:
    """The nodes of ``text``; a table that comes again begins the next node."""
    lookalike.refuse(text)
    listings = _listings(text) or _from_json(text)
    _refuse_unreliable(text, listings)
    if not listings:
        raise TopologyError("no link or NUMA table found; save the whole output of `rocm-smi --showtopo`")
    nodes: list[Node] = []
    warnings: list[str] = []
    for position, listing in enumerate(listings):
        name = host if position == 0 else f"{host}-{position + 1}"
        nodes.append(_node(listing, name))
        warnings.extend(f"{name}: {doubt}" for doubt in _doubts(listing))
    return Topology(nodes=tuple(nodes), sources=(SOURCE,), warnings=tuple(warnings))


def _listings(text: str) -> list[_Listing]:
    found: list[_Listing] = []
    kind: str | None = None
    header: list[str] = []
    for line in text.split("\n"):
        words = line.strip(" #>|\t").split()
        if title := _TITLE.search(line):
            kind, header = title.group(1).lower(), []
            if not found or kind in found[-1].tables:
                found.append(_Listing())
            found[-1].tables[kind] = {}
        elif numa := _NUMA.search(line):
            kind = None
            _take_numa(found, f"GPU{int(numa.group(1))}", numa.group(2).lower(), int(numa.group(3)))
        elif _OTHER_TITLE.search(line):
            kind = None
        elif kind is not None and words and _LABEL.match(words[0]):
            if not header:
                header = [word for word in words if _LABEL.match(word)]
                for label in header:
                    found[-1].add_label(label)
            else:
                cells = zip(header, words[1:], strict=False)
                found[-1].tables[kind].update({(words[0], column): cell.upper() for column, cell in cells})
    return [listing for listing in found if listing.labels]


def _take_numa(found: list[_Listing], label: str, key: str, value: int) -> None:
    if not found or key in found[-1].numa.get(label, {}):
        found.append(_Listing())
    found[-1].add_label(label)
    found[-1].numa.setdefault(label, {})[key] = value


def _from_json(text: str) -> list[_Listing]:
    listing = _Listing()
    for kind, a, b, cell in _JSON_PAIR.findall(text):
        pair = (f"GPU{int(a)}", f"GPU{int(b)}")
        listing.tables.setdefault(kind.lower(), {}).update({pair: cell.upper(), pair[::-1]: cell.upper()})
    for card, value in _JSON_NUMA.findall(text):
        listing.numa[f"GPU{int(card)}"] = {"node": int(value)}
    names = {label for table in listing.tables.values() for pair in table for label in pair} | set(listing.numa)
    listing.labels = sorted(names, key=lambda label: int(label[3:]))
    return [listing] if listing.labels else []


def _refuse_unreliable(text: str, listings: list[_Listing]) -> None:
    unreadable = any("XXXX" in table.values() for one in listings for table in one.tables.values())
    incomplete = any(one.tables and not _complete(one) for one in listings)
    errors = re.search(r"^.*\b(?:ERROR|Not supported on)\b.*$", text, re.M) is not None
    if unreadable or (errors and (incomplete or not listings)):
        raise TopologyError(
            "the listing is not reliable: the driver reported errors or could not read links (XXXX); update the "
            "driver or leave the partition mode, then save `rocm-smi --showtopo` again"
        )


def _complete(listing: _Listing) -> bool:
    table = listing.tables.get("link type", {})
    return all((a, b) in table for a in listing.labels for b in listing.labels if a != b)


def _node(listing: _Listing, host: str) -> Node:
    numbered = all(label.startswith("GPU") for label in listing.labels)
    order = sorted(listing.labels, key=lambda label: int(label[3:])) if numbered else listing.labels
    index = {label: int(label[3:]) if numbered else place for place, label in enumerate(order)}
    devices = tuple(
        Device(
            index=index[label],
            kind="rocm",
            numa_node=_numa(listing, label),
            pci_bus=None if numbered else label.lower(),
        )
        for label in order
    )
    links = tuple(
        _link(listing, (a, b), (index[a], index[b]))
        for place, a in enumerate(order)
        for b in order[place + 1 :]
        if listing.tables
    )
    return Node(host=host, devices=devices, links=links)


def _numa(listing: _Listing, label: str) -> int | None:
    values = listing.numa.get(label, {})
    value = values.get("node", values.get("affinity", -1))
    return value if value >= 0 else None


def _link(listing: _Listing, labels: tuple[str, str], indices: tuple[int, int]) -> Link:
    table = listing.tables.get("link type", {})
    word = table.get(labels) or table.get((labels[1], labels[0]))
    kind = LinkClass.UNKNOWN
    if word == "XGMI":
        kind = LinkClass.XGMI
    elif word in ("PCIE", "PCIe"):
        kind = _pcie_class(listing, labels)
    return Link(a=min(indices), b=max(indices), link_class=kind, label=word)


def _pcie_class(listing: _Listing, labels: tuple[str, str]) -> LinkClass:
    """Two hops pass one CPU, three pass two; which host bridges they use rocm-smi does not say."""
    hops = listing.tables.get("hops", {}).get(labels, "")
    first, second = _numa(listing, labels[0]), _numa(listing, labels[1])
    if (small_int(hops) or 0) >= 3:
        return LinkClass.OTHER_SOCKET
    if first is not None and second is not None:
        return LinkClass.NUMA_NODE if first == second else LinkClass.OTHER_SOCKET
    return LinkClass.NUMA_NODE if hops else LinkClass.UNKNOWN


def _doubts(listing: _Listing) -> list[str]:
    doubts = []
    if listing.tables and not listing.tables.get("link type"):
        doubts.append("no link type table; save `rocm-smi --showtopo` to know which GPUs XGMI joins")
    elif listing.tables and not _complete(listing):
        doubts.append("the link type table has gaps; save `rocm-smi --showtopo` again")
    differing = [
        label for label, values in listing.numa.items() if min(values.values()) >= 0 and len(set(values.values())) > 1
    ]
    if differing:
        doubts.append(f"NUMA node and NUMA affinity differ for {', '.join(differing)}; the node is kept")
    return doubts
