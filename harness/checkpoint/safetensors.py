"""The safetensors file format, read and written as bytes: 8 bytes of header length, a JSON header, the tensors.

Source: https://huggingface.co/docs/safetensors (format). Nothing in such a file is code, so reading it runs none.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import NamedTuple

from harness.checkpoint.names import CheckpointError

ALIGNMENT = 4096  # tensors begin on a page of most disks, so that reads past the page cache fit
MOST_HEADER_BYTES = 100_000_000  # as in the reference implementation
ITEM_BYTES = (
    dict.fromkeys(("BOOL", "U8", "I8", "F8_E4M3", "F8_E5M2"), 1)
    | dict.fromkeys(("U16", "I16", "F16", "BF16"), 2)
    | dict.fromkeys(("U32", "I32", "F32"), 4)
    | dict.fromkeys(("U64", "I64", "F64"), 8)
)


class Entry(NamedTuple):
    """One tensor of a file; ``begin`` and ``end`` count from the file's start."""

    dtype: str
    shape: tuple[int, ...]
    begin: int
    end: int


def header_bytes(entries: dict[str, tuple[str, tuple[int, ...], int]], metadata: dict[str, str] | None = None) -> bytes:
    """The start of a file whose tensors follow each other in this order: name -> (dtype, shape, bytes).

    Padded with blanks, so that tensors begin at a multiple of ``ALIGNMENT``.
    """
    header: dict[str, object] = {"__metadata__": metadata} if metadata else {}
    at = 0
    for name, (dtype, shape, nbytes) in entries.items():
        header[name] = {"dtype": dtype, "shape": list(shape), "data_offsets": [at, at + nbytes]}
        at += nbytes
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-(8 + len(text)) % ALIGNMENT)
    return len(text).to_bytes(8, "little") + text


def read_header(path: Path) -> tuple[dict[str, Entry], dict[str, str]]:
    """The tensors of a file by name, and its own metadata.

    Raises:
        CheckpointError: it cannot be read or is not a safetensors file.
    """
    try:
        size = path.stat().st_size
        with path.open("rb") as file:
            length = int.from_bytes(file.read(8), "little")
            if size < 8 or length > min(MOST_HEADER_BYTES, size - 8):
                raise ValueError(f"its header would have {length} bytes")
            header = json.loads(file.read(length))
        metadata = header.pop("__metadata__", {})
        return {name: _entry(entry, 8 + length, size) for name, entry in header.items()}, metadata
    except OSError as error:
        raise CheckpointError(f"cannot read {path}: {error.strerror or error}") from None
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise CheckpointError(f"{path} is not a safetensors file: {error}; restore it from a copy") from None


def _entry(entry: dict[str, object], start: int, size: int) -> Entry:
    dtype, shape, offsets = entry["dtype"], entry["shape"], entry["data_offsets"]
    if not isinstance(dtype, str) or not isinstance(shape, list) or not isinstance(offsets, list):
        raise ValueError("a tensor has no dtype, shape and data_offsets")
    begin, end = (start + int(offset) for offset in offsets)
    if not start <= begin <= end <= size:
        raise ValueError(f"a tensor lies at bytes {begin} to {end} of {size}")
    return Entry(dtype, tuple(int(n) for n in shape), begin, end)
