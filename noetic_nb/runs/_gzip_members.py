"""Members of a gzip file that say how long they are: one that is cut off is told from one that is damaged.

Every member has the checksum of its content, as gzip has it, and in a field of its header its length with a checksum of that.
Readers of gzip pass over the field. Files of older versions have none.
"""

from __future__ import annotations

import os
import zlib
from typing import BinaryIO, Final

from noetic_nb._core.atomic_write import regular_file

try:
    import fcntl
except ImportError:  # no such thing on Windows
    fcntl = None  # type: ignore[assignment]

_GZIP: Final = 31  # zlib's word for a gzip header
_CHUNK: Final = 1 << 14
# Deflated, with a further field; no time, so that the same content gives the same bytes; of an unknown system.
_START: Final = b"\x1f\x8b\x08\x04\x00\x00\x00\x00\x00\xff"
_FIELD: Final = b"\x0c\x00NB\x08\x00"
_HEADER: Final = len(_START) + len(_FIELD) + 8


def _number(number: int) -> bytes:
    return number.to_bytes(4, "little")


def packed(content: bytes) -> bytes:
    """Return a member."""
    deflater = zlib.compressobj(6, zlib.DEFLATED, -zlib.MAX_WBITS)
    body = deflater.compress(content) + deflater.flush()
    length = _number(_HEADER + len(body) + 8)
    rest = _number(zlib.crc32(content)) + _number(len(content) & 0xFFFFFFFF)
    return b"".join([_START, _FIELD, length, _number(zlib.crc32(length)), body, rest])


THE_END: Final = packed(b"")
"""What stands at the end of a file whose run was stopped: a member without content."""


def is_unfinished(path: str | os.PathLike[str]) -> bool:
    """Tell whether a file whose members say their length has no end, and no process that goes on with it."""
    with regular_file(path) as raw:
        if not raw.read(_HEADER).startswith(_START + _FIELD):
            return False  # of an older version, or written at once
        raw.seek(max(0, os.fstat(raw.fileno()).st_size - len(THE_END)))
        return raw.read() != THE_END and not _is_held(raw)


def _is_held(file: BinaryIO) -> bool:
    if fcntl is None:
        return False  # type: ignore[unreachable]  # on Windows
    try:
        fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:  # a file system without locks
        pass
    return False


def member_ends(path: str | os.PathLike[str]) -> tuple[list[int], bool]:
    """Return where each whole member with content ends, up to a damaged one, and whether a last one is cut off."""
    ends: list[int] = []
    inflater = None
    rest = head = b""
    says_length = False
    with regular_file(path) as raw:
        while rest or (rest := raw.read(_CHUNK)):
            if inflater is None:
                while len(rest) < _HEADER and (more := raw.read(_CHUNK)):
                    rest += more
                inflater, head = zlib.decompressobj(_GZIP), rest[:_HEADER]
            # What comes out is thrown away: this much of a file unpacks to 16 MB at most.
            try:
                inflater.decompress(rest)
            except zlib.error:
                return ends, False
            rest = inflater.unused_data
            if inflater.eof:
                says_length = says_length or _FIELD in head
                ends.append(raw.tell() - len(rest))
                inflater = None
        size = raw.tell()
    if ends[1:] and ends[-1] - ends[-2] == len(THE_END) and _ends_with(path, ends[-1]):
        ends.pop()
    if inflater is None:
        return ends, False
    return ends, not says_length or _is_cut(head, size - (ends[-1] if ends else 0))


def _ends_with(path: str | os.PathLike[str], end: int) -> bool:
    with regular_file(path) as raw:
        raw.seek(end - len(THE_END))
        return raw.read(len(THE_END)) == THE_END


def _is_cut(head: bytes, length: int) -> bool:
    """Tell whether a member that does not end is shorter than it says; its header may be damaged."""
    if len(head) < _HEADER:
        return (_START + _FIELD).startswith(head[: len(_START + _FIELD)])
    said, checksum = head[-8:-4], head[-4:]
    return (
        head.startswith(_START + _FIELD)
        and _number(zlib.crc32(said)) == checksum
        and length < int.from_bytes(said, "little")
    )
