"""The mesh contract: what every rank must agree on, as a small TOML file under version control."""

from harness.mesh.check import Finding, MeshContractError, RankFacts, check_machine, check_ranks
from harness.mesh.contract import MeshContract, contract_mesh, make_contract
from harness.mesh.toml import contract_toml, parse_contract, read_contract

__all__ = [
    "Finding",
    "MeshContract",
    "MeshContractError",
    "RankFacts",
    "check_machine",
    "check_ranks",
    "contract_mesh",
    "contract_toml",
    "make_contract",
    "parse_contract",
    "read_contract",
]
