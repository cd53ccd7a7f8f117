"""What an export is made from, and what it gives."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from harness.layout import Layout, Mesh
from harness.layout.layout import LayoutOptions
from harness.spec import SweepPlan


class Target(NamedTuple):
    """A layout and the plan that it was measured in; ``cautions``: why it may be the wrong one elsewhere."""

    layout: Layout
    plan: SweepPlan
    cautions: tuple[str, ...] = ()

    @property
    def mesh(self) -> Mesh:
        return self.layout.mesh

    @property
    def options(self) -> LayoutOptions:
        return self.layout.options

    @property
    def nodes(self) -> int:
        return len(self.plan.ranks.per_node)

    @property
    def ranks_per_node(self) -> int:
        """Ranks of the fullest node."""
        return max(self.plan.ranks.per_node)

    @property
    def micro_batch(self) -> int:
        """Sequences of one data-parallel rank a step."""
        return max(1, self.plan.workload.global_batch // self.mesh.dp)

    @property
    def sharded(self) -> bool:
        """Whether parameters are sharded by fully_shard or its elder."""
        return self.layout.strategy not in ("single", "ddp", "tp", "ddp_tp")

    @property
    def title(self) -> str:
        """``hsdp r2s4, measured in sweep NAME`` as one line without a quote or a line break."""
        return f"{self.layout.label}, measured by meshsweep in sweep {_plain(self.plan.name)}"

    @property
    def caution(self) -> str | None:
        """One line of all cautions, without a quote or a line break."""
        if not self.cautions:
            return None
        return _plain(f"CAUTION: {'; '.join(self.cautions)}. Measure your own model on your own cluster before use.")

    @property
    def head(self) -> list[str]:
        """The first lines of a file."""
        return [f"{self.title}.", *([self.caution] if self.caution else [])]


class File(NamedTuple):
    """A file's text, and what of the layout it cannot say."""

    text: str
    lost: tuple[str, ...] = ()


def _plain(text: str) -> str:
    return "".join(c if c.isprintable() and c not in "\"'\\" else " " for c in text)


def comments(lines: Sequence[str]) -> str:
    """Lines as ``#`` comments."""
    return "".join(f"# {line}\n" for line in lines)


def lost_lines(lost: Sequence[str]) -> list[str]:
    """What is lost, for a file's head."""
    return [f"Not expressed here: {one}" for one in lost]


def order_lost(target: Target) -> tuple[str, ...]:
    """The order of axes, for tools that have one of their own."""
    if "order" not in target.options.changed():
        return ()
    return (f"order of axes over devices {'/'.join(target.options.order)}; the tool puts tp innermost",)
