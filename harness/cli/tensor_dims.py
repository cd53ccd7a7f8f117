"""Which dim of each parameter tensor parallelism splits, for cutting a checkpoint for a mesh with tp."""

from __future__ import annotations

from fnmatch import fnmatchcase

from harness.checkpoint.manifest import Manifest
from harness.errors import UsageError
from harness.layout import Mesh
from harness.predict.parameters import parameters
from harness.workload import load_definition

DIM_OF_WORD = {"embedding": 0, "colwise": 0, "head": 0, "rowwise": 1}


def tp_dims(manifest: Manifest, mesh: Mesh) -> dict[str, int | None]:
    """Dims by parameter name: of the reference model, or from the tp_plan of the user's; none without a tp axis.

    Raises:
        UsageError: the model, or its tp_plan, is not known.
    """
    if mesh.tp == 1:
        return {}
    if manifest.model_path is not None:
        plan = load_definition(manifest.model_path).tp_plan
        names = {key.removeprefix("model.") for key in manifest.tensors if key.startswith("model.")}
        return {name: _dim(name.rpartition(".")[0], dict(plan)) for name in names}
    if manifest.model is not None:
        return {parameter.name: parameter.tp_dim for parameter in parameters(manifest.model)}
    raise UsageError(f"mesh {mesh.short} splits tensors and the checkpoint names no model; convert to a mesh without t")


def _dim(module: str, plan: dict[str, str]) -> int | None:
    for pattern, word in plan.items():
        parts, names = pattern.split("."), module.split(".")
        if len(parts) == len(names) and all(fnmatchcase(n, p) for n, p in zip(names, parts, strict=True)):
            return DIM_OF_WORD.get(word)
    return None
