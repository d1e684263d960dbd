"""Files written whole or not at all, for their owner alone, and files that are read: bytes, text, JSON with its form."""

from __future__ import annotations

import errno
import json
import os
import stat
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from os import PathLike
from pathlib import Path
from typing import Any, BinaryIO

from noetic_nb.errors import NoeticConfigError
from noetic_nb.ids import SYSTEM_IDS

OWNER_ONLY = 0o600


def file_name(path: str | PathLike[str]) -> str:
    """Return the name of a file as text; raises `OSError` ``EINVAL`` for one that no file can have."""
    text = os.fspath(path)
    try:
        if "\0" not in text:
            os.fsencode(text)
            return text
    except UnicodeEncodeError:
        pass
    raise OSError(errno.EINVAL, "this is not a valid file name")


def owner_only(path: str, flags: int) -> int:
    """Open a file as `open` does with ``opener=owner_only``; one that is made is readable by its owner alone."""
    return os.open(path, flags, OWNER_ONLY)


def regular_file(path: str | PathLike[str], max_bytes: int | None = None) -> BinaryIO:
    """Open a regular file of limited size to be read; raises `OSError`, ``EINVAL`` for a pipe or device, ``EFBIG`` above it."""
    about = os.stat(file_name(path))
    if stat.S_ISDIR(about.st_mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    if not stat.S_ISREG(about.st_mode):
        raise OSError(errno.EINVAL, "it is not a regular file", str(path))
    if max_bytes is not None and about.st_size > max_bytes:
        raise OSError(errno.EFBIG, f"it contains more than {max_bytes:,} bytes", str(path))
    return open(path, "rb")


@contextmanager
def whole_file(path: str | PathLike[str]) -> Iterator[BinaryIO]:
    """Open a new file, its owner's alone, that takes the place of `path` at the end; where anything fails the old one stays."""
    # A link stays a link: its target is replaced. The name differs for each writer, so that two of them cannot mix.
    real = Path(os.path.realpath(file_name(path)))
    draft = real.with_name(f".{real.name}.{SYSTEM_IDS.new('draft')}")
    try:
        with open(draft, "xb", opener=owner_only) as file:
            yield file
            file.flush()
            # Before the rename: otherwise a crash could leave an empty file under the good name.
            os.fsync(file.fileno())
        os.replace(draft, real)
    finally:
        draft.unlink(missing_ok=True)


def write_whole(path: Path, content: str | bytes) -> None:
    """Write a text or bytes to a `whole_file`; raises `NoeticConfigError` ``CANNOT_WRITE``."""
    try:
        with whole_file(path) as file:
            file.write(content if isinstance(content, bytes) else content.encode("utf-8", "backslashreplace"))
    except OSError as error:
        what = f"The file cannot be written: {error.strerror or error}."
        hint = "Use another name, in a folder that exists."
        raise NoeticConfigError("CANNOT_WRITE", what, given=str(path), hint=hint) from error


def save_form(path: str | PathLike[str], form: str, data: Mapping[str, Any]) -> Path:
    """Write data as JSON beside the name of its form; raises ``CANNOT_WRITE``, or `ValueError` for NaN and the like."""
    target = Path(path)
    write_whole(target, json.dumps({"form": form, **data}, indent=1, allow_nan=False) + "\n")
    return target


def read_form(path: str | PathLike[str], form: str) -> dict[str, Any]:
    """Read the data of `save_form`; raises one of `OSError`, `ValueError`, `LookupError`, `TypeError` for any other file."""
    with regular_file(path) as file:
        data: dict[str, Any] = json.loads(file.read())
    if data["form"] != form:
        raise ValueError(f"the form is {data['form']!r}")
    return data
