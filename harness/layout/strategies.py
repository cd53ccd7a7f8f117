"""The one registry of strategies. Torch-free: the code of each is named by its module and imported on a rank."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from harness.errors import UnknownNameError

COMMON = frozenset({"precision", "activation_checkpointing", "compile"})
SHARDED = frozenset({"reshard_after_forward", "cpu_offload"})
TENSOR = frozenset({"sequence_parallel", "loss_parallel"})


@dataclass(frozen=True)
class Strategy:
    """One way to distribute training.

    Attributes:
        axes: the mesh axes that it uses; each of them must be at least 2, all others 1.
        own_options: the layout options that mean something to it, besides those that its axes bring.
        module: where its ``parallelize`` lives; imported on ranks only.
        default: whether an unrestricted sweep tries it.
    """

    name: str
    axes: tuple[str, ...]
    own_options: frozenset[str]
    summary: str
    default: bool = True

    @property
    def options(self) -> frozenset[str]:
        """The layout options that it takes: its own, and the order of its axes if it has several."""
        return self.own_options | ({"order"} if len(self.axes) > 1 else set())

    @property
    def module(self) -> str:
        return f"harness.train.strategies.{self.name}"


STRATEGIES: Mapping[str, Strategy] = {
    s.name: s
    for s in (
        Strategy("single", (), COMMON, "one process, the reference", default=False),
        Strategy("ddp", ("dp_replicate",), COMMON, "DistributedDataParallel"),
        Strategy("fsdp", ("dp_shard",), COMMON | SHARDED, "fully_shard on a 1-D mesh"),
        Strategy("hsdp", ("dp_replicate", "dp_shard"), COMMON | SHARDED, "fully_shard on replicate x shard"),
        Strategy("tp", ("tp",), COMMON | TENSOR, "tensor parallel"),
        Strategy("fsdp_tp", ("dp_shard", "tp"), COMMON | SHARDED | TENSOR, "fully_shard x tensor parallel"),
        Strategy(
            "hsdp_tp",
            ("dp_replicate", "dp_shard", "tp"),
            COMMON | SHARDED | TENSOR,
            "fully_shard on a 3-D mesh",
        ),
        Strategy("ddp_tp", ("dp_replicate", "tp"), COMMON | TENSOR, "replicate x tensor parallel, nothing sharded"),
        Strategy(
            "fsdp1",
            ("dp_shard",),
            COMMON | SHARDED,
            "FullyShardedDataParallel; reshard_after_forward=false is SHARD_GRAD_OP",
            default=False,
        ),
        Strategy(
            "fsdp1_hybrid",
            ("dp_replicate", "dp_shard"),
            COMMON | SHARDED,
            "FullyShardedDataParallel HYBRID_SHARD with a device_mesh",
            default=False,
        ),
        Strategy(
            "manual_hsdp",
            ("dp_replicate", "dp_shard"),
            COMMON | SHARDED,
            "hsdp on groups made by hand with new_group",
            default=False,
        ),
    )
}


def get_strategy(name: str) -> Strategy:
    """Look a strategy up.

    Raises:
        UnknownNameError: no such strategy; the message lists all.
    """
    try:
        return STRATEGIES[name]
    except KeyError:
        raise UnknownNameError("layout", name, STRATEGIES) from None
