"""The one thread that writes: jobs of all callers, in the order they were given.

Whatever has gathered is committed in one transaction. When that fails, each job is tried alone, so that one value that
does not fit fails its own caller only.
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
from typing import Any, Final

from noetic_nb.errors import NoeticError
from noetic_nb.storage.sqlite_file import is_busy, patiently, primary_code, storage_error
from noetic_nb.worker_threads import has_threads

__all__ = ["Job", "Writer"]

# Bounds how long one transaction keeps another process out; 1 000 small sets take about 10 ms.
_MOST_JOBS: Final = 1_000
# These concern the file as a whole: trying each job alone would fail the same way, only slower.
_WHOLE_FILE: Final = frozenset(
    {sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_CANTOPEN}
)


@dataclass(slots=True)
class Job:
    """One awaited write, atomic in itself.

    `run` does it inside the transaction, perhaps again after a roll-back; its result is what the caller gets. Where
    it is one statement, `is_single`, it needs no explicit transaction when it comes alone.
    """

    run: Callable[[sqlite3.Connection], Any]  # jobs of different results share one queue; `_write` types them
    future: asyncio.Future[Any]
    is_single: bool = False
    result: Any = None
    error: Exception | None = None


class Writer:
    """Owns the writing connection, from now on used and closed by its thread alone, and that thread.

    Where there are no threads, each job is done as it is given. Another process is waited for `budget_ms` milliseconds; the
    path is for messages.
    """

    def __init__(self, connection: sqlite3.Connection, path: str, *, budget_ms: float) -> None:
        self._connection = connection
        self._path = path
        self._budget_ms = budget_ms
        # None ends the thread; nothing comes after it.
        self._jobs: queue.SimpleQueue[Job | None] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._is_closing = False
        self._pid = os.getpid()
        self._thread: threading.Thread | None = None
        if has_threads():
            self._thread = threading.Thread(target=self._loop, name=f"noetic-sqlite {path}", daemon=True)
            self._thread.start()

    def submit(self, job: Job) -> None:
        """Take a job; its future is resolved on its own loop."""
        # Checked and queued in one: a job behind the None would keep its caller waiting for ever.
        with self._lock:
            self.check_open()
            if self._thread is None:
                self._write([job])
            else:
                self._jobs.put(job)

    def close(self) -> None:
        """Write what is left and end the thread; may be repeated."""
        if self._pid != os.getpid():
            return  # a forked child has neither the thread nor a right to the connection
        with self._lock:
            if not self._is_closing:
                self._is_closing = True
                if self._thread is None:
                    self._connection.close()
                else:
                    self._jobs.put(None)
        # The garbage collector may finalise an abandoned storage on the writing thread itself.
        if self._thread is not None and threading.current_thread() is not self._thread:
            self._thread.join()

    def check_open(self) -> None:
        """Raise where the storage is closed, or was opened by the process that this one was forked from."""
        if self._is_closing:
            raise NoeticError(
                "storage_failed",
                f"The storage {self._path!r} is closed.",
                hint="Create a new SQLiteStorage.",
                path=self._path,
            )
        if self._pid != os.getpid():
            raise NoeticError(
                "storage_failed",
                f"The storage {self._path!r} was opened before this process was forked.",
                hint="Create the SQLiteStorage inside the child process.",
                path=self._path,
            )

    def _loop(self) -> None:
        try:
            while (first := self._jobs.get()) is not None:
                jobs, is_last = [first], False
                while len(jobs) < _MOST_JOBS:
                    try:
                        job = self._jobs.get_nowait()
                    except queue.Empty:
                        break
                    if job is None:
                        is_last = True
                        break
                    jobs.append(job)
                self._write(jobs)
                if is_last:
                    return
                # Held while the queue is empty they would keep values, and loops that have ended, alive.
                del first, jobs
        finally:
            self._connection.close()

    def _write(self, jobs: Sequence[Job]) -> None:
        try:
            self._commit(jobs)
        except Exception as exc:  # whatever it is, somebody waits for the answer
            self._commit_apart(jobs, exc)
        self._deliver(jobs)

    def _commit(self, jobs: Sequence[Job]) -> None:
        """Write everything or nothing."""

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

        patiently(run_all if len(jobs) == 1 and jobs[0].is_single else transaction, self._budget_ms)

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
