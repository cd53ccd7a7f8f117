"""A checkpoint described in a few lines."""

from __future__ import annotations

from harness.checkpoint.manifest import KINDS, Manifest
from harness.checkpoint.measured import Sizes


def inspect_text(manifest: Manifest, sizes: Sizes) -> str:
    """Facts, bytes by kind, files."""
    model = manifest.model.name if manifest.model else manifest.model_path or "unknown"
    contract = f"{manifest.contract.name} ({manifest.contract.digest})" if manifest.contract else "none"
    versions = ", ".join(f"{name} {version}" for name, version in manifest.versions.items()) or "unknown"
    facts = {
        "step": str(manifest.step),
        "saved from": f"{manifest.layout or 'no layout'}, mesh {manifest.mesh}",
        "model": model,
        "way": manifest.way,
        "created": manifest.created_at,
        "versions": versions,
        "mesh contract": contract,
        "tensors": f"{len(manifest.tensors):,} in {sum(len(t.pieces) for t in manifest.tensors.values()):,} pieces",
    }
    lines = [f"{name:14}{value}" for name, value in facts.items()]
    amounts: dict[str, int] = {kind: sizes.bytes_by_kind[kind] for kind in KINDS if kind in sizes.bytes_by_kind}
    amounts |= {"metadata": sizes.metadata_bytes, "duplicates": sizes.duplicate_bytes, "total": sizes.total_bytes}
    lines += ["", "bytes", *(f"  {name:12}{amount:>20,}" for name, amount in amounts.items())]
    lines += ["", "files", *(f"  {f.name}  {f.size_bytes:>16,}  written by rank {f.rank}" for f in manifest.files)]
    return "\n".join(lines)
