"""Compare-and-set: the decision whether keys still are what their writer read, taken inside the write transaction."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from noetic_nb.errors import NoeticConfigError
from noetic_nb.storage.adapter import JsonValue
from noetic_nb.storage.in_memory import json_text
from noetic_nb.storage.sqlite_file import DELETE, UPSERT
from noetic_nb.storage.sqlite_reader import parse

__all__ = ["Comparison", "Conflict", "Versioned", "compared_write", "grouped_write", "version_of"]

Comparison: TypeAlias = Literal["version", "value"]


@dataclass(frozen=True, slots=True)
class Versioned:
    """A value and the version to hand to `SQLiteStorage.compare_and_set`.

    Attributes
    ----------
    value : object
        The value, None when the key is missing.
    version : int or None
        Changes with every write of the key; compare it, but do not count with it. None when the key is missing.
    """

    value: JsonValue | None
    version: int | None


@dataclass(frozen=True, slots=True)
class Conflict:
    """The key was not what its writer had read."""

    found_version: int | None


def compared_write(
    key: str, text: str, expected: JsonValue, by: Comparison, path: str
) -> Callable[[sqlite3.Connection], int | Conflict]:
    """Return what to do inside a transaction: write and return the new version, or report a conflict."""
    matches = _matcher(key, expected, by, path)

    def run(connection: sqlite3.Connection) -> int | Conflict:
        row = connection.execute("SELECT value, version FROM entries WHERE key = ?", (key,)).fetchone()
        found_text, found_version = (None, None) if row is None else row
        if not matches(found_text, found_version):
            return Conflict(found_version)
        connection.execute(UPSERT, (key, text))
        version: int = connection.execute("SELECT version FROM entries WHERE key = ?", (key,)).fetchone()[0]
        return version

    return run


def grouped_write(
    rows: Sequence[tuple[str, str]], gone: Iterable[str], absent: Iterable[str]
) -> Callable[[sqlite3.Connection], str | None]:
    """Return what to do inside a transaction: delete and write, or return the first key that is there and must not be."""
    deleted, wanted = [(key,) for key in gone], tuple(absent)

    def run(connection: sqlite3.Connection) -> str | None:
        for key in wanted:
            if connection.execute("SELECT 1 FROM entries WHERE key = ?", (key,)).fetchone() is not None:
                return key
        connection.executemany(DELETE, deleted)
        connection.executemany(UPSERT, rows)
        return None

    return run


def version_of(expected: Any) -> int | None:
    """Return the version that was expected.

    Raises
    ------
    NoeticConfigError
        ``INVALID_STORAGE_OPTION`` if it is none.
    """
    version = expected.version if isinstance(expected, Versioned) else expected
    if version is not None and (not isinstance(version, int) or isinstance(version, bool)):
        raise NoeticConfigError(
            "INVALID_STORAGE_OPTION",
            "`expected` is not a version.",
            given=expected,
            hint='Pass what get_versioned() returned, None for a missing key, or a value with by="value".',
        )
    return version


def _matcher(key: str, expected: JsonValue, by: Comparison, path: str) -> Callable[[str | None, int | None], bool]:
    if by == "version":
        wanted = version_of(expected)
        return lambda _, version: version == wanted
    if by != "value":
        raise NoeticConfigError(
            "INVALID_STORAGE_OPTION", "`by` is unknown.", given=by, hint='Use "version" or "value".'
        )
    json_text(key, expected)
    same = json.dumps(expected, sort_keys=True)
    if expected is None:
        return lambda text, _: text is None or text == "null"
    return lambda text, _: text is not None and json.dumps(parse(key, text, path), sort_keys=True) == same
