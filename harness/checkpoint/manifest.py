"""What a checkpoint is made of: ``manifest.json``, the last file written and the first one read."""

from __future__ import annotations

import json
from math import prod
from pathlib import Path
from typing import Any, Literal

from pydantic import Field, ValidationError, model_validator

from harness.base import Frozen
from harness.checkpoint.names import MANIFEST, CheckpointError
from harness.checkpoint.safetensors import ITEM_BYTES
from harness.mesh.contract import MeshContract
from harness.workload import ModelShape

SCHEMA = 1
FILE_NAME = r"^[A-Za-z0-9][A-Za-z0-9._-]{0,120}$"  # plain names: nothing outside the folder can be meant

Kind = Literal["parameters", "buffers", "exp_avg", "exp_avg_sq", "momentum", "step", "other"]
KINDS: tuple[Kind, ...] = ("parameters", "buffers", "exp_avg", "exp_avg_sq", "momentum", "step", "other")


class Piece(Frozen):
    """A box of a tensor in one file.

    Attributes:
        offsets, shape: where in the whole tensor it lies, and its sizes; both have the tensor's number of dims.
        begin, end: its bytes in the file, counted from the file's start.
        crc32: of those bytes.
    """

    file: str = Field(pattern=FILE_NAME)
    offsets: tuple[int, ...]
    shape: tuple[int, ...]
    begin: int = Field(ge=0)
    end: int = Field(ge=0)
    crc32: int = Field(ge=0, lt=2**32)

    @property
    def nbytes(self) -> int:
        return self.end - self.begin


class StoredTensor(Frozen):
    """A whole tensor. ``pieces`` cover it exactly once; ``copies`` are what else of it is stored."""

    kind: Kind
    dtype: str  # safetensors' word, such as "F32"
    shape: tuple[int, ...]
    pieces: tuple[Piece, ...]
    copies: tuple[Piece, ...] = ()

    @property
    def nbytes(self) -> int:
        return prod(self.shape) * ITEM_BYTES[self.dtype]

    @model_validator(mode="after")
    def _pieces_cover_it(self) -> StoredTensor:
        if self.dtype not in ITEM_BYTES:
            raise ValueError(f"dtype {self.dtype} is not one of {', '.join(ITEM_BYTES)}")
        item = ITEM_BYTES[self.dtype]
        for piece in (*self.pieces, *self.copies):
            if not len(piece.offsets) == len(piece.shape) == len(self.shape):
                raise ValueError(f"a piece at {piece.offsets} has another number of dims than {self.shape}")
            if any(o < 0 or n < 0 or o + n > s for o, n, s in zip(piece.offsets, piece.shape, self.shape, strict=True)):
                raise ValueError(f"a piece at {piece.offsets} of shape {piece.shape} lies outside {self.shape}")
            if piece.nbytes != prod(piece.shape) * item:
                raise ValueError(f"a piece of shape {piece.shape} has {piece.nbytes} bytes")
        if sum(prod(p.shape) for p in self.pieces) != prod(self.shape):
            raise ValueError(f"the pieces do not add up to shape {self.shape}")
        return self


class StoredFile(Frozen):
    """One file of the checkpoint besides the manifest. ``rank``: who wrote it."""

    name: str = Field(pattern=FILE_NAME)
    size_bytes: int = Field(ge=0)
    sha256: str | None = None  # None where digests were left out on request
    rank: int = Field(ge=0)


class Manifest(Frozen):
    """Everything that is known of a checkpoint without reading its tensors.

    Attributes:
        mesh: signature of the mesh that it was saved from.
        layout: text of the layout, None if it came from elsewhere.
        model_path: the user's ``package.module:function``, None for a preset.
        way: how it was saved.
        versions: of the packages that wrote it.
        contract: the mesh contract of the run.
        values: what is no tensor, by key, as JSON (see ``encode``).
    """

    format: Literal["meshsweep-checkpoint"] = "meshsweep-checkpoint"
    schema_version: int = SCHEMA
    step: int = Field(ge=0)
    mesh: str
    layout: str | None = None
    model: ModelShape | None = None
    model_path: str | None = None
    way: str
    created_at: str
    versions: dict[str, str] = Field(default_factory=dict)
    contract: MeshContract | None = None
    files: tuple[StoredFile, ...]
    tensors: dict[str, StoredTensor]
    values: dict[str, Any] = Field(default_factory=dict)

    @model_validator(mode="after")
    def _pieces_are_in_known_files(self) -> Manifest:
        if self.schema_version != SCHEMA:
            raise ValueError(f"schema_version is {self.schema_version} and this version reads {SCHEMA}")
        sizes = {file.name: file.size_bytes for file in self.files}
        for key, tensor in self.tensors.items():
            for piece in (*tensor.pieces, *tensor.copies):
                if piece.file not in sizes:
                    raise ValueError(f"{key} is in {piece.file}, which is not listed")
                if piece.end > sizes[piece.file]:
                    raise ValueError(f"{key} ends at byte {piece.end} of {piece.file}, which has {sizes[piece.file]}")
        return self

    @property
    def tensor_bytes(self) -> int:
        """Bytes of all tensors, each once: what no way of saving can go below."""
        return sum(tensor.nbytes for tensor in self.tensors.values())

    @property
    def duplicate_bytes(self) -> int:
        """Bytes that are stored a second time or more."""
        return sum(piece.nbytes for tensor in self.tensors.values() for piece in tensor.copies)


def piece_key(key: str, tensor_shape: tuple[int, ...], offsets: tuple[int, ...], shape: tuple[int, ...]) -> str:
    """A piece's name in its file: the tensor's key, with ``@`` and offsets if it is only a part of it."""
    return key if shape == tensor_shape else f"{key}@{','.join(map(str, offsets))}"


def kind_of(key: str) -> Kind:
    """The kind of a tensor by its key, ``model.<name>`` or ``optimizer.state.<name>.<state>``."""
    if key.startswith("model."):
        return "parameters"
    last = key.rpartition(".")[2]
    if last == "momentum_buffer":
        return "momentum"
    return last if last in ("exp_avg", "exp_avg_sq", "step") else "other"  # type: ignore[return-value]


def encode(value: Any) -> Any:
    """A plain value as JSON, tuples kept apart from lists.

    Raises:
        CheckpointError: it is no number, text, bool, None, or list, tuple or dict of such.
    """
    if isinstance(value, tuple):
        return {"tuple": [encode(item) for item in value]}
    if isinstance(value, list):
        return [encode(item) for item in value]
    if isinstance(value, dict) and all(isinstance(k, str) for k in value):
        return {"dict": {k: encode(v) for k, v in value.items()}}
    if value is None or isinstance(value, bool | int | float | str):
        return value
    raise CheckpointError(f"a {type(value).__name__} cannot be stored without pickle; make it a tensor or plain value")


def decode(value: Any) -> Any:
    """The value that ``encode`` was given."""
    if isinstance(value, list):
        return [decode(item) for item in value]
    if isinstance(value, dict):
        if set(value) == {"tuple"}:
            return tuple(decode(item) for item in value["tuple"])
        return {k: decode(v) for k, v in value["dict"].items()}
    return value


def read_manifest(folder: Path) -> Manifest:
    """The manifest of a whole checkpoint.

    Raises:
        CheckpointError: no such folder, no manifest (a half checkpoint), or one that contradicts itself.
    """
    try:
        text = (folder / MANIFEST).read_text(encoding="utf-8")
    except FileNotFoundError:
        what = "has no manifest.json, so it was not written to its end" if folder.is_dir() else "does not exist"
        raise CheckpointError(
            f"{folder} {what}; choose a checkpoint that 'meshsweep checkpoint verify' accepts"
        ) from None
    except (OSError, UnicodeDecodeError) as error:
        raise CheckpointError(f"cannot read {folder / MANIFEST}: {error}") from None
    return parse_manifest(text, folder)


def parse_manifest(text: str, folder: Path) -> Manifest:
    """The manifest that ``text`` is.

    Raises:
        CheckpointError: it is not one, or it contradicts itself.
    """
    try:
        return Manifest.model_validate_json(text)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"]) or "top level"
        message = first["msg"].removeprefix("Value error, ")
        raise CheckpointError(f"{folder / MANIFEST} is damaged: {where}: {message}; restore an older one") from None


def manifest_text(manifest: Manifest) -> str:
    """The file's content."""
    return json.dumps(manifest.model_dump(mode="json", exclude_defaults=False), separators=(",", ":"))
