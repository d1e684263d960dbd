"""The one connection that writes: jobs of all callers, in the order they were given.

A job is done as it is given, on the event loop: a commit into the write-ahead log takes less than the way to a thread and
back. What may take longer is left to a thread: large values, a file whose every commit is flushed to the disk, a disk that
was slow a moment ago, whatever did not work at once, and what comes while the thread has something to do.

The thread commits what has gathered for it in one transaction. When that fails, each job is tried alone, so that one value
that does not fit fails its own caller only. It also moves the log into the file, which flushes the disk and takes longest.
"""

from __future__ import annotations

import asyncio
import contextlib
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
from noetic_nb.storage._sqlite_file import (
    Synchronous,
    is_busy,
    move_log,
    open_mover,
    patiently,
    primary_code,
    storage_error,
)

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
    """One awaited write, atomic in itself; `size` is its number of characters.

    `run` does it inside the transaction, perhaps again after a roll-back; its result is the caller's. Where it is one
    statement, `is_single`, it needs no explicit transaction when it comes alone.
    """

    run: Callable[[sqlite3.Connection], Any]  # jobs of different results share one queue; `_write` types them
    future: asyncio.Future[Any]
    size: int = 0
    is_single: bool = False
    result: Any = None
    error: Exception | None = None


class Writer:
    """Owns the writing connection, and the thread that uses it where a loop should not.

    Without threads each job is done as it is given. Another process is waited for `budget_ms`; the path is for messages.
    """

    def __init__(
        self, connection: sqlite3.Connection, path: str, *, budget_ms: float, synchronous: Synchronous = "NORMAL"
    ) -> None:
        self._connection = connection
        self._path = path
        self._budget_ms = budget_ms
        self._synchronous: Final = synchronous
        # Nothing comes after the end.
        self._jobs: queue.SimpleQueue[Job | _Order] = queue.SimpleQueue()
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
                is_done = self._is_quick(job) and self._write_here(job)
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

    def _is_quick(self, job: Job) -> bool:
        """Tell whether a job will most likely not be felt on a loop; and it may not overtake others."""
        return (
            not self._queued
            and job.size <= _MOST_INLINE_CHARACTERS
            and self._synchronous != "FULL"
            and perf_counter() >= self._slow_until
        )

    def _write_here(self, job: Job) -> bool:
        """Commit a job now; False where that did not work at once, be it that another process is writing."""
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
                self._mover = open_mover(self._path, self._synchronous)
            if move_log(self._mover) < _MOST_PAGES_LEFT:
                return
            with self._lock:
                self._queued += 1  # from here on whatever comes waits for the thread
            try:
                move_log(self._mover)
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
        patiently(self._transaction(jobs), self._budget_ms)

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
        is_hopeless = len(jobs) == 1 or is_busy(error) or primary_code(error) in _WHOLE_FILE
        for job in jobs:
            if not is_hopeless:
                try:
                    self._commit([job])
                    continue
                except Exception as exc:
                    error = exc
                    is_hopeless = is_busy(exc)  # the budget of waiting is spent once, not once a job
            job.error = error if isinstance(error, NoeticError) else storage_error(error, self._path, "Writing to")
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
