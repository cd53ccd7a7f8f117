"""What saved files say, taken together: the topology, and what only some of the files know."""

from __future__ import annotations

from harness.base import Frozen
from harness.topology.model import Topology


class ReadResult(Frozen):
    """The topology of all files read, with the kind of each file."""

    topology: Topology
    kinds: tuple[str, ...] = ()
