"""The mesh contract: what every rank must agree on, as a small TOML file under version control."""

from harness.mesh.check import Finding, MeshContractError, RankFacts, check_machine, check_ranks
from harness.mesh.contract import MeshContract, contract_mesh, make_contract
from harness.mesh.toml import read_contract, write_contract

__all__ = [
    "Finding",
    "MeshContract",
    "MeshContractError",
    "RankFacts",
    "check_machine",
    "check_ranks",
    "contract_mesh",
    "make_contract",
    "read_contract",
    "write_contract",
]
