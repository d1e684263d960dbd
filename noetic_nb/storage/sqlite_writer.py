"""The one thread that writes: awaited jobs and values put without waiting, merged in the order they were given.

Whatever has gathered is committed in one transaction. When that fails, each part is tried alone, so that one value that
does not fit fails its own caller only; a put that failed stays pending, readable, and is tried again by the next flush.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import sqlite3
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal, NamedTuple

from noetic_nb.errors import NoeticError
from noetic_nb.storage.sqlite_file import DELETE, UPSERT, is_busy, patiently, primary_code, storage_error

__all__ = ["Job", "Put", "Writer"]

log: Final = logging.getLogger(__name__)

# Bounds how long one transaction keeps another process out; 1 000 small sets take about 10 ms.
_MOST_JOBS: Final = 1_000
# These concern the file as a whole: trying each part alone would fail the same way, only slower.
_WHOLE_FILE: Final = frozenset(
    {sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_CANTOPEN}
)


@dataclass(slots=True)
class Job:
    """One awaited write, atomic in itself.

    Attributes
    ----------
    run : callable
        What to do inside the transaction; its result is what the caller gets. May run again after a roll-back.
    keys : sequence of str
        The keys it decides; earlier puts to them that failed are void once it succeeds.
    is_single : bool
        One statement, which needs no explicit transaction when it comes alone.
    is_flush : bool
        Writes nothing itself; fails when an earlier put did.
    """

    run: Callable[[sqlite3.Connection], Any]
    future: asyncio.Future[Any]
    keys: Sequence[str] = ()
    is_single: bool = False
    is_flush: bool = False
    seq: int = 0
    result: Any = None
    error: Exception | None = None


class Put(NamedTuple):
    """A value to be written soon; ``text`` None deletes. A tuple, because one is made at every put."""

    seq: int
    text: str | None


@dataclass(slots=True)
class _Batch:
    jobs: list[Job]
    puts: dict[str, Put]
    failed: dict[str, Put] = field(default_factory=dict)
    put_error: Exception | None = None


class Writer:
    """Owns the writing connection and its thread.

    Parameters
    ----------
    connection : sqlite3.Connection
        Used by the thread alone from now on, and closed by it.
    path : str
        For messages.
    budget_ms : float
        How long to wait for another process, milliseconds.
    delay_ms : float
        How long puts gather before they are written, milliseconds; jobs and flushes cut it short.
    on_error : callable, optional
        Told of puts that failed in the background; called on the writing thread. Without it they are logged.
    """

    def __init__(
        self,
        connection: sqlite3.Connection,
        path: str,
        *,
        budget_ms: float,
        delay_ms: float,
        on_error: Callable[[NoeticError], None] | None,
    ) -> None:
        self._connection = connection
        self._path = path
        self._budget_ms = budget_ms
        self._delay_s = delay_ms / 1000
        self._on_error = on_error
        # Reentrant: the garbage collector may finalise an abandoned storage on the writing thread, inside the lock.
        self._lock = threading.RLock()
        self._bell = threading.Lock()
        self._bell.acquire()
        self._state: Literal["busy", "idle", "lingering"] = "busy"
        self._jobs: list[Job] = []
        self._pending: dict[str, Put] = {}
        self._inflight: dict[str, Put] = {}
        self._seq = 0
        self._put_error: Exception | None = None
        self._is_stuck = False
        self._is_closing = False
        self._pid = os.getpid()
        self._thread = threading.Thread(target=self._loop, name=f"noetic-sqlite {path}", daemon=True)
        self._thread.start()

    def put(self, key: str, text: str | None) -> None:
        """Take a value to be written soon; returns at once."""
        with self._lock:
            self._check_open()
            self._seq += 1
            self._pending.pop(key, None)  # re-inserted at the end: the dictionary stays in order of `seq`
            self._pending[key] = Put(self._seq, text)
            self._is_stuck = False
            if self._state == "idle":
                self._ring()

    def submit(self, job: Job) -> None:
        """Take a job; its future is resolved on its own loop."""
        with self._lock:
            self._check_open()
            self._seq += 1
            job.seq = self._seq
            self._jobs.append(job)
            self._is_stuck = False
            if self._state != "busy":
                self._ring()

    def peek(self, key: str) -> Put | None:
        """Return the newest put of a key that is not committed yet."""
        with self._lock:
            self._check_open()
            return self._pending.get(key) or self._inflight.get(key)

    def unwritten(self) -> dict[str, Put]:
        """Return every put that is not committed yet, by key."""
        with self._lock:
            self._check_open()
            return {**self._inflight, **self._pending}

    def has_unwritten(self) -> bool:
        """Tell whether a flush has anything to wait for."""
        with self._lock:
            self._check_open()
            return bool(self._pending or self._inflight)

    def close(self) -> NoeticError | None:
        """Write what is left, end the thread and return why puts are lost, None when none are; may be repeated."""
        if self._pid != os.getpid():
            return None  # a forked child has neither the thread nor a right to the connection
        with self._lock:
            self._is_closing = True
            self._is_stuck = False  # one last attempt
            if self._state != "busy":
                self._ring()
        if threading.current_thread() is not self._thread:
            self._thread.join()
        if not self._pending:
            return None
        cause = self._put_error or RuntimeError("the thread that writes has ended")
        return self._error(cause, f"{len(self._pending)} value(s) are lost: closing")

    def _check_open(self) -> None:
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

    def _ring(self) -> None:
        self._state = "busy"
        self._bell.release()

    def _sleep(self, state: Literal["idle", "lingering"], seconds: float = -1) -> None:
        """Wait for the bell; called without the lock, after `_state` was set to `state` under it."""
        if not self._bell.acquire(timeout=seconds):
            with self._lock:
                if self._state == state:
                    self._state = "busy"
                    return
            self._bell.acquire()  # rung between the end of the wait and the lock: consume that ring

    def _loop(self) -> None:
        try:
            while self._await_work():
                self._write()
        finally:
            self._connection.close()

    def _await_work(self) -> bool:
        has_lingered = False
        while True:
            with self._lock:
                has_puts = bool(self._pending) and not self._is_stuck
                if self._jobs or (has_puts and (has_lingered or self._is_closing or not self._delay_s)):
                    return True
                if self._is_closing:
                    return False
                state: Literal["idle", "lingering"] = "lingering" if has_puts else "idle"
                self._state = state
            self._sleep(state, self._delay_s if state == "lingering" else -1)
            has_lingered = state == "lingering"

    def _write(self) -> None:
        with self._lock:
            jobs, self._jobs = self._jobs[:_MOST_JOBS], self._jobs[_MOST_JOBS:]
            if self._jobs:
                # A put given after a job that has to wait must wait behind it, or the older value would win.
                limit = self._jobs[0].seq
                self._inflight = {key: put for key, put in self._pending.items() if put.seq < limit}
                self._pending = {key: put for key, put in self._pending.items() if put.seq >= limit}
            else:
                self._inflight, self._pending = self._pending, {}
            batch = _Batch(jobs, self._inflight)
        try:
            self._commit(batch.jobs, batch.puts)
        except Exception as exc:  # whatever it is, somebody waits for the answer
            self._commit_apart(batch, exc)
        with self._lock:
            self._inflight = {}
            if batch.failed:
                # With nothing new to do but what has just failed, wait for a put, a job or a flush rather than spin.
                self._is_stuck = not self._pending and not self._jobs
                self._pending = {**batch.failed, **self._pending}
        if batch.put_error is not None and batch.failed:
            self._put_error = batch.put_error
            self._report(batch.put_error, len(batch.failed))
        self._deliver(batch)

    def _commit(self, jobs: Sequence[Job], puts: dict[str, Put]) -> None:
        """Write everything or nothing."""
        if len(jobs) + len(puts) == 1 and (puts or jobs[0].is_single):
            patiently(lambda: self._apply(jobs, puts), self._budget_ms)
            return
        if not puts and all(job.is_flush for job in jobs):
            return

        def transaction() -> None:
            self._connection.execute("BEGIN IMMEDIATE")
            try:
                self._apply(jobs, puts)
                self._connection.execute("COMMIT")
            except BaseException:
                if self._connection.in_transaction:  # SQLite has already rolled back after some errors
                    self._connection.execute("ROLLBACK")
                raise

        patiently(transaction, self._budget_ms)

    def _apply(self, jobs: Sequence[Job], puts: dict[str, Put]) -> None:
        waiting = list(puts.items())
        start = 0
        for job in jobs:
            end = start
            while end < len(waiting) and waiting[end][1].seq < job.seq:
                end += 1
            self._apply_puts(waiting[start:end])
            start = end
            job.result = job.run(self._connection)
        self._apply_puts(waiting[start:])

    def _apply_puts(self, puts: Sequence[tuple[str, Put]]) -> None:
        values = [(key, put.text) for key, put in puts if put.text is not None]
        if values:
            self._connection.executemany(UPSERT, values)
        gone = [(key,) for key, put in puts if put.text is None]
        if gone:
            self._connection.executemany(DELETE, gone)

    def _commit_apart(self, batch: _Batch, error: Exception) -> None:
        """Find out which parts of a batch cannot be written, in the order they were given."""
        parts: list[tuple[int, Job | str]] = [(put.seq, key) for key, put in batch.puts.items()]
        parts += [(job.seq, job) for job in batch.jobs]
        is_hopeless = len(parts) == 1 or is_busy(error) or primary_code(error) in _WHOLE_FILE
        for _, part in sorted(parts, key=lambda item: item[0]):
            failure: Exception | None = error if is_hopeless else None
            if not is_hopeless:
                try:
                    jobs, puts = ([], {part: batch.puts[part]}) if isinstance(part, str) else ([part], {})
                    self._commit(jobs, puts)
                except Exception as exc:
                    failure = exc
                    is_hopeless = is_busy(exc)
            if isinstance(part, str):
                if failure is not None:
                    batch.failed[part] = batch.puts[part]
                    batch.put_error = failure
            elif part.is_flush:
                part.error = batch.put_error if batch.failed else None
            elif failure is not None:
                part.error = failure
            else:
                for key in part.keys:
                    batch.failed.pop(key, None)

    def _report(self, cause: Exception, count: int) -> None:
        error = self._error(cause, f"Writing {count} value(s) in the background to")
        if self._on_error is None:
            log.error("%s They stay readable and are tried again by the next flush.", error)
            return
        try:
            self._on_error(error)
        except Exception:
            log.exception("`on_error` of the storage failed while it was told: %s", error)

    def _error(self, cause: Exception, doing: str) -> NoeticError:
        error = cause if isinstance(cause, NoeticError) else storage_error(cause, self._path, doing)
        if error is not cause:
            error.__cause__ = cause
        return error

    def _deliver(self, batch: _Batch) -> None:
        by_loop: dict[asyncio.AbstractEventLoop, list[Job]] = {}
        for job in batch.jobs:
            if job.error is not None:
                job.error = self._error(job.error, "Writing to")
            by_loop.setdefault(job.future.get_loop(), []).append(job)
        for loop, jobs in by_loop.items():
            # A loop that was closed meanwhile has nobody left who waits.
            with contextlib.suppress(RuntimeError):
                loop.call_soon_threadsafe(_resolve, jobs)


def _resolve(jobs: Sequence[Job]) -> None:
    for job in jobs:
        if job.future.done():  # cancelled by its caller
            continue
        if job.error is not None:
            job.future.set_exception(job.error)
        else:
            job.future.set_result(job.result)
