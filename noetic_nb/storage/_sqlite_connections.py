"""The connections of `SQLiteStorage`: one that writes, and one that reads, so that no read waits for a write.

**Writing.** A job is done as it is given, on the event loop: a commit into the write-ahead log takes less than the way to a
thread and back. What may take longer is left to a thread: large values, a file whose every commit is flushed to the disk, a
disk that was slow a moment ago, whatever did not work at once, and what comes while the thread has something to do. The
thread commits what has gathered for it in one transaction. When that fails, each job is tried alone, so that one value that
does not fit fails its own caller only. It also moves the log into the file, which flushes the disk and takes longest.

**Reading.** Cached values are good for as long as ``PRAGMA data_version`` does not move. On this connection, which never
writes, it moves with every commit of any other: our own writer's and another process's alike. It is asked before each read,
so a value is served from the cache only when no commit has happened since the cache was last empty.
"""

from __future__ import annotations

import asyncio
import contextlib
import marshal
import os
import queue
import sqlite3
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from time import perf_counter
from typing import Any, Final, Literal, TypeAlias

from noetic_nb._core.worker_threads import has_threads
from noetic_nb.errors import NoeticError
from noetic_nb.items._json_text import parsed_json
from noetic_nb.storage import _sqlite_file as db
from noetic_nb.storage._adapter import JsonValue

# Bounds how long one transaction keeps another process out; 1 000 small sets take about 10 ms.
_MOST_JOBS: Final = 1_000
# What is written on an event loop, which it keeps for less than a millisecond.
_MOST_INLINE_CHARACTERS: Final = 64 * 1024
# A commit that took so long had to wait for the disk: for the next while a thread waits for it.
_SLOW_S: Final = 0.02
_SLOW_FOR_S: Final = 1.0
# Pages in the log before it is moved into the file, as SQLite itself has it, and those that a job adds to it, about.
_MOST_PAGES: Final = 1_000
_PAGES_OF_A_JOB: Final = 4
# Where so many are left because others wrote meanwhile, nobody may until it is done: the log must not grow for ever.
_MOST_PAGES_LEFT: Final = 10 * _MOST_PAGES
_PAGE: Final = 4_096
# These concern the file as a whole: trying each job alone would fail the same way, only slower.
_WHOLE_FILE: Final = frozenset(
    {sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_CANTOPEN}
)


_Order: TypeAlias = Literal["end", "move the log"]


@dataclass(slots=True)
class Job:
    """One awaited write of `size` characters, atomic in itself, perhaps run again; `is_single` is one statement."""

    run: Callable[[sqlite3.Connection], Any]  # jobs of different results share one queue; `_write` types them
    future: asyncio.Future[Any]
    size: int = 0
    is_single: bool = False
    result: Any = None
    error: Exception | None = None


class Writer:
    """Owns the writing connection, and the thread that uses it, if any; another process is waited for `budget_ms`."""

    def __init__(
        self, connection: sqlite3.Connection, path: str, *, budget_ms: float, synchronous: db.Synchronous = "NORMAL"
    ) -> None:
        self._connection = connection
        self._path = path
        self._budget_ms = budget_ms
        self._synchronous: Final = synchronous
        self._jobs: queue.SimpleQueue[Job | _Order] = queue.SimpleQueue()  # nothing comes after the end
        # Jobs that the thread has not done yet; as long as there are any the connection is its own.
        self._queued = 0
        self._slow_until = 0.0
        self._pages = 0
        self._mover: sqlite3.Connection | None = None
        self._lock = threading.Lock()
        self._is_closing = False
        self._pid = os.getpid()
        self._thread: threading.Thread | None = None
        if has_threads():
            connection.execute("PRAGMA wal_autocheckpoint = 0")  # no commit has to wait for the disk
            self._thread = threading.Thread(target=self._loop, name=f"noetic-sqlite {path}", daemon=True)
            self._thread.start()

    def submit(self, job: Job) -> bool:
        """Take a job; tells whether it is done. If not, its future is resolved on the loop of the caller later."""
        # Checked and queued in one: a job behind the end would keep its caller waiting for ever.
        with self._lock:
            self.check_open()
            if self._thread is None:
                self._write([job])
                return False
            is_done = False
            try:
                is_done = (
                    not self._queued
                    and job.size <= _MOST_INLINE_CHARACTERS
                    and self._synchronous != "FULL"
                    and perf_counter() >= self._slow_until
                ) and self._write_here(job)
            finally:  # an interrupt may come at any moment
                if not is_done:
                    self._queued += 1
                    self._jobs.put(job)
            return is_done

    def close(self) -> None:
        """Write the remaining jobs and end the thread; may be called again."""
        if self._pid != os.getpid():
            return  # a forked child has neither the thread nor a right to the connection
        with self._lock:
            if not self._is_closing:
                self._is_closing = True
                if self._thread is None:
                    self._connection.close()
                else:
                    self._jobs.put("end")
        # The garbage collector may finalise an abandoned storage on the writing thread itself.
        if self._thread is not None and threading.current_thread() is not self._thread:
            self._thread.join()

    def check_open(self) -> None:
        """Raise where the storage is closed, or was opened by the process that this one was forked from."""
        if self._is_closing:
            hint = "Create a new SQLiteStorage."
            raise NoeticError("storage_failed", f"The storage {self._path!r} is closed.", hint=hint, path=self._path)
        if self._pid != os.getpid():
            what = f"The storage {self._path!r} was opened before this process was forked."
            hint = "Create the SQLiteStorage inside the child process."
            raise NoeticError("storage_failed", what, hint=hint, path=self._path)

    def _write_here(self, job: Job) -> bool:
        """Commit a job now; False if that did not work at once, be it that another process is writing."""
        start = perf_counter()
        try:
            self._transaction([job])()
        except Exception:
            return False  # nothing was written: the thread tries again, waits for others, and finds out what is wrong
        end = perf_counter()
        if end - start > _SLOW_S:
            self._slow_until = end + _SLOW_FOR_S
        self._count_pages([job])
        return True

    def _count_pages(self, jobs: Sequence[Job]) -> None:
        self._pages += sum([_PAGES_OF_A_JOB + job.size // _PAGE for job in jobs])
        if self._pages >= _MOST_PAGES:
            self._pages = 0
            self._jobs.put("move the log")

    def _loop(self) -> None:
        try:
            while True:
                given: Job | _Order | None = self._jobs.get()
                jobs = []
                while isinstance(given, Job):
                    jobs.append(given)
                    given = None
                    if len(jobs) < _MOST_JOBS:
                        with contextlib.suppress(queue.Empty):
                            given = self._jobs.get_nowait()
                if jobs:
                    self._write(jobs)
                    with self._lock:
                        self._queued -= len(jobs)
                        self._count_pages(jobs)
                if given == "end":
                    return
                if given == "move the log":
                    self._move_log()
                # Held while the queue is empty they would keep values, and loops that have ended, alive.
                del given, jobs
        finally:
            self._connection.close()
            if self._mover is not None:
                self._mover.close()

    def _move_log(self) -> None:
        """Move the log into the file beside the writers, or before them where they have been quicker for long."""
        # What fails here is in the log, and stays there until it can be moved.
        with contextlib.suppress(sqlite3.Error):
            if self._mover is None:
                self._mover = db.open_mover(self._path, self._synchronous)
            if db.move_log(self._mover) < _MOST_PAGES_LEFT:
                return
            with self._lock:
                self._queued += 1  # from here on whatever comes waits for the thread
            try:
                db.move_log(self._mover)
            finally:
                with self._lock:
                    self._queued -= 1

    def _write(self, jobs: Sequence[Job]) -> None:
        try:
            self._commit(jobs)
        except Exception as exc:  # whatever it is, somebody waits for the answer
            self._commit_apart(jobs, exc)
        self._deliver(jobs)

    def _commit(self, jobs: Sequence[Job]) -> None:
        db.patiently(self._transaction(jobs), self._budget_ms)

    def _transaction(self, jobs: Sequence[Job]) -> Callable[[], None]:
        """Return a function that writes everything or nothing."""

        def run_all() -> None:
            for job in jobs:
                job.result = job.run(self._connection)

        def transaction() -> None:
            # Immediate: a lock that is taken with the first write, after a read, can fail without waiting.
            self._connection.execute("BEGIN IMMEDIATE")
            try:
                run_all()
                self._connection.execute("COMMIT")
            except BaseException:
                if self._connection.in_transaction:  # SQLite has already rolled back after some errors
                    self._connection.execute("ROLLBACK")
                raise

        return run_all if len(jobs) == 1 and jobs[0].is_single else transaction

    def _commit_apart(self, jobs: Sequence[Job], error: Exception) -> None:
        """Find out which jobs cannot be done, in the order they were given."""
        is_hopeless = len(jobs) == 1 or db.is_busy(error) or db.primary_code(error) in _WHOLE_FILE
        for job in jobs:
            if not is_hopeless:
                try:
                    self._commit([job])
                    continue
                except Exception as exc:
                    error = exc
                    is_hopeless = db.is_busy(exc)  # the budget of waiting is spent once, not once a job
            job.error = error if isinstance(error, NoeticError) else db.storage_error(error, self._path, "Writing to")
            if job.error is not error:
                job.error.__cause__ = error

    def _deliver(self, jobs: Sequence[Job]) -> None:
        by_loop: dict[asyncio.AbstractEventLoop, list[Job]] = {}
        for job in jobs:
            by_loop.setdefault(job.future.get_loop(), []).append(job)
        for loop, some in by_loop.items():
            # A loop that was closed meanwhile has nobody left who waits.
            with contextlib.suppress(RuntimeError):
                loop.call_soon_threadsafe(_resolve, some)


def _resolve(jobs: Sequence[Job]) -> None:
    for job in jobs:
        if job.future.done():  # cancelled by its caller
            continue
        if job.error is not None:
            job.future.set_exception(job.error)
        else:
            job.future.set_result(job.result)


_SELECT: Final = "SELECT value, checksum FROM entries WHERE key = ?"
_SELECT_VERSION: Final = "SELECT version FROM entries WHERE key = ?"
_SELECT_VERSIONED: Final = "SELECT value, checksum, version FROM entries WHERE key = ?"
_MOST_PARAMETERS: Final = 500  # SQLite allows 999 parameters in its oldest supported builds


def _checked(key: str, text: Any, checksum: int | None, path: str) -> str:
    """Return a text of the database, checked by its checksum if it has one; raises ``storage_failed``."""
    if checksum is not None and (not isinstance(text, str) or checksum != db.checksum_of(key, text)):
        what = f"The value under {key!r} in {path!r} is not what was written there: the file is damaged."
        hint = "Keep a copy and restore a backup, or set or delete this key."
        raise NoeticError("storage_failed", what, hint=hint, path=path, key=key)
    return text  # type: ignore[no-any-return]


def _parse(key: str, text: Any, checksum: int | None, path: str) -> JsonValue:
    """Return the value of a text of the database; raises ``storage_failed`` if it is not JSON, or another one."""
    try:
        value: JsonValue = parsed_json(text)
    except (ValueError, TypeError, RecursionError) as exc:
        what = f"The value under {key!r} in {path!r} is not JSON: {exc}"
        hint = "Another program wrote it; set or delete this key."
        raise NoeticError("storage_failed", what, hint=hint, path=path, key=key) from exc
    _checked(key, text, checksum, path)
    return value


class Reader:
    """Reads through one connection, one thread at a time, and never sleeps: SQLite's own error asks for a retry."""

    def __init__(self, path: str, *, cache_size: int) -> None:
        self._path = path
        self._connection = db.open_reader(path)
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
        first, end = db.prefix_range(prefix)
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
            if db.is_busy(exc):
                raise
            raise db.storage_error(exc, self._path, "Reading") from exc

    def _all(self, query: str, values: Sequence[str]) -> list[Any]:
        try:
            return self._connection.execute(query, values).fetchall()
        except sqlite3.Error as exc:
            if db.is_busy(exc):
                raise
            raise db.storage_error(exc, self._path, "Reading") from exc

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
