"""State that outlives the process, in one SQLite file that several kernels may share.

Writes may go to a thread and are awaited; reads are answered in place, because a write-ahead log never makes them wait
and a switch to a thread costs more than the read. In a browser, which has no threads, both are done in place.
"""

from __future__ import annotations

import asyncio
import json
import math
import os
import sqlite3
import threading
import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Final, Self, TypeVar, get_args

from noetic_nb._core.arguments import explained
from noetic_nb._core.worker_threads import beside_loop
from noetic_nb.errors import NoeticConfigError, NoeticError
from noetic_nb.storage import _sqlite_file as db
from noetic_nb.storage._adapter import JsonValue, key_taken
from noetic_nb.storage._in_memory import json_text
from noetic_nb.storage._sqlite_connections import Job, Reader, Writer

T = TypeVar("T")

# Limits of reads on the event loop; larger ones go to a thread. 1 000 keys take about 0.3 ms.
_MOST_INLINE_KEYS: Final = 1_000
_MOST_INLINE_VALUES: Final = 64
# After this many writes on the event loop, other tasks get a turn, even if the caller writes in a tight loop.
_MOST_INLINE_WRITES: Final = 64
# Bytes of values cached for repeated reads: the states of a thousand layers at 4 KB. Any commit empties the cache.
_CACHE_SIZE: Final = 4 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Versioned:
    """A value and its version for `SQLiteStorage.compare_and_set`.

    Attributes
    ----------
    value : object
        The value, None if the key is missing.
    version : int or None
        Changes with every write of the key; compare it, but do not count with it. None if the key is missing.
    """

    value: JsonValue | None
    version: int | None


class SQLiteStorage:
    """A `StorageAdapter` in one SQLite file [1]_.

    Safe with several event loops and threads, and with other processes that have the same file open. The file is opened
    at once, so that an unusable path fails where it is written. After ``await`` of a write, the value survives a kill
    of the process; with ``synchronous="FULL"`` a power loss, too.

    Parameters
    ----------
    path : str or path-like
        The file; created if it does not exist. While it is open, ``-wal`` and ``-shm`` files are beside it.
    synchronous : {"NORMAL", "FULL", "OFF"}
        ``NORMAL`` is always consistent but may lose the last writes at power loss; ``FULL`` loses none; ``OFF`` may
        lose the file at power loss.
    busy_timeout_ms : float
        How long to wait for other processes, in milliseconds, before `storage_failed`.
    cache_size : int
        Bytes of values to cache for repeated reads; any commit, of this process or another, empties the cache. 0 caches
        none, which makes first reads a third cheaper.

    Raises
    ------
    NoeticConfigError
        ``INVALID_STORAGE_PATH`` or ``INVALID_STORAGE_OPTION``.
    NoeticError
        ``storage_failed`` if the file is read-only, damaged, not a database, not ours or of a newer schema.

    References
    ----------
    .. [1] docs/behaviour/durability.md, "SQLiteStorage".

    Examples
    --------
    >>> import asyncio, tempfile
    >>> async def twice(folder):
    ...     async with SQLiteStorage(f"{folder}/desk.db") as store:
    ...         await store.set("notes", {"n": 1})
    ...     async with SQLiteStorage(f"{folder}/desk.db") as store:
    ...         return await store.get("notes")
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     asyncio.run(twice(folder))
    {'n': 1}
    """

    @explained(path="Name a file: SQLiteStorage('desk.db').")
    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        synchronous: db.Synchronous = "NORMAL",
        busy_timeout_ms: float = 30_000,
        cache_size: int = _CACHE_SIZE,
    ) -> None:
        if synchronous not in get_args(db.Synchronous):
            what = "`synchronous` is not a known level."
            hint = f"Use one of {', '.join(get_args(db.Synchronous))}."
            raise NoeticConfigError("INVALID_STORAGE_OPTION", what, given=synchronous, hint=hint)
        for name, number in (("busy_timeout_ms", busy_timeout_ms), ("cache_size", cache_size)):
            if not (math.isfinite(number) and number >= 0):
                what = f"`{name}` must be finite and not negative."
                raise NoeticConfigError("INVALID_STORAGE_OPTION", what, given=number, hint="Use 0 or more.")
        self.path: Final = db.check_path(path)
        self.synchronous: Final = synchronous
        self._busy_timeout_ms = busy_timeout_ms
        self._inline = 0
        connection = db.open_writer(self.path, synchronous, busy_timeout_ms)
        try:
            self._reader = Reader(self.path, cache_size=cache_size)
        except BaseException:
            connection.close()
            raise
        self._writer = Writer(connection, self.path, budget_ms=busy_timeout_ms, synchronous=synchronous)
        # The first serves the event loop; the second, opened when needed, serves long reads from other threads.
        self._readers = [self._reader]
        self._readers_lock = threading.Lock()
        # Also runs when the storage is collected without `aclose`, and at interpreter exit.
        self._release = weakref.finalize(self, _release, self._writer, self._readers)

    async def get(self, key: str) -> JsonValue | None:
        """Return the value under a key, or None."""
        db.check_key(key)
        self._writer.check_open()
        return await self._read(lambda reader: reader.get(key))

    async def get_text(self, key: str) -> str | None:
        """Return the stored JSON text under a key, or None."""
        db.check_key(key)
        self._writer.check_open()
        return await self._read(lambda reader: reader.get_text(key))

    async def get_version(self, key: str) -> int | None:
        """Return the version of a key, or None if it is missing, without reading its value."""
        db.check_key(key)
        self._writer.check_open()
        return await self._read(lambda reader: reader.get_version(key))

    async def get_many(self, keys: Iterable[str]) -> dict[str, JsonValue]:
        """Return the existing values of several keys, from one consistent snapshot."""
        wanted = [db.check_key(key) for key in dict.fromkeys(keys)]
        self._writer.check_open()
        if not wanted:
            return {}
        is_short = len(wanted) <= _MOST_INLINE_VALUES
        return await self._read(lambda reader: reader.get_many(wanted), inline=is_short)

    async def list(self, prefix: str) -> list[str]:
        """Return the keys that begin with a prefix, sorted by code point."""
        db.check_key(prefix)
        self._writer.check_open()
        keys = await self._read(lambda reader: reader.keys(prefix, _MOST_INLINE_KEYS + 1))
        if len(keys) > _MOST_INLINE_KEYS:
            keys = await self._read(lambda reader: reader.keys(prefix), inline=False)
        return keys

    async def set(self, key: str, value: JsonValue) -> None:
        """Store a value under a key, replacing the old one.

        Raises
        ------
        NoeticError
            ``storage_failed``; the old value is then unchanged.
        """
        text = _text(db.check_key(key), value)
        await self._write(lambda c: c.execute(db.UPSERT, db.row(key, text)).rowcount, len(text), is_single=True)

    async def delete(self, key: str) -> None:
        """Delete a key; a missing one is not an error."""
        db.check_key(key)
        await self._write(lambda c: c.execute(db.DELETE, (key,)).rowcount, is_single=True)

    async def set_many(
        self, values: Mapping[str, JsonValue], *, delete: Iterable[str] = (), absent: Iterable[str] = ()
    ) -> None:
        """Write several keys in one transaction: all or none.

        Parameters
        ----------
        values : mapping
            Values to store.
        delete : iterable of str, optional
            Keys to delete first.
        absent : iterable of str, optional
            Keys that must not exist before.

        Raises
        ------
        NoeticError
            ``storage_failed``, or ``state_conflict`` with `key` for a key that must not exist but does.
        """
        written = [db.row(db.check_key(key), _text(key, value)) for key, value in values.items()]
        gone, fresh = [db.check_key(key) for key in delete], [db.check_key(key) for key in absent]
        if not (written or gone or fresh):
            return

        def run(connection: sqlite3.Connection) -> str | None:
            for key in fresh:
                if connection.execute("SELECT 1 FROM entries WHERE key = ?", (key,)).fetchone() is not None:
                    return key
            if gone:
                connection.executemany(db.DELETE, [(key,) for key in gone])
            if written:
                connection.executemany(db.UPSERT, written)
            return None

        found = await self._write(run, sum([len(text) for _, text, _ in written]))
        if found is not None:
            raise key_taken(found)

    async def get_versioned(self, key: str) -> Versioned:
        """Return a value with its version."""
        db.check_key(key)
        self._writer.check_open()
        value, version = await self._read(lambda reader: reader.get_versioned(key))
        return Versioned(value, version)

    async def compare_and_set(self, key: str, expected: Versioned | int | None, value: JsonValue) -> int:
        """Store a value only if the key has not changed since it was read.

        Parameters
        ----------
        key : str
            The key.
        expected : Versioned, int or None
            The version that was read; None means that the key is missing.
        value : object
            The new value.

        Returns
        -------
        int
            The new version.

        Raises
        ------
        NoeticError
            ``state_conflict`` with ``key``, ``expected_version`` and ``found_version`` if the key has changed; nothing
            was written. ``storage_failed`` if the write failed.

        Examples
        --------
        >>> import asyncio, tempfile
        >>> async def main(folder):
        ...     async with SQLiteStorage(f"{folder}/desk.db") as store:
        ...         await store.compare_and_set("n", None, 1)
        ...         await store.compare_and_set("n", None, 2)
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     asyncio.run(main(folder))
        Traceback (most recent call last):
        ...
        noetic_nb.errors.NoeticError: The value under 'n' was changed by another writer. Read it again with
        get_versioned() and decide which state wins; nothing was written.
        """
        text, wanted = _text(db.check_key(key), value), _version_of(expected)

        def run(connection: sqlite3.Connection) -> tuple[bool, int | None]:
            there = connection.execute("SELECT version FROM entries WHERE key = ?", (key,)).fetchone()
            found: int | None = None if there is None else there[0]
            if found != wanted:
                return False, found
            connection.execute(db.UPSERT, db.row(key, text))
            return True, connection.execute("SELECT version FROM entries WHERE key = ?", (key,)).fetchone()[0]

        is_kept, version = await self._write(run, len(text))
        if is_kept and version is not None:
            return version
        what = f"The value under {key!r} was changed by another writer."
        hint = "Read it again with get_versioned() and decide which state wins; nothing was written."
        raise NoeticError("state_conflict", what, hint=hint, key=key, expected_version=wanted, found_version=version)

    async def aclose(self) -> None:
        """Finish running writes, then close the file; may be repeated."""
        await beside_loop(self._release)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    def __repr__(self) -> str:
        return f"SQLiteStorage({self.path!r}, synchronous={self.synchronous!r})"

    async def _write(self, run: Callable[[sqlite3.Connection], T], size: int = 0, *, is_single: bool = False) -> T:
        self._writer.check_open()  # before asking for the loop, which a forked child does not have
        future: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        job = Job(run, future, size, is_single)
        if not self._writer.submit(job):
            return await future
        result: T = job.result
        self._inline += 1
        if self._inline % _MOST_INLINE_WRITES == 0:
            await asyncio.sleep(0)
        return result

    async def _read(self, read: Callable[[Reader], T], *, inline: bool = True) -> T:
        if inline:
            try:
                return read(self._reader)
            except sqlite3.OperationalError:  # only "busy" gets here, for example while the log is being recovered
                return await beside_loop(self._read_patiently, read)
        return await beside_loop(self._read_patiently, read)

    def _read_patiently(self, read: Callable[[Reader], T]) -> T:
        with self._readers_lock:
            if len(self._readers) == 1:
                self._readers.append(Reader(self.path, cache_size=0))
        try:
            return db.patiently(lambda: read(self._readers[1]), self._busy_timeout_ms)
        except sqlite3.OperationalError as exc:
            raise db.storage_error(exc, self.path, "Reading") from exc


def _release(writer: Writer, readers: Sequence[Reader]) -> None:
    writer.close()
    for reader in readers:
        reader.close()


def _version_of(expected: Any) -> int | None:
    """Return the expected version; notebooks are not type-checked."""
    version = expected.version if isinstance(expected, Versioned) else expected
    if version is not None and (not isinstance(version, int) or isinstance(version, bool)):
        hint = "Pass the version that get_versioned() returned, or None for a missing key."
        raise NoeticConfigError("INVALID_STORAGE_OPTION", "`expected` is not a version.", given=expected, hint=hint)
    return version


def _text(key: str, value: JsonValue) -> str:
    text = json_text(key, value)
    if not text.isascii():
        try:
            text.encode()
        except UnicodeEncodeError:
            # A lone surrogate is legal in JSON only as an escape; SQLite's UTF-8 cannot store it otherwise.
            return json.dumps(json.loads(text), separators=(",", ":"))
    return text
