"""Can a checkpoint be restored into a layout? Said before anything is touched."""

from __future__ import annotations

from harness.checkpoint.manifest import Manifest
from harness.errors import IllegalLayoutError
from harness.layout import Layout
from harness.layout.legality import check_layout
from harness.workload import Workload


def why_not(manifest: Manifest, layout: Layout, workload: Workload, world_size: int) -> str | None:
    """Why the checkpoint cannot be restored into ``layout`` on ``world_size`` ranks; None if it can."""
    try:
        check_layout(layout, workload, world_size)
    except IllegalLayoutError as error:
        return str(error)
    saved, wanted = manifest.model, workload.model
    if saved is not None and saved.model_copy(update={"name": wanted.name}) != wanted:
        fields = [f for f in type(wanted).model_fields if f != "name" and getattr(saved, f) != getattr(wanted, f)]
        listed = ", ".join(f"{f} {getattr(saved, f)} instead of {getattr(wanted, f)}" for f in fields)
        return f"the checkpoint is of another model: {listed}; restore it into the model it is of"
    if manifest.model_path != workload.model_path:
        return f"the checkpoint is of model {manifest.model_path or (saved and saved.name)}, not {workload.model.name}"
    return None
