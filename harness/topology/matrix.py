"""The device matrix of ``nvidia-smi topo -m`` as cells: columns, rows, affinity fields, whatever the damage."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from harness.errors import TopologyError
from harness.topology import cpulist
from harness.topology.plain import one_line, small_int

MAX_DEVICES = 256
_LINK = r"NV[0-9]{1,3}|SYS|NODE|PHB|PXB|PIX|PSB|SOC|X|ERR!?"
_CELL = re.compile(rf"(?:{_LINK})\Z")
_NEXT = re.compile(r"NV[0-9]{1,2}|SYS|NODE|PHB|PXB|PIX|PSB|SOC|X")
_CUT = re.compile(r"(SY?|NOD?|PH?|PX|PI|PS|SO|NV)(?=[0-9]+[-,]|[0-9]*\Z)")
_WHOLE = {"S": "SYS", "SY": "SYS", "N": "NODE", "NO": "NODE", "NOD": "NODE", "PH": "PHB", "PX": "PXB"}
_WHOLE |= {"PI": "PIX", "PS": "PSB", "SO": "SOC"}
_GPU = re.compile(r"GPU([0-9]{1,4})\Z")
_COLUMN = re.compile(r"(?=[^0-9]*[0-9])[A-Za-z][\w.:-]*\Z")
_TAIL = re.compile(r"\b(CPU|NUMA|GPU|Node)\s+(?:NUMA\s+ID?|Aff[a-z]*)|\b(?:CPU|NUMA|GPU NUMA)\s*\Z")
_TAIL_WORDS = {"CPU", "NUMA", "GPU", "ID", "I", "Affinity", "Node"}
_LEGEND = re.compile(r"\s*(NIC[0-9]+|[A-Za-z]\w*)\s*:\s*(\S+)\s*\Z")
_MARKS = re.compile(r"[ ]*(?:(?:#|>|//|\|)+[ ]?)+")


@dataclass
class Row:
    """One device's cells by column (None = not readable) and its affinity fields."""

    cells: list[str | None]
    tail: list[str]
    repaired: bool = False
    cut_at: int | None = None  # place of the last cell where the line ends inside the matrix


@dataclass
class Matrix:
    """One listing: its columns in printed order, rows by label, NIC legend."""

    columns: list[str]
    tail_columns: int
    rows: dict[str, Row] = field(default_factory=dict)
    legend: dict[str, str] = field(default_factory=dict)
    places: dict[str, int] = field(init=False)

    def __post_init__(self) -> None:
        self.places = {name: place for place, name in enumerate(self.columns)}

    @property
    def gpus(self) -> list[str]:
        return [name for name in self.columns if _GPU.match(name)]

    @property
    def nics(self) -> list[str]:
        return [name for name in self.columns if not _GPU.match(name)]

    def cell(self, row: str, column: str) -> str | None:
        """The cell as printed in ``row``; None if the row or the cell is not there."""
        found = self.rows.get(row)
        return None if found is None else found.cells[self.places[column]]


def is_link_word(word: str) -> bool:
    """Whether ``word`` is one of nvidia-smi's link words."""
    return _CELL.match(word) is not None


def is_header(line: str) -> bool:
    """Whether ``line`` is the column header of a device matrix."""
    words = _plain(line).split()
    if not words or not _GPU.match(words[0]) or not all(_header_word(word) for word in words):
        return False
    return len(words) > 1 and not is_link_word(words[1])


def read_matrices(lines: list[str]) -> list[Matrix]:
    """Every matrix in ``lines``, in order."""
    found: list[Matrix] = []
    header: str | None = None
    pending: tuple[str, str] | None = None
    plain = [_plain(line) for line in lines]
    for line in [*plain, "Legend"]:
        words = line.split()
        if header is not None and words and not _starts_row(words, header.split()):
            new = words[0] in _TAIL_WORDS or words[0] not in header.split()
            if new and all(_header_word(word) for word in words):
                header += "\t" + line
                continue
        if header is not None and words:
            found.append(_start(header))
            header = None
        if is_header(line):
            _finish(found, pending)
            pending, header = None, line
        elif found and words:
            pending = _take(found, pending, line, words)
    return found


def _take(found: list[Matrix], pending: tuple[str, str] | None, line: str, words: list[str]) -> tuple[str, str] | None:
    """Handle one line below a header: a row, the rest of a wrapped row, or a line of the NIC legend."""
    matrix = found[-1]
    if words[0] in matrix.columns and (len(words) == 1 or not words[1].startswith((":", "="))):
        _finish(found, pending)
        return words[0], line[line.index(words[0]) + len(words[0]) :]
    if pending is not None and all(_row_word(word) for word in words):
        return pending[0], pending[1] + "\t" + line.strip()
    _finish(found, pending)
    legend = _LEGEND.match(line)
    if legend and legend.group(1) in matrix.columns:
        matrix.legend[legend.group(1)] = legend.group(2)
    return None


def _finish(found: list[Matrix], pending: tuple[str, str] | None) -> None:
    if pending is not None and found and pending[0] not in found[-1].rows:
        matrix = found[-1]
        matrix.rows[pending[0]] = _row(pending[1], matrix, matrix.places[pending[0]])
    return


def _plain(line: str) -> str:
    """``line`` without quote and comment marks, table bars turned into tabs."""
    stripped = _MARKS.sub("", line, count=1) if _MARKS.match(line) else line
    return stripped.replace("|", "\t").replace("`", " ")


def _header_word(word: str) -> bool:
    return word in _TAIL_WORDS or bool(_COLUMN.match(word)) or "Affinity".startswith(word)


def _row_word(word: str) -> bool:
    return is_link_word(word) or cpulist.is_list(word) or word == "N/A"


def _starts_row(words: list[str], header: list[str]) -> bool:
    return words[0] in header and len(words) > 1 and (is_link_word(words[1]) or not _header_word(words[1]))


def _start(header: str) -> Matrix:
    tail = _TAIL.search(header)
    columns = (header[: tail.start()] if tail else header).split()
    numbers = [gpu_number(name) for name in columns if _GPU.match(name)]
    if len(set(columns)) != len(columns) or len(set(numbers)) != len(numbers):
        raise TopologyError("the listing's header names a device twice; save the output again, unedited")
    if len(columns) > MAX_DEVICES:
        raise TopologyError(f"the listing has more than {MAX_DEVICES} columns; it is no machine's matrix")
    return Matrix(columns=columns, tail_columns=len(_TAIL.findall(header)))


def _row(rest: str, matrix: Matrix, own: int) -> Row:
    """The cells of one row: by tabs where they fit, else word by word with the damage repaired."""
    count = len(matrix.columns)
    fields = [field.strip() for field in rest.split("\t")[1:]]
    fitting = len(fields) >= count and all(not cell or is_link_word(cell) for cell in fields[:count])
    if fitting and fields[own] == "X":
        row = Row([cell or None for cell in fields[:count]], _tail(fields[count:], matrix.tail_columns))
        row.cut_at = None if any(fields[count:]) else count - 1
        return row
    cells, left, repaired = _stream(rest, count)
    row = Row([*cells, *[None] * (count - len(cells))], [], repaired or len(cells) < count)
    row.tail = _tail(_tail_fields(left), matrix.tail_columns)
    if (own < len(cells) or "X" in cells) and row.cells[own] != "X":
        row.cells = [None] * count  # nothing says which cells the missing one has shifted
        row.repaired = True
    elif len(cells) < count and left.strip():
        # A cell is missing somewhere after the own one; only what stands before it is certain.
        row.cells[own + 1 :] = [None] * (count - own - 1)
    elif cells and not left.strip():
        row.cut_at = len(cells) - 1
    return row


def _tail_fields(left: str) -> list[str]:
    """What follows the cells, with the empty fields between tabs kept: they tell which column is missing."""
    if "\t" not in left:
        return left.split()
    pieces = left.strip(" ").removeprefix("\t").split("\t")
    return [word for piece in pieces for word in piece.split() or [""]]


def _stream(rest: str, count: int) -> tuple[list[str | None], str, bool]:
    """Up to ``count`` cells from the words of ``rest``, what is left, and whether words had to be cut."""
    cells: list[str | None] = []
    repaired = False
    end = 0
    for match in re.finditer(r"\S+", rest):
        if len(cells) >= count:
            break
        word, end = match.group(), match.end()
        if is_link_word(word):
            cells.append(word)
            continue
        pieces, left = _segments(word, count - len(cells))
        repaired = repaired or bool(pieces)
        cells.extend(pieces)
        if left and not pieces and not _row_word(left):
            cells.append(left)  # another vendor's word: kept, for the reader to refuse
        elif left:
            return cells, left + rest[end:], repaired
    return cells, rest[end:], repaired


def _segments(word: str, room: int) -> tuple[list[str], str]:
    """Link words that run together at the front of ``word``, and the list that follows them."""
    pieces: list[str] = []
    left = word
    while left and len(pieces) < room:
        whole, cut = _NEXT.match(left), _CUT.match(left)
        if whole:
            pieces.append(whole.group())
            left = left[whole.end() :]
        elif cut and cut.group(1) in _WHOLE:
            pieces.append(_WHOLE[cut.group(1)])
            left = left[cut.end() :]
        else:
            break
    if left and not _row_word(left):
        return [], word
    return pieces, left


def _tail(fields: list[str], columns: int) -> list[str]:
    """CPU, NUMA and GPU NUMA fields; older drivers print fewer, newer ones print empty ones in between."""
    filled = [value for value in fields if value]
    if columns == 0:
        columns = min(len(filled), 3)
    if len(filled) >= columns:
        chosen = filled[:columns]
    elif len(fields) > len(filled):
        chosen = [*fields[: min(2, columns)], *[value for value in fields[2:] if value]][:columns]
    elif filled and all(value == "N/A" or small_int(value) is not None for value in filled[: columns - 1]):
        chosen = ["", *filled]  # the CPU list is what an empty cpuset leaves out
    else:
        chosen = filled
    return [*chosen, "", "", ""][:3]


def gpu_number(label: str) -> int:
    """The number of a GPU label."""
    match = _GPU.match(label)
    if match is None:
        raise TopologyError(f"{one_line(label)!r} is no GPU label; expected the form GPU0")
    return int(match.group(1))
