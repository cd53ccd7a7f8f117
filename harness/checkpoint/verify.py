"""Is a checkpoint whole and unaltered? Every damage is named by file and, where it lies in a tensor, by key."""

from __future__ import annotations

import hashlib
import zlib
from collections.abc import Iterator
from pathlib import Path

from harness.base import Frozen
from harness.checkpoint.manifest import Manifest, Piece, StoredFile, StoredTensor, piece_key
from harness.checkpoint.names import MANIFEST, CheckpointError
from harness.checkpoint.safetensors import Entry, read_header

CHUNK_BYTES = 8 << 20
STRANGE = "does not belong to the checkpoint"

Named = tuple[str, StoredTensor, Piece]


class Damage(Frozen):
    """One thing that is wrong. ``keys``: the tensors that it lies in, none if it lies in no tensor."""

    file: str
    keys: tuple[str, ...] = ()
    what: str

    @property
    def text(self) -> str:
        names = ", ".join(self.keys[:3]) + (f" and {len(self.keys) - 3} more" if len(self.keys) > 3 else "")
        return f"{self.file}: {names}{': ' if names else ''}{self.what}"


def check_sizes(folder: Path, manifest: Manifest) -> list[Damage]:
    """Files that are missing or of another size than was written, with the tensors that are cut off."""
    found = []
    for file in manifest.files:
        path = folder / file.name
        if not path.is_file():
            found.append(Damage(file=file.name, what="is missing"))
        elif (size := path.stat().st_size) != file.size_bytes:
            cut = tuple(key for key, _, piece in pieces_of(manifest, file.name) if piece.end > size)
            what = f"has {size:,} bytes instead of {file.size_bytes:,}"
            found.append(Damage(file=file.name, keys=cut, what=what if not cut else f"cut off: the file {what}"))
    return found


def verify(folder: Path, manifest: Manifest, quick: bool = False) -> list[Damage]:
    """All damage of a checkpoint. ``quick``: sizes and headers only, no tensor is read."""
    damage = check_sizes(folder, manifest)
    broken = {one.file for one in damage}
    for file in manifest.files:
        if file.name not in broken:
            damage += _headers(folder, manifest, file)
            if not quick:
                damage += _contents(folder, manifest, file)
    known = {MANIFEST, *(file.name for file in manifest.files)}
    strange = sorted(p.name for p in folder.iterdir() if p.name not in known)
    return [*damage, *(Damage(file=name, what=STRANGE) for name in strange)]


def require_whole(folder: Path, manifest: Manifest) -> None:
    """See that each file is there with its full size.

    Raises:
        CheckpointError: with the first file and key that is not.
    """
    damage = check_sizes(folder, manifest)
    if damage:
        raise damaged(folder, damage)


def damaged(folder: Path, damage: list[Damage]) -> CheckpointError:
    """The error that names the first damage and how much more there is."""
    more = f" (and {len(damage) - 1} more)" if len(damage) > 1 else ""
    return CheckpointError(f"checkpoint {folder} is damaged: {damage[0].text}{more}; restore an older one")


def pieces_of(manifest: Manifest, file: str) -> list[Named]:
    """Every piece in one file, in the order of its bytes."""
    found = [
        (key, tensor, piece)
        for key, tensor in manifest.tensors.items()
        for piece in (*tensor.pieces, *tensor.copies)
        if piece.file == file
    ]
    return sorted(found, key=lambda named: (named[2].begin, named[2].end))


def _headers(folder: Path, manifest: Manifest, file: StoredFile) -> Iterator[Damage]:
    try:
        entries, _ = read_header(folder / file.name)
    except CheckpointError:
        yield Damage(file=file.name, what="its header is altered")
        return
    expected = {
        piece_key(key, tensor.shape, piece.offsets, piece.shape): Entry(
            tensor.dtype, piece.shape, piece.begin, piece.end
        )
        for key, tensor, piece in pieces_of(manifest, file.name)
    }
    wrong = tuple(sorted(k for k in {*entries, *expected} if entries.get(k) != expected.get(k)))
    if wrong:
        yield Damage(file=file.name, keys=wrong, what="its header says other than the manifest")


def _contents(folder: Path, manifest: Manifest, file: StoredFile) -> Iterator[Damage]:
    """The file's digest first; only if it differs, each piece's sum, to find the tensor."""
    path = folder / file.name
    if file.sha256 is not None and file_digest(path) == file.sha256:
        return
    altered = []
    with path.open("rb") as stream:
        for key, _, piece in pieces_of(manifest, file.name):
            stream.seek(piece.begin)
            if sum_of(stream.read(piece.nbytes)) != piece.crc32:
                altered.append(key)
    if altered:
        yield Damage(file=file.name, keys=tuple(altered), what="altered since it was written")
    elif file.sha256 is not None:
        yield Damage(file=file.name, what="altered outside its tensors since it was written")


def file_digest(path: Path) -> str:
    """SHA-256 of a file, as ``sha256sum`` prints it."""
    digest = hashlib.sha256()
    with path.open("rb") as stream:
        while chunk := stream.read(CHUNK_BYTES):
            digest.update(chunk)
    return digest.hexdigest()


def sum_of(data: bytes | memoryview) -> int:
    """CRC-32 of a piece: quick enough to be checked at every restore."""
    return zlib.crc32(data)
