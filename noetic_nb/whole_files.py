"""Files that are written whole or not at all: text, and JSON that says which form it has.

Readable by their owner alone, as what people said may be in them.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from os import PathLike
from pathlib import Path
from typing import Any

from noetic_nb.errors import NoeticConfigError
from noetic_nb.ids import SYSTEM_IDS
from noetic_nb.owner_only import owner_only

__all__ = ["read_form", "save_form", "write_whole"]


def write_whole(path: Path, text: str) -> None:
    """Write a file at once: whoever reads it sees the old one or the new one. Readable by its owner alone.

    Raises
    ------
    NoeticConfigError
        ``CANNOT_WRITE``.
    """
    partial = path.with_name(f".{path.name}.{SYSTEM_IDS.new('draft')}")
    try:
        try:
            with open(partial, "x", encoding="utf-8", errors="backslashreplace", opener=owner_only) as file:
                file.write(text)
            os.replace(partial, path)
        finally:
            partial.unlink(missing_ok=True)
    except OSError as error:
        raise NoeticConfigError(
            "CANNOT_WRITE",
            f"The file cannot be written: {error.strerror or error}.",
            given=str(path),
            hint="Name another one, in a folder that exists.",
        ) from error


def save_form(path: str | PathLike[str], form: str, data: Mapping[str, Any]) -> Path:
    """Write data as JSON beside the name of its form; returns the file.

    Raises
    ------
    NoeticConfigError
        ``CANNOT_WRITE``.
    ValueError
        For a number that JSON has no word for.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     read_form(save_form(Path(folder, "a.json"), "orders 1", {"ids": ["A17"]}), "orders 1")["ids"]
    ['A17']
    """
    target = Path(path)
    write_whole(target, json.dumps({"form": form, **data}, indent=1, allow_nan=False) + "\n")
    return target


def read_form(path: str | PathLike[str], form: str) -> dict[str, Any]:
    """Read what `save_form` wrote.

    Raises
    ------
    OSError, ValueError, LookupError, TypeError
        Where there is no such file, or it has another form.
    """
    data: dict[str, Any] = json.loads(Path(path).read_text(encoding="utf-8"))
    if data["form"] != form:
        raise ValueError(f"the form is {data['form']!r}")
    return data
