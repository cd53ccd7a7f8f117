"""A cell's traffic: what its verify run counted, carried to links, and held against the nodes' counters."""

from __future__ import annotations

from statistics import median

from harness.base import Frozen
from harness.errors import TopologyError
from harness.layout.subset import first_devices
from harness.predict.proof import WireProof, prove
from harness.predict.wire import Algorithm, WireTraffic, wire_traffic
from harness.record import RunRecord
from harness.spec import SweepPlan
from harness.traffic import Collective


class CellTraffic(Frozen):
    """One step's traffic.

    Attributes:
        collectives: as rank 0 issued them.
        rank_bytes: algorithm bytes of all of a rank's collectives, a value a rank.
        proof: None where nothing goes between nodes or no counter tells.
        counting_cost: what counting adds to a counted, untimed step, as a fraction of a plain one.
    """

    collectives: tuple[Collective, ...]
    rank_bytes: tuple[int, ...]
    wire: WireTraffic
    proof: WireProof | None = None
    counting_cost: float | None = None

    @property
    def count(self) -> int:
        """Collectives of one step."""
        return sum(one.count for one in self.collectives)

    def bytes_of_axis(self, axis: str) -> int:
        """Bytes that all ranks send for one axis."""
        return sum(link.sent_bytes for link in self.wire.links if link.axis == axis)


def cell_traffic(plan: SweepPlan, verify: RunRecord | None) -> CellTraffic | None:
    """None where nothing was counted, as on one rank, or the plan's devices are fewer than the layout's ranks.

    Also where nothing says how what was counted goes over links: an operation that is not known, groups that the layout
    does not have.
    """
    traffic = verify.traffic if verify else None
    if verify is None or traffic is None or not traffic.collectives:
        return None
    layout = verify.spec.layout
    if layout.mesh.world_size > plan.topology.device_count:
        return None
    topology = first_devices(plan.topology, layout.mesh.world_size)
    algorithm: Algorithm = "gloo" if verify.spec.ranks.device == "cpu" else "nccl_ring"
    try:
        wire = wire_traffic(traffic.collectives, layout, topology, algorithm)
    except (ValueError, TopologyError):
        return None
    plain = median(traffic.plain_step_s) if traffic.plain_step_s else 0
    return CellTraffic(
        collectives=traffic.collectives,
        rank_bytes=traffic.rank_bytes,
        wire=wire,
        proof=prove(traffic, wire),
        counting_cost=median(traffic.counted_step_s) / plain - 1 if traffic.counted_step_s and plain else None,
    )
