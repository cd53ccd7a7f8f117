"""Which layouts are legal for a workload and a world size, each refusal with its rule and the nearest legal one."""

from __future__ import annotations

import math

from harness.errors import IllegalLayoutError
from harness.layout.layout import Layout, LayoutOptions, option_text
from harness.layout.mesh import AXES, Mesh
from harness.layout.strategies import STRATEGIES, Strategy, get_strategy
from harness.workload import Workload


def check_layout(layout: Layout, workload: Workload, world_size: int | None = None) -> None:
    """Raise unless the layout can run the workload.

    Raises:
        IllegalLayoutError: with the rule that is broken, the reason and the nearest legal layout.
        UnknownNameError: the strategy does not exist.
    """
    strategy = get_strategy(layout.strategy)
    _check_axes(strategy, layout.mesh)
    _check_options(strategy, layout)
    if world_size is not None and layout.mesh.world_size != world_size:
        near = nearest_mesh(strategy, world_size)
        raise IllegalLayoutError(
            "world_size",
            f"{layout.label} needs {layout.mesh.world_size} ranks, not {world_size}; "
            + (f"the nearest legal mesh is {strategy.name}:{near}" if near else no_mesh(strategy, world_size)),
        )
    _check_batch(layout.mesh, workload)
    _check_tensor_parallel(layout, workload)


def nearest_mesh(strategy: Strategy, world_size: int) -> str | None:
    """Signature of a mesh of this strategy over ``world_size`` ranks; None if there is none."""
    return next((mesh.short for mesh in meshes(strategy, world_size)), None)


def no_mesh(strategy: Strategy, world_size: int) -> str:
    """Why a strategy has no mesh over ``world_size`` ranks."""
    wanted = f"{' x '.join(strategy.axes)}, each 2 or more" if strategy.axes else "exactly one rank"
    return f"{strategy.name} needs {wanted}; {world_size} ranks do not factor so"


def meshes(strategy: Strategy, world_size: int) -> list[Mesh]:
    """Every factorisation of ``world_size`` over the strategy's axes, each axis at least 2, in a fixed order."""
    if not strategy.axes:
        return [Mesh()] if world_size == 1 else []
    found = []
    for sizes in _factorisations(world_size, len(strategy.axes)):
        if min(sizes) >= 2:
            found.append(Mesh(**dict(zip(strategy.axes, sizes, strict=True))))
    return found


def _factorisations(n: int, parts: int) -> list[tuple[int, ...]]:
    if parts == 1:
        return [(n,)]
    return [(d, *rest) for d in _divisors(n) for rest in _factorisations(n // d, parts - 1)]


def _divisors(n: int) -> list[int]:
    small = [d for d in range(1, int(n**0.5) + 1) if n % d == 0]
    return small + [n // d for d in reversed(small) if d * d != n]


def _check_axes(strategy: Strategy, mesh: Mesh) -> None:
    sizes = dict(zip(AXES, mesh.sizes, strict=True))
    used = tuple(axis for axis, size in sizes.items() if size > 1)
    if used == strategy.axes:
        return
    nearest = next((s.name for s in STRATEGIES.values() if s.axes == used), None)
    wanted = " x ".join(strategy.axes) or "no axis (one rank)"
    remedy = f"the nearest legal layout is {nearest}:{mesh.short}" if nearest else "give each axis a size of 2 or more"
    raise IllegalLayoutError(
        "axes",
        f"{strategy.name} on mesh {mesh.short}: {strategy.name} uses {wanted}, each of size 2 or more; {remedy}",
    )


def _check_options(strategy: Strategy, layout: Layout) -> None:
    for name, value in layout.options.changed().items():
        if name not in strategy.options:
            takers = [s.name for s in STRATEGIES.values() if name in s.options]
            raise IllegalLayoutError(
                "option",
                f"{strategy.name} does not take {name}={option_text(value)}; leave it out, or use one of: "
                f"{', '.join(takers)}",
            )
    _check_reshard(layout.strategy, layout.mesh, layout.options)


def _check_reshard(name: str, mesh: Mesh, options: LayoutOptions) -> None:
    reshard = options.reshard_after_forward
    if isinstance(reshard, bool):
        return
    if name in ("fsdp1", "fsdp1_hybrid"):
        raise IllegalLayoutError(
            "reshard_after_forward",
            f"{name} takes reshard_after_forward=true or false, not {reshard}; an int needs fsdp or hsdp",
        )
    legal = [d for d in _divisors(mesh.dp_shard) if 1 < d < mesh.dp_shard]
    if reshard not in legal:
        near = min(legal, key=lambda d: abs(d - reshard)) if legal else None
        raise IllegalLayoutError(
            "reshard_after_forward",
            f"reshard_after_forward={reshard} must divide dp_shard={mesh.dp_shard} and lie between them; "
            + (f"the nearest legal value is {near}" if near else "here only true and false are legal"),
        )


def _check_batch(mesh: Mesh, workload: Workload) -> None:
    if workload.global_batch % mesh.dp:
        lower = workload.global_batch - workload.global_batch % mesh.dp
        legal = [str(n) for n in (lower, lower + mesh.dp) if n > 0]
        raise IllegalLayoutError(
            "batch",
            f"global batch {workload.global_batch} does not divide over dp_replicate x dp_shard = {mesh.dp} ranks of "
            f"mesh {mesh.short}; the nearest legal batch is {' or '.join(legal)}",
        )


def _check_tensor_parallel(layout: Layout, workload: Workload) -> None:
    tp = layout.mesh.tp
    if tp == 1:
        return
    if not workload.tp_capable:
        raise IllegalLayoutError(
            "tp_plan",
            f"{layout.label}: model {workload.model.name} gives no tp_plan; add one or use a layout without tp",
        )
    model = workload.model
    counts = {
        "n_heads": model.n_heads,
        "n_kv_heads": model.n_kv_heads,
        "ffn_dim": model.ffn_dim,
        "vocab_size": model.vocab_size,
    }
    if layout.options.sequence_parallel:
        counts["seq_len"] = workload.seq_len
    bad = [f"{name}={count}" for name, count in counts.items() if count % tp]
    if bad:
        legal = [d for d in _divisors(math.gcd(*counts.values())) if 1 < d < tp]
        raise IllegalLayoutError(
            "tp_divides",
            f"tp={tp} does not divide {', '.join(bad)} of model {model.name}; "
            + (f"the nearest legal tp is {legal[-1]}" if legal else "no smaller tp than this is legal"),
        )
