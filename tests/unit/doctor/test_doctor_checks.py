"""Each fault is found and has its remedy; sound machines have none."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from harness.cli import main
from harness.doctor import GpuFacts, Snapshot, inspect
from harness.layout import Mesh
from harness.mesh import contract_toml, make_contract
from harness.topology.model import Device, Link, LinkClass, Node, Topology


def gpu(index: int, **changes: Any) -> GpuFacts:
    values: dict[str, Any] = {
        "index": index,
        "name": "NVIDIA H100 80GB HBM3",
        "uuid": f"GPU-{index}",
        "pci_bus": f"0000:{index:02x}:00.0",
        "numa_node": index // 2,
        "cpus": f"{4 * (index // 2)}-{4 * (index // 2) + 3}",
        "performance_state": 0,
        "pcie_generation": 5,
        "pcie_generation_max": 5,
        "pcie_width": 16,
        "pcie_width_max": 16,
        "nvlinks": (True,) * 18,
        "ecc_uncorrected": 0,
        "remap_pending": False,
        "remap_failed": False,
    }
    return GpuFacts(**{**values, **changes})


def machine(host: str = "node0", gpus: dict[int, dict[str, Any]] | None = None, **changes: Any) -> Snapshot:
    values: dict[str, Any] = {
        "host": host,
        "driver": "550.54.15",
        "nccl": "2.21.5",
        "attached": 4,
        "numa_nodes": 2,
        "allowed_cpus": "0-7",
        "gpus": tuple(gpu(index, **(gpus or {}).get(index, {})) for index in range(4)),
        "node": Node(
            host=host,
            links=tuple(
                Link(a=a, b=b, link_class=LinkClass.NVLINK, nvlink_count=18) for a in range(4) for b in range(a + 1, 4)
            ),
        ),
    }
    return Snapshot(**{**values, **changes})


def texts(*snapshots: Snapshot) -> list[str]:
    return [fault.text for fault in inspect(snapshots)]


def test_sound_machines_have_no_faults() -> None:
    assert texts(machine()) == texts(machine(), machine("node1")) == []


@pytest.mark.parametrize(
    ("facts", "rule", "words"),
    [
        ({"lost": "GPU is lost"}, "gpu_lost", "it is lost (GPU is lost); drain the node, look for Xid 79"),
        ({"pcie_width": 8}, "pcie_width", "PCIe runs at x8 of x16; reseat"),
        ({"pcie_generation": 3}, "pcie_speed", "PCIe runs at generation 3 of 5; look again under load"),
        (
            {"ecc_uncorrected": 2},
            "ecc",
            "2 uncorrected ECC errors since the driver was loaded; drain the node and reset",
        ),
        ({"remap_pending": True}, "row_remap", "a memory row or page waits to be remapped; drain the node and reset"),
        ({"remap_failed": True}, "row_remap", "remapping a memory row failed; drain the node and replace"),
        ({"repair_pending": True}, "row_remap", "a channel or TPC repair is pending; drain the node and reset"),
        ({"reset_required": True}, "reset", "the driver asks for a reset of it; drain the node and reset"),
        ({"sram_threshold_exceeded": True}, "ecc", "too many uncorrected SRAM errors; drain the node and replace"),
        ({"numa_node": None}, "numa", "it names no NUMA node on a machine of 2; update the BIOS"),
        ({"cpus": "32-63"}, "affinity", "the CPUs allowed here (0-7) hold none of its own (32-63); bind ranks"),
        (
            {"nvlinks": (True,) * 16 + (False,) * 2},
            "nvlink",
            "16 NVLinks up where most GPUs have 18 (down: 16, 17); look at 'nvidia-smi nvlink",
        ),
        ({"nvlinks": (True,) * 12}, "nvlink", "12 NVLinks up where most GPUs have 18; look at"),
    ],
)
def test_one_gpu_in_trouble(facts: dict[str, Any], rule: str, words: str) -> None:
    (fault,) = inspect([machine(gpus={3: facts})])
    assert fault.rule == rule
    assert fault.text.startswith(f"node0 GPU 3: {words}")
    assert "\n" not in fault.text


def test_an_idle_gpu_lowers_its_link_by_itself() -> None:
    idle = {"pcie_generation": 1, "performance_state": 8}
    assert texts(machine(gpus={0: idle})) == []
    unknown = {"pcie_generation": 1, "performance_state": None}
    assert texts(machine(gpus=dict.fromkeys(range(4), unknown))) == []
    assert "generation 1 of 5" in texts(machine(gpus={0: unknown}))[0]


def test_links_down_on_every_gpu_are_told_by_other_nodes_or_the_contract() -> None:
    down = machine("node2", gpus={key: {"nvlinks": (True,) * 9} for key in range(4)})
    assert len(texts(machine(), machine("node1"), down)) == 4


def test_versions_that_differ() -> None:
    odd = machine("node2", driver="535.1", nccl="2.18.1")
    assert texts(machine(), machine("node1"), odd) == [
        "node2: driver 535.1 where most nodes have 550.54.15; install the same driver on all nodes",
        "node2: NCCL 2.18.1 where most nodes have 2.21.5; install the same NCCL on all nodes",
    ]


def test_fewer_gpus_than_other_nodes_or_than_the_driver_counts() -> None:
    three = machine("node2", gpus=None).model_copy(update={"gpus": tuple(map(gpu, range(3))), "attached": 3})
    assert "3 GPUs where most nodes have 4" in texts(machine(), machine("node1"), three)[0]
    hidden = three.model_copy(update={"attached": 4})
    assert "the driver counts 4 GPUs and lists 3" in texts(hidden)[0]


def contract_of(*snapshots: Snapshot, any_host: bool = False) -> Any:
    topology = Topology(nodes=tuple(snapshot.as_node() for snapshot in snapshots))
    return make_contract(topology, Mesh(dp_replicate=len(snapshots), dp_shard=4), any_host=any_host)


def test_machines_as_the_contract_says() -> None:
    both = (machine(), machine("node1"))
    assert inspect(both, contract_of(*both), whole=True) == ()
    assert inspect(both[1:], contract_of(*both)) == ()


def test_what_contradicts_the_contract() -> None:
    both = (machine(), machine("node1"))
    contract = contract_of(*both)
    node = both[0].node
    assert node is not None
    fewer = node.links[0].model_copy(update={"nvlink_count": 6})
    broken = machine(gpus={1: {"numa_node": 1}, 3: {"lost": "Unknown Error"}}).model_copy(
        update={"node": node.model_copy(update={"links": (fewer, *node.links[1:])})}
    )
    found = {(fault.rule, fault.message): fault.remedy for fault in inspect((broken,), contract, whole=True)}
    assert list(found) == [
        ("gpu_lost", "it is lost (Unknown Error)"),
        ("numa", "device 1 numa node: expected 0, found 1"),
        ("gpu_missing", "device: expected GPU 3 (GPU-3), found no such device"),
        ("contract", "host: expected a listing of it, found none"),
    ]
    whole = broken.model_copy(update={"gpus": machine().gpus})
    assert [fault.message for fault in inspect((whole, both[1]), contract)] == [
        "dp_shard link between devices 0 and 1: expected 18 NVLinks, found 6"
    ]


def run(*arguments: str) -> int:
    with pytest.raises(SystemExit) as ended:
        main(["doctor", *arguments])
    return int(ended.value.code or 0)


def save(folder: Path, *snapshots: Snapshot) -> list[str]:
    for snapshot in snapshots:
        (folder / f"{snapshot.host}.json").write_text(snapshot.model_dump_json())
    return [str(folder / f"{snapshot.host}.json") for snapshot in snapshots]


def test_exit_codes_and_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    sound = save(tmp_path, machine(), machine("node1"))
    contract = tmp_path / "mesh.toml"
    contract.write_text(contract_toml(contract_of(machine(), machine("node1"))))
    assert run("--contract", str(contract), "--from", *sound) == 0
    assert capsys.readouterr().out == "2 nodes, 8 GPUs: nothing wrong\n"
    assert run("--contract", str(contract), "--from", sound[0]) == 1
    assert capsys.readouterr().out.startswith("node1: host: expected a listing of it, found none; save a snapshot")
    (sick,) = save(tmp_path, machine("sick", gpus={2: {"remap_pending": True}}))
    assert run("--from", sick, "--json") == 1
    out, err = capsys.readouterr()
    (finding,) = json.loads(out)["findings"]
    assert finding["rule"] == "row_remap"
    assert finding["device"] == "GPU 2"
    assert err.strip() == finding["text"]
    assert run("--from", str(tmp_path / "none.json")) == 2
    assert run("--from", sick, "--save", str(tmp_path / "x.json")) == 2
    assert capsys.readouterr().err.count("\n") == 2


def test_a_contract_of_cpu_slots_is_for_mesh_check(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    slots = Topology(nodes=(Node(host="node0", devices=tuple(Device(index=i, kind="cpu") for i in range(4))),))
    contract = tmp_path / "mesh.toml"
    contract.write_text(contract_toml(make_contract(slots, Mesh(dp_shard=4))))
    for more in ((), ("--from", *save(tmp_path, machine()))):
        assert run("--contract", str(contract), *more) == 2
        said = capsys.readouterr().err
        assert "lists CPU slots" in said and "meshsweep mesh check" in said


def test_where_nothing_can_be_looked_at_nothing_is_missing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    problem = "NVML does not start: NVML Shared Library Not Found"
    contract = tmp_path / "mesh.toml"
    contract.write_text(contract_toml(contract_of(machine(), machine("node1"))))
    blind = Snapshot(host="node1", sources=("sysfs",), problems=(problem,))
    monkeypatch.setattr("harness.doctor.look.look", lambda: blind)
    assert run("--contract", str(contract)) == 2
    out, err = capsys.readouterr()
    assert not out and err.startswith(f"meshsweep: could not look at any GPU ({problem})")
    assert run("--contract", str(contract), "--from", *save(tmp_path, blind)) == 2
    capsys.readouterr()
    # beside a machine that was looked at it is a finding, and its GPUs are not called missing
    for arguments in (("--contract", str(contract)), ()):
        assert run(*arguments, "--from", *save(tmp_path, machine(), blind)) == 1
        (line,) = capsys.readouterr().out.splitlines()
        assert line.startswith(f"node1: its GPUs could not be looked at ({problem}); save its snapshot again")
    # a driver that answers and lists none does say that they are missing
    none_listed = Snapshot(host="node1", driver="550.54.15", attached=0, problems=("NVML lists no GPU",))
    monkeypatch.setattr("harness.doctor.look.look", lambda: none_listed)
    assert run("--contract", str(contract)) == 1
    assert "GPU 0 (GPU-0), found no such device" in capsys.readouterr().out


def test_one_is_no_plural(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    one = machine(gpus=None).model_copy(update={"gpus": (gpu(0),), "attached": 1})
    assert run("--from", *save(tmp_path, one)) == 0
    assert capsys.readouterr().out == "1 node, 1 GPU: nothing wrong\n"
    (text,) = texts(machine(gpus={0: {"ecc_uncorrected": 1}}))
    assert "1 uncorrected ECC error since" in text
