"""Files that are too large to be held in memory: their lines, or the records of their array, are read when their turn comes."""

from __future__ import annotations

import json
from array import array
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import BinaryIO, Final, overload

from noetic_nb._core.atomic_write import regular_file
from noetic_nb._core.long_work import counted
from noetic_nb.interop._formats.sources import Document, Line, refused
from noetic_nb.runs._load import MAX_LINE_BYTES

_PIECE: Final = 1 << 20
_MOST: Final = 2**62
_LOOKED_AT: Final = 3
_BLANK: Final = b" \t\r\n"
_WAYS: Final = (
    "Write a record on each line (jq -c '.[]' for a list, jq -c '.data[]' for the records of a page), or split it: such a file "
    "may have any size."
)
_UNPACK: Final = "Unpack it first: a file with a record on each line may have any size then."


def is_large(path: Path, limit: int) -> bool:
    """Tell whether a file has more bytes than are read at once."""
    try:
        return path.is_file() and path.stat().st_size > limit
    except OSError:  # said when it is opened
        return False


def large_document(path: Path) -> Document:
    """Return a document whose records stay in the file until they are asked for.

    Raises `NoeticError` ``invalid_run_file`` for a file that is one JSON value, or is packed.
    """
    document = Document(None, path)
    with regular_file(path, _MOST) as file:
        start = file.read(_PIECE)
        if start[:2] in (b"\x1f\x8b", b"PK"):
            raise refused(document, "it is packed, and too large to be read at once", hint=_UNPACK)
        file.seek(0)
        first = start.lstrip(b"\xef\xbb\xbf" + _BLANK)[:1]
        records = _Records(path)
        try:
            for begin, end in counted(_elements(file) if first == b"[" else _lines(file), "records"):
                records.starts.append(begin)
                records.stops.append(end)
        except ValueError as error:
            raise refused(document, f"it is too large to be read at once, and no list ({error})", hint=_WAYS) from error
    if first != b"[" and (len(records) < 2 or all(line.parsed() is None for line in records[:_LOOKED_AT])):
        raise refused(document, "it is one JSON value, and too large to be read at once", hint=_WAYS)
    return Document(records, path, by_line=True)


class _Records(Sequence[Line]):
    """The places of records in a file; each is read when it is asked for."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.starts, self.stops = array("q"), array("q")

    def __len__(self) -> int:
        return len(self.starts)

    @overload
    def __getitem__(self, index: int) -> Line: ...
    @overload
    def __getitem__(self, index: slice) -> list[Line]: ...
    def __getitem__(self, index: int | slice) -> Line | list[Line]:
        """Return a record as the text that the file has."""
        if isinstance(index, slice):
            return [self[place] for place in range(*index.indices(len(self)))]
        start, stop = self.starts[index], self.stops[index]
        with self.path.open("rb") as file:
            file.seek(start)
            # One that is longer than any may be is refused by its length.
            return Line(file.read(min(stop - start, MAX_LINE_BYTES + 1)))


def _lines(file: BinaryIO) -> Iterator[tuple[int, int]]:
    start = at = 0
    is_blank = True
    while piece := file.readline(MAX_LINE_BYTES):
        at += len(piece)
        is_blank = is_blank and not piece.strip()
        if piece.endswith(b"\n") or len(piece) < MAX_LINE_BYTES:
            if not is_blank:
                yield start, at
            start, is_blank = at, True


def _elements(file: BinaryIO) -> Iterator[tuple[int, int]]:
    """Yield the places of the elements of an array."""
    decode = json.JSONDecoder().raw_decode
    text = file.read(_PIECE).decode("utf-8", "surrogateescape")
    at = known = text.index("[") + 1
    offset = _size(text[:at])  # of the sign at `known`, in bytes
    while True:
        while at < len(text) and text[at] in " \t\r\n,":
            at += 1
        if text[at : at + 1] == "]":
            return
        try:
            _, end = decode(text, at)
        except (json.JSONDecodeError, RecursionError) as error:
            held = text[known:].encode("utf-8", "surrogateescape")
            piece = file.read(max(_PIECE, len(held)))
            if not piece or len(held) > MAX_LINE_BYTES:
                raise ValueError(f"the element at byte {offset:,} cannot be read: {error}") from error
            text, at, known = (held + piece).decode("utf-8", "surrogateescape"), 0, 0
            continue
        start = offset + _size(text[known:at])
        offset, at, known = start + _size(text[at:end]), end, end
        yield start, offset


def _size(text: str) -> int:
    return len(text.encode("utf-8", "surrogateescape"))
