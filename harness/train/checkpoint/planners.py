"""DCP's planners with two changes: values that are no tensors are JSON and not pickle, and who writes replicas."""

from __future__ import annotations

from typing import Any

from torch.distributed.checkpoint import DefaultLoadPlanner, DefaultSavePlanner, Metadata
from torch.distributed.checkpoint._nested_dict import set_element
from torch.distributed.checkpoint.planner import ReadItem, SavePlan, WriteItem, WriteItemType

from harness.checkpoint.manifest import decode, encode
from harness.checkpoint.ways import SaveWay


class SavePlanner(DefaultSavePlanner):
    """Plans a save of way ``spread``, ``one_group``, ``per_rank`` or ``full``."""

    def __init__(self, way: SaveWay) -> None:
        super().__init__(dedup_save_to_lowest_rank=way != "spread")
        self._keeps_copies = way == "per_rank"

    def create_global_plan(self, all_plans: list[SavePlan]) -> tuple[list[SavePlan], Metadata]:
        plans, metadata = super().create_global_plan(all_plans)
        return (all_plans if self._keeps_copies else plans), metadata

    def transform_object(self, write_item: WriteItem, object: Any) -> Any:
        return encode(object) if write_item.type == WriteItemType.BYTE_IO else object


class LoadPlanner(DefaultLoadPlanner):
    """Takes values from the manifest. Partial loads are allowed here, since ``require_fit`` has looked before."""

    def __init__(self, values: dict[str, Any]) -> None:
        super().__init__(allow_partial_load=True)
        self._values = values

    def load_value(self, item: ReadItem) -> None:
        """Put a value that is no tensor into the state."""
        key = item.dest_index.fqn
        set_element(self.original_state_dict, self.mappings[key], decode(self._values[key]))
