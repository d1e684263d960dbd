"""State that outlives the process, in one SQLite file that several kernels may share.

Writes go to a thread and are awaited; reads are answered on the spot, because a write-ahead log never makes them wait
and a hop to a thread costs more than the read. ``put`` does not wait at all: what it takes is readable at once and
durable after `SQLiteStorage.flush`.
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
from types import TracebackType
from typing import Final, Self, TypeVar, get_args

from noetic_nb.errors import NoeticConfigError, NoeticError
from noetic_nb.storage.adapter import JsonValue, key_taken
from noetic_nb.storage.in_memory import json_text
from noetic_nb.storage.sqlite_compare import (
    Comparison,
    Conflict,
    Versioned,
    compared_write,
    grouped_write,
    version_of,
)
from noetic_nb.storage.sqlite_file import (
    DELETE,
    UPSERT,
    Synchronous,
    check_key,
    check_path,
    open_writer,
    patiently,
    storage_error,
)
from noetic_nb.storage.sqlite_reader import Reader
from noetic_nb.storage.sqlite_writer import Job, Writer

__all__ = ["SQLiteStorage", "Versioned"]

T = TypeVar("T")

# As `json_text` writes, without its search for circles, a tenth of the time: a circle ends in RecursionError anyway.
_ENCODER: Final = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), allow_nan=False, check_circular=False)

# What the event loop reads itself; more goes to a thread. 1 000 keys take about 0.3 ms.
_MOST_INLINE_KEYS: Final = 1_000
_MOST_INLINE_VALUES: Final = 64


class SQLiteStorage:
    """A `StorageAdapter` in one SQLite file.

    Safe with several event loops and threads, and with other processes that have the same file open. Opening happens
    at once, so that a path that cannot work fails where it is written. After ``await`` of a write the value survives a
    kill of the process; with ``synchronous="FULL"`` the loss of power too.

    Parameters
    ----------
    path : str or path-like
        The file; made when it does not exist. Beside it live ``-wal`` and ``-shm`` while it is open.
    synchronous : {"NORMAL", "FULL", "OFF"}
        ``NORMAL`` is consistent after anything and may forget the last writes at power loss; ``FULL`` forgets none;
        ``OFF`` may lose the file at power loss.
    busy_timeout_ms : float
        How long to wait for other processes, milliseconds, before `storage_failed`.
    write_behind : bool
        Let ``set`` and ``delete`` behave as `put` and `put_delete`.
    write_delay_ms : float
        How long puts gather in the background, milliseconds.
    cache_size : int
        Bytes of values to keep for repeated reads; any commit, of this process or another, empties it.
    on_error : callable, optional
        Told with a `NoeticError` of puts that failed in the background, on the writing thread. Without it the failure
        is logged. Either way the values stay readable and `flush` raises unless its own attempt succeeds.

    Raises
    ------
    NoeticConfigError
        ``INVALID_STORAGE_PATH`` or ``INVALID_STORAGE_OPTION``.
    NoeticError
        ``storage_failed`` if the file is read-only, damaged, not a database, not ours or of a newer schema.

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

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        synchronous: Synchronous = "NORMAL",
        busy_timeout_ms: float = 30_000,
        write_behind: bool = False,
        write_delay_ms: float = 25,
        cache_size: int = 4 * 1024 * 1024,
        on_error: Callable[[NoeticError], None] | None = None,
    ) -> None:
        if synchronous not in get_args(Synchronous):
            raise NoeticConfigError(
                "INVALID_STORAGE_OPTION",
                "`synchronous` is not a known level.",
                given=synchronous,
                hint=f"Use one of {', '.join(get_args(Synchronous))}.",
            )
        numbers = {"busy_timeout_ms": busy_timeout_ms, "write_delay_ms": write_delay_ms, "cache_size": cache_size}
        for name, number in numbers.items():
            if not (math.isfinite(number) and number >= 0):
                raise NoeticConfigError(
                    "INVALID_STORAGE_OPTION",
                    f"`{name}` must be finite and not negative.",
                    given=number,
                    hint="Use 0 or more.",
                )
        self.path: Final = check_path(path)
        self.synchronous: Final = synchronous
        self.write_behind: Final = write_behind
        self._busy_timeout_ms = busy_timeout_ms
        connection = open_writer(self.path, synchronous, busy_timeout_ms)
        try:
            self._reader = Reader(self.path, cache_size=cache_size)
        except BaseException:
            connection.close()
            raise
        self._writer = Writer(
            connection, self.path, budget_ms=busy_timeout_ms, delay_ms=write_delay_ms, on_error=on_error
        )
        # The first answers the event loop; the second, opened when needed, serves long reads from other threads.
        self._readers = [self._reader]
        self._readers_lock = threading.Lock()
        # Also runs when the storage is forgotten without `aclose`, and at the end of the interpreter.
        self._release = weakref.finalize(self, _release, self._writer, self._readers)

    async def get(self, key: str) -> JsonValue | None:
        """Return the value under a key, or None."""
        put = self._writer.peek(check_key(key))
        if put is not None:
            return None if put.text is None else json.loads(put.text)
        try:
            return self._reader.get(key)
        except sqlite3.OperationalError:  # as in `_read`, which costs a tenth of a cached read
            return await self._read(lambda reader: reader.get(key), inline=False)

    async def get_many(self, keys: Iterable[str]) -> dict[str, JsonValue]:
        """Return the values that exist under several keys, read at one moment."""
        wanted = [check_key(key) for key in dict.fromkeys(keys)]
        puts = self._writer.unwritten()
        kept = [key for key in wanted if key not in puts]
        is_short = len(kept) <= _MOST_INLINE_VALUES
        found = await self._read(lambda reader: reader.get_many(kept), inline=is_short) if kept else {}
        texts = {key: put.text for key in wanted if (put := puts.get(key)) is not None and put.text is not None}
        found |= {key: json.loads(text) for key, text in texts.items()}
        return {key: found[key] for key in wanted if key in found}

    async def list(self, prefix: str) -> list[str]:
        """Return the keys that begin with a prefix, sorted by code point."""
        check_key(prefix)
        # Before the file is read: what is committed in between is then seen twice rather than not at all.
        puts = {key: put for key, put in self._writer.unwritten().items() if key.startswith(prefix)}
        keys = await self._read(lambda reader: reader.keys(prefix, _MOST_INLINE_KEYS + 1))
        if len(keys) > _MOST_INLINE_KEYS:
            keys = await self._read(lambda reader: reader.keys(prefix), inline=False)
        if not puts:
            return keys
        return sorted({*keys, *puts} - {key for key, put in puts.items() if put.text is None})

    async def set(self, key: str, value: JsonValue) -> None:
        """Keep a value under a key, replacing what was there.

        Raises
        ------
        NoeticError
            ``storage_failed``; what was there before is then still there.
        """
        text = _text(check_key(key), value)
        if self.write_behind:
            self._writer.put(key, text)
        else:
            await self._write(lambda c: c.execute(UPSERT, (key, text)).rowcount, keys=(key,), is_single=True)

    async def delete(self, key: str) -> None:
        """Forget a key; a missing one is no error."""
        check_key(key)
        if self.write_behind:
            self._writer.put(key, None)
        else:
            await self._write(lambda c: c.execute(DELETE, (key,)).rowcount, keys=(key,), is_single=True)

    async def set_many(
        self, values: Mapping[str, JsonValue], *, delete: Iterable[str] = (), absent: Iterable[str] = ()
    ) -> None:
        """Write several keys in one transaction: all of it happens or none.

        Parameters
        ----------
        values : mapping
            What to keep.
        delete : iterable of str, optional
            Keys to forget first.
        absent : iterable of str, optional
            Keys that must not exist before.

        Raises
        ------
        NoeticError
            ``storage_failed``, or ``state_conflict`` with `key` for one that must not exist and does; nothing was changed
            then.
        """
        rows = [(check_key(key), _text(key, value)) for key, value in values.items()]
        gone, fresh = [check_key(key) for key in delete], [check_key(key) for key in absent]
        if rows or gone or fresh:
            keys = [*(key for key, _ in rows), *gone]
            found = await self._write(grouped_write(rows, gone, fresh), keys=keys)
            if found is not None:
                raise key_taken(found)

    async def delete_many(self, keys: Iterable[str]) -> None:
        """Forget several keys in one transaction."""
        await self.set_many({}, delete=keys)

    def put(self, key: str, value: JsonValue) -> None:
        """Keep a value soon, without waiting: readable at once, durable after `flush`.

        Of several values put under one key before they are written, only the last is written.

        Raises
        ------
        NoeticError
            ``storage_failed`` if the value is not JSON data; a failure of the disk is raised by `flush`.

        Examples
        --------
        >>> import asyncio, tempfile
        >>> async def main(folder):
        ...     async with SQLiteStorage(f"{folder}/desk.db") as store:
        ...         for n in range(3):
        ...             store.put("state", {"n": n})
        ...         seen = await store.get("state")
        ...         await store.flush()
        ...     return seen
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     asyncio.run(main(folder))
        {'n': 2}
        """
        self._writer.put(key, _text(check_key(key), value))

    def put_delete(self, key: str) -> None:
        """Forget a key soon, without waiting; the counterpart of `put`."""
        self._writer.put(check_key(key), None)

    async def flush(self) -> None:
        """Wait until everything put so far is in the file, trying again what failed before.

        Raises
        ------
        NoeticError
            ``storage_failed`` if any of it could not be written; it stays readable and the next flush tries again.
        """
        if self._writer.has_unwritten():
            await self._write(lambda _: None, is_flush=True)

    async def get_versioned(self, key: str) -> Versioned:
        """Return a value with its version; what was put under the key is written first."""
        if self._writer.peek(check_key(key)) is not None:
            await self.flush()
        value, version = await self._read(lambda reader: reader.get_versioned(key))
        return Versioned(value, version)

    async def compare_and_set(
        self, key: str, expected: JsonValue, value: JsonValue, *, by: Comparison = "version"
    ) -> int:
        """Keep a value only if nobody has changed the key since it was read.

        Parameters
        ----------
        key : str
            The key.
        expected : Versioned, int or None; any JSON value with ``by="value"``
            What was read; None means that the key is missing.
        value : object
            The new value.
        by : {"version", "value"}
            Compare versions, or the values themselves as JSON: ``1`` and ``1.0`` differ, the order of keys does not
            matter, and a value that changed and changed back counts as unchanged.

        Returns
        -------
        int
            The new version.

        Raises
        ------
        NoeticError
            ``state_conflict`` with ``key``, ``expected_version`` and ``found_version`` if somebody has; nothing was
            changed then. ``storage_failed`` if it could not be written.

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
        text = _text(check_key(key), value)
        outcome = await self._write(compared_write(key, text, expected, by, self.path), keys=(key,))
        if not isinstance(outcome, Conflict):
            return outcome
        raise NoeticError(
            "state_conflict",
            f"The value under {key!r} was changed by another writer.",
            hint="Read it again with get_versioned() and decide which state wins; nothing was written.",
            key=key,
            expected_version=version_of(expected) if by == "version" else None,
            found_version=outcome.found_version,
        )

    async def aclose(self) -> None:
        """Write what was put, then let go of the file; may be repeated.

        Raises
        ------
        NoeticError
            ``storage_failed`` if something put could not be written and is lost; the file is closed all the same.
        """
        lost = await asyncio.to_thread(self._release)
        if lost is not None:
            raise lost

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    def __repr__(self) -> str:
        return f"SQLiteStorage({self.path!r}, synchronous={self.synchronous!r}, write_behind={self.write_behind!r})"

    async def _write(
        self,
        run: Callable[[sqlite3.Connection], T],
        *,
        keys: Sequence[str] = (),
        is_single: bool = False,
        is_flush: bool = False,
    ) -> T:
        future: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        self._writer.submit(Job(run, future, keys, is_single, is_flush))
        return await future

    async def _read(self, read: Callable[[Reader], T], *, inline: bool = True) -> T:
        if inline:
            try:
                return read(self._reader)
            except sqlite3.OperationalError:  # only "busy" comes through: the log is being recovered, for instance
                return await asyncio.to_thread(self._read_patiently, read)
        return await asyncio.to_thread(self._read_patiently, read)

    def _read_patiently(self, read: Callable[[Reader], T]) -> T:
        with self._readers_lock:
            if len(self._readers) == 1:
                self._readers.append(Reader(self.path, cache_size=0))
        try:
            return patiently(lambda: read(self._readers[1]), self._busy_timeout_ms)
        except sqlite3.OperationalError as exc:
            raise storage_error(exc, self.path, "Reading") from exc


def _release(writer: Writer, readers: Sequence[Reader]) -> NoeticError | None:
    lost = writer.close()
    for reader in readers:
        reader.close()
    return lost


def _text(key: str, value: JsonValue) -> str:
    try:
        text = _ENCODER.encode(value)
    except (TypeError, ValueError, RecursionError):
        text = json_text(key, value)  # raises what there is to say
    if not text.isascii():
        try:
            text.encode()
        except UnicodeEncodeError:
            # Half a character is legal in JSON only as an escape; SQLite's UTF-8 cannot hold it otherwise.
            return json.dumps(value, separators=(",", ":"), allow_nan=False)
    return text
