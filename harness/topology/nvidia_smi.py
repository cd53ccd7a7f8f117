"""``nvidia-smi topo -m``: links between GPUs and NICs, CPU and NUMA affinity."""

from __future__ import annotations

from collections.abc import Iterable

from harness.errors import TopologyError
from harness.topology import cpulist, lookalike, numa
from harness.topology.matrix import Matrix, Row, gpu_number, is_header, is_link_word, read_matrices
from harness.topology.model import Device, Link, LinkClass, Nic, NicLink, Node, Topology
from harness.topology.plain import one_line, small_int

_CLASSES = {
    "PIX": LinkClass.PCIE_SWITCH,
    "PXB": LinkClass.PCIE_SWITCH,
    "PSB": LinkClass.PCIE_SWITCH,
    "PHB": LinkClass.HOST_BRIDGE,
    "NODE": LinkClass.NUMA_NODE,
    "SYS": LinkClass.OTHER_SOCKET,
    "SOC": LinkClass.OTHER_SOCKET,
}
_FARTHEST_LAST = ("PIX", "PSB", "PXB", "PHB", "NODE", "SOC", "SYS")
_PEER_WORDS = {"OK", "CNS", "GNS", "TNS", "NS", "U"}
SOURCE = "nvidia-smi topo -m: links, CPU and NUMA affinity, NICs"


def matches(text: str) -> bool:
    """Whether ``text`` holds a device matrix."""
    return any(is_header(line) for line in text.split("\n"))


def read(text: str, host: str = "node0") -> Topology:
    """The nodes of ``text``, one a matrix; the second and later ones of the same host get a number."""
    lookalike.refuse(text)
    matrices = [matrix for matrix in read_matrices(text.split("\n")) if matrix.gpus]
    if not matrices:
        raise TopologyError("no device matrix found; save the whole output of `nvidia-smi topo -m`")
    nodes: list[Node] = []
    warnings: list[str] = []
    for position, matrix in enumerate(matrices):
        name = host if position == 0 else f"{host}-{position + 1}"
        node, doubts = _node(matrix, name)
        nodes.append(node)
        warnings.extend(f"{name}: {doubt}" for doubt in doubts)
    return Topology(nodes=tuple(nodes), sources=(SOURCE,), warnings=tuple(warnings))


def write(node: Node) -> str:
    """``node`` as ``nvidia-smi topo -m`` prints it; :func:`read` gives the same node back."""
    words = {(link.a, link.b): link.label or _word(link) for link in node.links}
    columns = [f"GPU{device.index}" for device in node.devices] + [nic.name for nic in node.nics]
    lines = ["\t" + "\t".join([*columns, "CPU Affinity", "NUMA Affinity", "GPU NUMA ID"])]
    for device in node.devices:
        cells = [
            " X " if other is device else words[min(pair), max(pair)]
            for other in node.devices
            for pair in [(device.index, other.index)]
        ]
        cells += [_nic_word(nic, device.index) for nic in node.nics]
        affinity = device.numa_affinity or ("N/A" if device.numa_node is None else str(device.numa_node))
        memory = "N/A" if device.memory_numa_node is None else str(device.memory_numa_node)
        lines.append("\t".join([f"GPU{device.index}", *cells, device.cpus or "", affinity, "", memory]))
    legend = [f"  {nic.name}: {nic.device_name}" for nic in node.nics if nic.device_name]
    return "\n".join([*lines, *(["", "NIC Legend:", "", *legend] if legend else [])]) + "\n"


def _word(link: Link) -> str:
    if link.link_class is LinkClass.NVLINK:
        return f"NV{link.nvlink_count or 1}"
    return next((word for word, kind in _CLASSES.items() if kind is link.link_class), "ERR!")


def _nic_word(nic: Nic, index: int) -> str:
    kinds = [link.link_class for link in nic.links if link.device == index]
    return next((word for word, kind in _CLASSES.items() if kind in kinds), "ERR!")


def _node(matrix: Matrix, host: str) -> tuple[Node, list[str]]:
    gpus = sorted(matrix.gpus, key=gpu_number)
    if not any(gpu in matrix.rows for gpu in gpus):
        raise TopologyError("the matrix has a header but no GPU row; save the whole output, not the first line")
    doubts = _damage(matrix, gpus)
    links: list[Link] = []
    for position, a in enumerate(gpus):
        for b in gpus[position + 1 :]:
            word, doubt = _agree(matrix, a, b)
            doubts.extend([doubt] if doubt else [])
            links.append(_link(gpu_number(a), gpu_number(b), word))
    if links and all(link.link_class is LinkClass.UNKNOWN for link in links):
        raise TopologyError("no cell between two GPUs can be read; save the output again to a file, not a screen")
    nics = tuple(_nic(matrix, nic, gpus) for nic in matrix.nics)
    return Node(host=host, devices=_devices(matrix, gpus), links=tuple(links), nics=nics), doubts


def _damage(matrix: Matrix, gpus: Iterable[str]) -> list[str]:
    doubts = []
    repaired = [label for label, row in matrix.rows.items() if row.repaired]
    if repaired:
        rows = ", ".join(repaired)
        doubts.append(f"cells run together or are cut in {rows}; read with the help of the mirrored cells")
    missing = [gpu for gpu in gpus if gpu not in matrix.rows]
    if missing:
        doubts.append(f"no row for {', '.join(missing)}; read from the other rows")
    return doubts


def _agree(matrix: Matrix, a: str, b: str) -> tuple[str | None, str | None]:
    """The link word of two GPUs from both of its cells, and a doubt where these disagree."""
    forth, back = _cell(matrix, a, b), _cell(matrix, b, a)
    for word in (forth, back):
        if word is not None and not is_link_word(word):
            _refuse_word(word)
    if forth is None or back is None or forth == back:
        return forth or back, None
    for row, column, other in ((a, b, back), (b, a, forth)):
        found = matrix.rows[row]
        if found.cut_at == matrix.places[column]:
            return other, None
    farther = max(forth, back, key=lambda word: (*_FARTHEST_LAST, "ERR!").index(word) if word in _CLASSES else -1)
    return farther, f"{a} and {b} are {forth} in one row and {back} in the other; the farther one is kept"


def _cell(matrix: Matrix, row: str, column: str) -> str | None:
    word = matrix.cell(row, column)
    return None if word == "X" else word


def _refuse_word(word: str) -> None:
    if word in _PEER_WORDS:
        raise TopologyError(f"cells such as {word} belong to `nvidia-smi topo -p2p`; save `nvidia-smi topo -m` instead")
    raise TopologyError(
        f"{one_line(word)!r} is no link word of nvidia-smi, so this is another vendor's or an edited listing; "
        "save `nvidia-smi topo -m` again"
    )


def _link(a: int, b: int, word: str | None) -> Link:
    if word is not None and word.startswith("NV"):
        return Link(a=a, b=b, link_class=LinkClass.NVLINK, nvlink_count=int(word[2:]), label=word)
    kind = _CLASSES.get(word or "", LinkClass.UNKNOWN)
    return Link(a=a, b=b, link_class=kind, label=word)


def _nic(matrix: Matrix, nic: str, gpus: Iterable[str]) -> Nic:
    words = {gpu: _cell(matrix, gpu, nic) or _cell(matrix, nic, gpu) for gpu in gpus}
    links = tuple(
        NicLink(device=gpu_number(gpu), link_class=_CLASSES.get(word or "", LinkClass.UNKNOWN))
        for gpu, word in words.items()
    )
    return Nic(name=nic, device_name=matrix.legend.get(nic), links=links)


def _devices(matrix: Matrix, gpus: list[str]) -> tuple[Device, ...]:
    rows = [matrix.rows.get(gpu, Row([], ["", "", ""])) for gpu in gpus]
    memory = [small_int(row.tail[2]) for row in rows]
    nodes = numa.resolve([row.tail[1] for row in rows], memory)
    return tuple(
        Device(
            index=gpu_number(gpu),
            kind="cuda",
            numa_node=nodes[position],
            numa_affinity=_several(row.tail[1]),
            memory_numa_node=memory[position],
            cpus=row.tail[0] if cpulist.is_list(row.tail[0]) else None,
        )
        for position, (gpu, row) in enumerate(zip(gpus, rows, strict=True))
    )


def _several(text: str) -> str | None:
    """``text`` where it is a list of more than one NUMA node."""
    return text if cpulist.is_list(text) and small_int(text) is None else None
