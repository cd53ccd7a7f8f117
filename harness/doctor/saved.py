"""Snapshots from files: saved ones, ``nvidia-smi -q``, ``nvidia-smi nvlink --status`` and every topology listing."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from pathlib import Path

from harness.doctor.snapshot import GpuFacts, Snapshot, joined
from harness.errors import TopologyError
from harness.topology import sysfs, text
from harness.topology.detect import read_files
from harness.topology.plain import small_int

_LOST = re.compile(
    r"Unable to determine the device handle for GPU\s?(?:(?P<index>[0-9]{1,3}): ?)?"
    r"(?P<bus>[0-9A-Fa-f]{4,8}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.[0-7])?:? *(?P<why>[^\n]*)"
)
_GPU = re.compile(r"GPU (?P<bus>[0-9A-Fa-f]{4,8}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.[0-7])\s*\Z")
_LINE = re.compile(r"(?P<indent> *)(?P<key>[^:]*?)\s*(?:: (?P<value>.*))?\Z")
_NVLINK_GPU = re.compile(r"GPU (?P<index>[0-9]{1,3}): (?P<name>.*?) \(UUID: (?P<uuid>[^)]+)\)\s*\Z")
_NVLINK = re.compile(r"\s*Link (?P<link>[0-9]{1,3}): (?P<state>.*?)\s*\Z")

_RESETS = ("Reset Required", "Drain and Reset Recommended")

Facts = dict[str, str]


def read_snapshots(paths: Iterable[Path]) -> tuple[Snapshot, ...]:
    """One snapshot a host. Listings that name no host are of the host that the file is called after, up to a dot.

    Raises:
        TopologyError: a file is unreadable or of no known kind.
    """
    found: dict[str, Snapshot] = {}
    for path in paths:
        for snapshot in _read(path):
            known = found.get(snapshot.host)
            found[snapshot.host] = snapshot if known is None else joined(known, snapshot)
    if not found:
        raise TopologyError("no file given; save one on each node with 'meshsweep doctor --save FILE'")
    return tuple(found.values())


def _read(path: Path) -> list[Snapshot]:
    if path.suffix == ".json":
        return [_saved(path)]
    content, host = text.load(path), path.name.split(".")[0] or "node0"
    if "NVSMI LOG" in content or _LOST.search(content):
        return [read_query(content, host)]
    if any(_NVLINK.match(line) for line in content.split("\n")):
        return [read_nvlink_status(content, host)]
    topology = read_files([path]).topology
    lone = len(topology.nodes) == 1 and topology.nodes[0].host.startswith(host)
    return [
        Snapshot(
            host=host if lone else node.host,
            sources=topology.sources,
            gpus=tuple(
                GpuFacts(
                    index=device.index,
                    kind=device.kind,
                    name=device.name,
                    uuid=device.uuid,
                    pci_bus=device.pci_bus,
                    numa_node=device.numa_node,
                    cpus=device.cpus,
                )
                for device in node.devices
            ),
            node=node,
        )
        for node in topology.nodes
    ]


def _saved(path: Path) -> Snapshot:
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
        if isinstance(data, dict) and data.get("schema_version", 0) > Snapshot(host="").schema_version:
            raise TopologyError(f"{path} is a snapshot of a newer meshsweep; install that one here, too")
        return Snapshot.model_validate(data)
    except OSError as error:
        raise TopologyError(f"cannot read {path}: {error.strerror or error}; save it again") from None
    except (ValueError, TypeError) as error:
        raise TopologyError(
            f"{path} is no snapshot ({type(error).__name__}); save one with 'meshsweep doctor --save FILE'"
        ) from None


def read_query(content: str, host: str) -> Snapshot:
    """``nvidia-smi -q``, whole or with ``-d``, and what it says of GPUs that it cannot reach."""
    lost = [
        GpuFacts(
            index=small_int(match["index"] or ""),
            pci_bus=sysfs.normal_bus(match["bus"]) if match["bus"] else None,
            lost=match["why"].strip() or "the driver has no handle of it",
        )
        for match in _LOST.finditer(content)
    ]
    head, sections = _sections(_LOST.sub("", content))
    attached = small_int(head.get("Attached GPUs", ""))
    whole = not lost and attached == len(sections)
    gpus = [_gpu(bus, facts, at if whole else None) for at, (bus, facts) in enumerate(sections)]
    return Snapshot(
        host=host,
        taken_at=head.get("Timestamp"),
        sources=("nvidia-smi -q",),
        driver=head.get("Driver Version"),
        attached=attached,
        gpus=(*gpus, *lost),
    )


def read_nvlink_status(content: str, host: str) -> Snapshot:
    """``nvidia-smi nvlink --status``: a link without a speed is not active."""
    gpus: list[GpuFacts] = []
    for line in content.split("\n"):
        if head := _NVLINK_GPU.match(line):
            gpus.append(GpuFacts(index=int(head["index"]), name=head["name"], uuid=head["uuid"]))
        elif (link := _NVLINK.match(line)) and gpus:
            active = re.match(r"[0-9.]+ GB/s", link["state"]) is not None
            gpus[-1] = gpus[-1].model_copy(update={"nvlinks": (*(gpus[-1].nvlinks or ()), active)})
    return Snapshot(host=host, sources=("nvidia-smi nvlink --status",), gpus=tuple(gpus))


def _sections(content: str) -> tuple[Facts, list[tuple[str, Facts]]]:
    """The values before the first GPU, then those of each GPU; keys are joined by ``/`` from the outermost."""
    head: Facts = {}
    sections: list[tuple[str, Facts]] = []
    facts, path = head, list[tuple[int, str]]()
    for line in content.split("\n"):
        gpu = _GPU.match(line)
        if gpu:
            facts, path = {}, []
            sections.append((sysfs.normal_bus(gpu["bus"]), facts))
            continue
        match = _LINE.match(line.rstrip())
        if match is None or not match["key"].strip():
            continue
        indent = len(match["indent"])
        path = [(depth, key) for depth, key in path if depth < indent]
        path.append((indent, match["key"].strip()))
        if match["value"] is not None:
            facts.setdefault("/".join(key for _, key in path), match["value"].strip())
    return head, sections


def _gpu(bus: str, facts: Facts, index: int | None) -> GpuFacts:
    link = "PCI/GPU Link Info"
    ecc = [
        small_int(value)
        for key, value in facts.items()
        if key.startswith("ECC Errors/Volatile/") and ("Uncorrectable" in key or key.endswith("Double Bit/Total"))
    ]
    known = [count for count in ecc if count is not None]
    pending = [facts.get("Remapped Rows/Pending"), facts.get("Retired Pages/Pending Page Blacklist")]
    repairs = [facts.get(f"ECC Errors/{kind} Repair Pending") for kind in ("Channel", "TPC")]
    return GpuFacts(
        index=index,
        name=facts.get("Product Name"),
        uuid=facts.get("GPU UUID"),
        pci_bus=bus,
        performance_state=small_int(facts.get("Performance State", "").removeprefix("P")),
        pcie_generation=small_int(facts.get(f"{link}/PCIe Generation/Current", "")),
        pcie_generation_max=small_int(facts.get(f"{link}/PCIe Generation/Max", "")),
        pcie_width=small_int(facts.get(f"{link}/Link Width/Current", "").removesuffix("x")),
        pcie_width_max=small_int(facts.get(f"{link}/Link Width/Max", "").removesuffix("x")),
        ecc_uncorrected=sum(known) if known else None,
        sram_threshold_exceeded=_any(facts.get("ECC Errors/Aggregate/SRAM Threshold Exceeded")),
        remap_pending=_any(*pending),
        remap_failed=_any(
            facts.get("Remapped Rows/Remapping Failure Occurred"), facts.get("ECC Errors/Unrepairable Memory")
        ),
        repair_pending=_any(*repairs),
        reset_required=_any(*(facts.get(f"GPU Reset Status/{key}") for key in _RESETS)),
    )


def _any(*words: str | None) -> bool | None:
    """Whether one of the words is Yes; None where none is Yes or No."""
    known = [word == "Yes" for word in words if word in ("Yes", "No")]
    return any(known) if known else None
