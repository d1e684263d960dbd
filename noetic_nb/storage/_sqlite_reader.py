"""The reading side of `SQLiteStorage`: a connection of its own, so that no read waits for a write.

Cached values are good for as long as ``PRAGMA data_version`` does not move. On this connection, which never writes, it
moves with every commit of any other: our own writer's and another process's alike. It is asked before each read, so a
value is served from the cache only when no commit has happened since the cache was last empty.
"""

from __future__ import annotations

import marshal
import sqlite3
import threading
from collections.abc import Sequence
from typing import Any, Final

from noetic_nb.errors import NoeticError
from noetic_nb.items._json_text import parsed_json
from noetic_nb.storage._adapter import JsonValue
from noetic_nb.storage._sqlite_file import checksum_of, is_busy, open_reader, prefix_range, storage_error

_SELECT: Final = "SELECT value, checksum FROM entries WHERE key = ?"
_SELECT_VERSION: Final = "SELECT version FROM entries WHERE key = ?"
_SELECT_VERSIONED: Final = "SELECT value, checksum, version FROM entries WHERE key = ?"
# SQLite allows 999 parameters in its oldest supported builds.
_MOST_PARAMETERS: Final = 500


def _checked(key: str, text: Any, checksum: int | None, path: str) -> str:
    """Return a text of the database that is as it was written.

    Raises `NoeticError` ``storage_failed`` if it is another one; rows of older files have no checksum.
    """
    if checksum is not None and (not isinstance(text, str) or checksum != checksum_of(key, text)):
        what = f"The value under {key!r} in {path!r} is not what was written there: the file is damaged."
        hint = "Keep a copy and restore a backup, or set or delete this key."
        raise NoeticError("storage_failed", what, hint=hint, path=path, key=key)
    return text  # type: ignore[no-any-return]


def _parse(key: str, text: Any, checksum: int | None, path: str) -> JsonValue:
    """Return the value that a text of the database stands for.

    Raises `NoeticError` ``storage_failed`` if the text is not JSON, or is not what was written.
    """
    try:
        value: JsonValue = parsed_json(text)
    except (ValueError, TypeError, RecursionError) as exc:
        what = f"The value under {key!r} in {path!r} is not JSON: {exc}"
        hint = "Another program wrote it; set or delete this key."
        raise NoeticError("storage_failed", what, hint=hint, path=path, key=key) from exc
    _checked(key, text, checksum, path)
    return value


class Reader:
    """Reads through one connection, one thread at a time.

    A read never sleeps: where it would have to wait, SQLite's own error passes through and the caller asks again from
    a thread that may. `cache_size` is how many bytes of values to remember, at most.
    """

    def __init__(self, path: str, *, cache_size: int) -> None:
        self._path = path
        self._connection = open_reader(path)
        self._lock = threading.Lock()
        self._cache: dict[str, bytes] = {}
        self._cache_room = self._cache_size = cache_size
        self._data_version = -1

    def get(self, key: str) -> JsonValue | None:
        """Return the value under a key, or None."""
        with self._lock:
            if self._cache_size:
                version = self._one("PRAGMA data_version", ())[0]
                if version != self._data_version:
                    self._forget()
                    # Noted before the value is read: a commit in between shows as another move of the version.
                    self._data_version = version
                elif (known := self._cache.get(key)) is not None:
                    return marshal.loads(known)
            row = self._one(_SELECT, (key,))
            if row is None:
                return None
            value = _parse(key, row[0], row[1], self._path)
            if self._cache_size:
                self._remember(key, value)
            return value

    def get_versioned(self, key: str) -> tuple[JsonValue | None, int | None]:
        """Return the value and version under a key, or two Nones."""
        with self._lock:
            row = self._one(_SELECT_VERSIONED, (key,))
        return (None, None) if row is None else (_parse(key, row[0], row[1], self._path), row[2])

    def get_text(self, key: str) -> str | None:
        """Return the text under a key as it is stored, or None."""
        with self._lock:
            row = self._one(_SELECT, (key,))
        return None if row is None else _checked(key, row[0], row[1], self._path)

    def get_version(self, key: str) -> int | None:
        with self._lock:
            row = self._one(_SELECT_VERSION, (key,))
        return None if row is None else row[0]

    def lacks(self, keys: Sequence[str]) -> bool:
        """Tell whether none of a few keys is there; their values are not read."""
        marks = ",".join("?" * len(keys))
        with self._lock:
            return self._one(f"SELECT 1 FROM entries WHERE key IN ({marks}) LIMIT 1", keys) is None

    def get_many(self, keys: Sequence[str]) -> dict[str, JsonValue]:
        """Return the values that exist under several keys, all of one moment."""
        found: dict[str, tuple[Any, int | None]] = {}
        with self._lock:
            if len(keys) <= _MOST_PARAMETERS:  # one statement is of one moment by itself
                found.update(self._some(keys))
            else:
                self._all("BEGIN", ())
                try:
                    for start in range(0, len(keys), _MOST_PARAMETERS):
                        found.update(self._some(keys[start : start + _MOST_PARAMETERS]))
                finally:
                    self._connection.rollback()
        return {key: _parse(key, *found[key], self._path) for key in keys if key in found}

    def _some(self, keys: Sequence[str]) -> dict[str, tuple[Any, int | None]]:
        marks = ",".join("?" * len(keys))
        rows = self._all(f"SELECT key, value, checksum FROM entries WHERE key IN ({marks})", keys)
        return {key: (value, checksum) for key, value, checksum in rows}

    def keys(self, prefix: str, limit: int = -1) -> list[str]:
        """Return the keys with a prefix, sorted; at most `limit` of them when it is not negative."""
        first, end = prefix_range(prefix)
        # Answered from the key index alone. LIKE would need escapes and fold case.
        query, values = "SELECT key FROM entries WHERE key >= ?", [first]
        if end is not None:
            query, values = f"{query} AND key < ?", [first, end]
        with self._lock:
            rows = self._all(f"{query} ORDER BY key LIMIT {limit:d}", values)
        return [row[0] for row in rows]

    def close(self) -> None:
        """Close the connection; may be repeated."""
        with self._lock:
            self._forget()
            self._connection.close()

    def _one(self, query: str, values: Sequence[str]) -> Any:
        try:
            return self._connection.execute(query, values).fetchone()
        except sqlite3.Error as exc:
            if is_busy(exc):
                raise
            raise storage_error(exc, self._path, "Reading") from exc

    def _all(self, query: str, values: Sequence[str]) -> list[Any]:
        try:
            return self._connection.execute(query, values).fetchall()
        except sqlite3.Error as exc:
            if is_busy(exc):
                raise
            raise storage_error(exc, self._path, "Reading") from exc

    def _remember(self, key: str, value: JsonValue) -> None:
        try:
            # marshal copies JSON data four times as fast as parsing its text; the bytes never leave this process.
            copy = marshal.dumps(value)
        except ValueError:  # nested deeper than marshal goes: such a value is read from the file each time
            return
        if len(copy) > self._cache_size:
            return
        if len(copy) > self._cache_room:
            self._forget()
        self._cache[key] = copy
        self._cache_room -= len(copy)

    def _forget(self) -> None:
        self._cache.clear()
        self._cache_room = self._cache_size
