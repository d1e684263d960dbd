"""Files written completely or not at all, readable only by their owner; and reading: bytes, text, JSON with a named format."""

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

from noetic_nb._core.arguments import ArgumentError
from noetic_nb.errors import NoeticConfigError
from noetic_nb.ids import SYSTEM_IDS

OWNER_ONLY = 0o600


def as_path(path: str | PathLike[str]) -> Path:
    """Return a path; raises `ArgumentError` for a value that names no file."""
    if not isinstance(path, str | PathLike) or isinstance(os.fspath(path), bytes):
        raise ArgumentError("A file has a name", given=path, hint="Pass its path as text, or a pathlib.Path.")
    return Path(path)


def file_name(path: str | PathLike[str]) -> str:
    """Return the name of a file as text; raises `OSError` ``EINVAL`` for an impossible name."""
    as_path(path)
    text = os.fspath(path)
    try:
        if "\0" not in text:
            os.fsencode(text)
            return text
    except UnicodeEncodeError:
        pass
    raise OSError(errno.EINVAL, "this is not a valid file name")


def owner_only(path: str, flags: int) -> int:
    """Open a file, as in `open(..., opener=owner_only)`; a new file is readable only by its owner."""
    return os.open(path, flags, OWNER_ONLY)


def regular_file(path: str | PathLike[str], max_bytes: int | None = None) -> BinaryIO:
    """Open a regular file for reading; raises `OSError`, ``EINVAL`` for a pipe or device, ``EFBIG`` above `max_bytes`."""
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
    """Open a new, owner-only file that replaces `path` at the end; on any failure, the old file stays."""
    # A link stays a link: its target is replaced. The name is unique, so that two writers cannot mix.
    real = Path(os.path.realpath(file_name(path)))
    if real.exists() and not (real.is_file() or real.is_dir()):
        # The rename would replace a device by a file.
        raise OSError(errno.EINVAL, "this is not a regular file")
    draft = real.with_name(f".{real.name}.{SYSTEM_IDS.new('draft')}")
    try:
        with open(draft, "xb", opener=owner_only) as file:
            yield file
            file.flush()
            # Before the rename: otherwise a crash could leave an empty file under the final name.
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
    """Write data as JSON with the name of its format; raises ``CANNOT_WRITE``, or `ValueError` for NaN and similar values."""
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
