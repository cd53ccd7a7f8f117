"""The ways to save and to restore that are compared, by name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

SaveWay = Literal["spread", "one_group", "per_rank", "full", "stock"]
RestoreWay = Literal["spread", "one_group", "each", "stock"]

SAVE_WAYS: Mapping[SaveWay, str] = {
    "one_group": "each piece once, by the lowest rank that holds it: dp_shard x tp writers (the default)",
    "spread": "each piece once, spread over all ranks that hold it",
    "per_rank": "every rank writes all that it holds, replicas again and again",
    "full": "whole tensors gathered on rank 0, one file",
    "stock": "torch.distributed.checkpoint as it comes (its metadata is a pickle, so it is only measured)",
}
RESTORE_WAYS: Mapping[RestoreWay, str] = {
    "one_group": "each piece read by the lowest rank that needs it and sent to the others (the default)",
    "spread": "each piece read by one of the ranks that need it, in turn, and sent to the others",
    "each": "every rank reads all that it needs",
    "stock": "torch.distributed.checkpoint as it comes, of a checkpoint saved by it",
}
