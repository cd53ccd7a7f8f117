"""The daily inspection: facts of each machine in a snapshot, compared with the contract, its peers and sound values."""

from harness.doctor.checks import Fault, inspect
from harness.doctor.saved import read_snapshots
from harness.doctor.snapshot import GpuFacts, Snapshot

__all__ = ["Fault", "GpuFacts", "Snapshot", "inspect", "read_snapshots"]
