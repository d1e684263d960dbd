"""The connections of `SQLiteStorage`: one that writes, and one that reads, so that no read waits for a write.

**Writing.** A job is normally committed at once, on the event loop: a commit into the write-ahead log is faster than
switching to a thread and back. Slower work is left to a thread: large values, a file whose every commit is flushed to
the disk, a disk that was slow a moment ago, writes that failed at once, and jobs submitted while the thread is busy.
The thread commits its queued jobs in one transaction. If that fails, each job is tried alone, so that one unsuitable
value fails only its own caller. The thread also moves the log into the file, which flushes the disk and takes longest.

**Reading.** Cached values are valid as long as ``PRAGMA data_version`` does not change. On this connection, which never
writes, it changes with every commit of any other connection, in our own process or another one. It is checked before
each read, so a value is served from the cache only if no commit has happened since the cache was last emptied.
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

# Bounds how long one transaction blocks other processes; 1 000 small sets take about 10 ms.
_MOST_JOBS: Final = 1_000
# Largest write on an event loop, which takes less than a millisecond.
_MOST_INLINE_CHARACTERS: Final = 64 * 1024
# A commit that took this long had to wait for the disk: for the next while, a thread does the waiting.
_SLOW_S: Final = 0.02
_SLOW_FOR_S: Final = 1.0
# Pages in the log before it is moved into the file, as in SQLite itself, and pages added by a job, approximately.
_MOST_PAGES: Final = 1_000
_PAGES_OF_A_JOB: Final = 4
# If this many remain because of concurrent writes, writers wait for the move: the log must not grow without limit.
_MOST_PAGES_LEFT: Final = 10 * _MOST_PAGES
_PAGE: Final = 4_096
# These concern the file as a whole: trying each job alone would fail in the same way, only more slowly.
_WHOLE_FILE: Final = frozenset(
    {sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_CANTOPEN}
)


_Order: TypeAlias = Literal["end", "move the log"]


@dataclass(slots=True)
class Job:
    """One awaited write of `size` characters, atomic in itself, which may be run again; `is_single` is one statement."""

    run: Callable[[sqlite3.Connection], Any]  # jobs with different results share one queue; `_write` types them
    future: asyncio.Future[Any]
    size: int = 0
    is_single: bool = False
    result: Any = None
    error: Exception | None = None


class Writer:
    """Owns the writing connection and its thread, if any; waits up to `budget_ms` for other processes."""

    def __init__(
        self, connection: sqlite3.Connection, path: str, *, budget_ms: float, synchronous: db.Synchronous = "NORMAL"
    ) -> None:
        self._connection = connection
        self._path = path
        self._budget_ms = budget_ms
        self._synchronous: Final = synchronous
        self._jobs: queue.SimpleQueue[Job | _Order] = queue.SimpleQueue()  # nothing follows "end"
        # Jobs that the thread has not done yet; while there are any, it owns the connection.
        self._queued = 0
        self._slow_until = 0.0
        self._pages = 0
        self._mover: sqlite3.Connection | None = None
        self._lock = threading.Lock()
        self._is_closing = False
        self._pid = os.getpid()
        self._thread: threading.Thread | None = None
        if has_threads():
            connection.execute("PRAGMA wal_autocheckpoint = 0")  # so that no commit has to wait for the disk
            self._thread = threading.Thread(target=self._loop, name=f"noetic-sqlite {path}", daemon=True)
            self._thread.start()

    def submit(self, job: Job) -> bool:
        """Accept a job; returns whether it is already done. If not, its future is resolved on the caller's loop later."""
        # Checked and queued under one lock: a job after the end would keep its caller waiting for ever.
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
        """Write the remaining jobs and end the thread; may be repeated."""
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
        """Raise if the storage is closed, or was opened by the process from which this one was forked."""
        if self._is_closing:
            hint = "Create a new SQLiteStorage."
            raise NoeticError("storage_failed", f"The storage {self._path!r} is closed.", hint=hint, path=self._path)
        if self._pid != os.getpid():
            what = f"The storage {self._path!r} was opened before this process was forked."
            hint = "Create the SQLiteStorage inside the child process."
            raise NoeticError("storage_failed", what, hint=hint, path=self._path)

    def _write_here(self, job: Job) -> bool:
        """Commit a job now; False if that failed, for example because another process is writing."""
        start = perf_counter()
        try:
            self._transaction([job])()
        except Exception:
            return False  # nothing was written: the thread retries, waits for others, and reports the problem
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
                # Released, because while the queue is empty they would keep values and closed loops alive.
                del given, jobs
        finally:
            self._connection.close()
            if self._mover is not None:
                self._mover.close()

    def _move_log(self) -> None:
        """Move the log into the file alongside the writers, or, if they have outpaced it for long, while they wait."""
        # Pages that cannot be moved stay in the log until the next attempt.
        with contextlib.suppress(sqlite3.Error):
            if self._mover is None:
                self._mover = db.open_mover(self._path, self._synchronous)
            if db.move_log(self._mover) < _MOST_PAGES_LEFT:
                return
            with self._lock:
                self._queued += 1  # from here on, all jobs wait for the thread
            try:
                db.move_log(self._mover)
            finally:
                with self._lock:
                    self._queued -= 1

    def _write(self, jobs: Sequence[Job]) -> None:
        try:
            self._commit(jobs)
        except Exception as exc:  # whatever the error, a caller waits for the result
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
            # Immediate: upgrading to a write lock after a read can fail without waiting.
            self._connection.execute("BEGIN IMMEDIATE")
            try:
                run_all()
                self._connection.execute("COMMIT")
            except BaseException:
                if self._connection.in_transaction:  # SQLite rolls back by itself after some errors
                    self._connection.execute("ROLLBACK")
                raise

        return run_all if len(jobs) == 1 and jobs[0].is_single else transaction

    def _commit_apart(self, jobs: Sequence[Job], error: Exception) -> None:
        """Determine which jobs fail, in the order they were submitted."""
        is_hopeless = len(jobs) == 1 or db.is_busy(error) or db.primary_code(error) in _WHOLE_FILE
        for job in jobs:
            if not is_hopeless:
                try:
                    self._commit([job])
                    continue
                except Exception as exc:
                    error = exc
                    is_hopeless = db.is_busy(exc)  # the wait budget is spent once, not per job
            job.error = error if isinstance(error, NoeticError) else db.storage_error(error, self._path, "Writing to")
            if job.error is not error:
                job.error.__cause__ = error

    def _deliver(self, jobs: Sequence[Job]) -> None:
        by_loop: dict[asyncio.AbstractEventLoop, list[Job]] = {}
        for job in jobs:
            by_loop.setdefault(job.future.get_loop(), []).append(job)
        for loop, some in by_loop.items():
            # A loop that was closed meanwhile has no more waiting callers.
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
    """Return a text from the database, verified by its checksum if it has one; raises ``storage_failed``."""
    if checksum is not None and (not isinstance(text, str) or checksum != db.checksum_of(key, text)):
        what = f"The value under {key!r} in {path!r} is not what was written there: the file is damaged."
        hint = "Keep a copy and restore a backup, or set or delete this key."
        raise NoeticError("storage_failed", what, hint=hint, path=path, key=key)
    return text  # type: ignore[no-any-return]


def _parse(key: str, text: Any, checksum: int | None, path: str) -> JsonValue:
    """Return the value of a text from the database; raises ``storage_failed`` if it is invalid JSON or fails its checksum."""
    try:
        value: JsonValue = parsed_json(text)
    except (ValueError, TypeError, RecursionError) as exc:
        what = f"The value under {key!r} in {path!r} is not JSON: {exc}"
        hint = "Another program wrote it; set or delete this key."
        raise NoeticError("storage_failed", what, hint=hint, path=path, key=key) from exc
    _checked(key, text, checksum, path)
    return value


class Reader:
    """Reads through one connection, one thread at a time, and never sleeps: callers retry on SQLite's own error."""

    def __init__(self, path: str, *, cache_size: int) -> None:
        self._path = path
        self._connection = db.open_reader(path)
        self._lock = threading.Lock()
        self._cache: dict[str, bytes] = {}
        self._cache_room = self._cache_size = cache_size
        self._data_version = -1

    def get(self, key: str) -> JsonValue | None:
        with self._lock:
            if self._cache_size:
                version = self._one("PRAGMA data_version", ())[0]
                if version != self._data_version:
                    self._forget()
                    # Noted before the value is read: a commit in between appears as another version.
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
        """Return the stored text under a key, or None."""
        with self._lock:
            row = self._one(_SELECT, (key,))
        return None if row is None else _checked(key, row[0], row[1], self._path)

    def get_version(self, key: str) -> int | None:
        with self._lock:
            row = self._one(_SELECT_VERSION, (key,))
        return None if row is None else row[0]

    def get_many(self, keys: Sequence[str]) -> dict[str, JsonValue]:
        """Return the existing values of several keys, from one consistent snapshot."""
        found: dict[str, tuple[Any, int | None]] = {}
        with self._lock:
            if len(keys) <= _MOST_PARAMETERS:  # a single statement is consistent by itself
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
        """Return the keys with a prefix, sorted; at most `limit` of them unless it is negative."""
        first, end = db.prefix_range(prefix)
        # Served from the key index alone. LIKE would need escapes and fold case.
        query, values = "SELECT key FROM entries WHERE key >= ?", [first]
        if end is not None:
            query, values = f"{query} AND key < ?", [first, end]
        with self._lock:
            rows = self._all(f"{query} ORDER BY key LIMIT {limit:d}", values)
        return [row[0] for row in rows]

    def close(self) -> None:
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
        except ValueError:  # nested deeper than marshal allows: such a value is read from the file each time
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
