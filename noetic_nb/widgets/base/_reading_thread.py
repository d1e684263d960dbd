"""Schedules the reading of events: in small slices while the agent works, and the rest when it waits.

An event only signals that there is something new. One thread reads for all views of a kernel: about 1 % of the time
while others keep the processor busy, and without pauses otherwise. A long backlog is read in bulk, like a newly opened
run. Any access to a view's data first reads its pending events, and so does the end of a cell. Without thread support,
events are read immediately.
"""

from __future__ import annotations

import contextvars
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable
from math import inf
from typing import Any, Final, Protocol

from noetic_nb._core.worker_threads import thread_time
from noetic_nb.events import RunEvent
from noetic_nb.redact import safe_logger
from noetic_nb.runs._events.run_log import Cursor
from noetic_nb.widgets.base._display import running_shell

log = safe_logger(__name__)

# While others keep the processor busy: read for this much of the thread's own time, then pause up to ten times until they wait.
SLICE_S: Final = 0.002
PAUSE_S: Final = 0.018
# After a first event, wait only until those of the same step have come: a page shows them so much earlier.
GATHER_S: Final = 0.005
# Others count as waiting if they use less than half of this interval.
LOOK_S: Final = 0.002
# An idle thread ends after this time; the next event starts another.
IDLE_S: Final = 5.0
# How many events to pass to all views at a time, so that no view runs ahead.
CHUNK: Final = 32
# When others wait, a longer backlog is read in bulk, and pages ask for a complete snapshot once.
BACKLOG: Final = 1_000
# Enough of the thread's own time for a whole backlog.
QUIET_S: Final = 10.0


def has_time(until: float) -> bool:
    """Tell whether more than a slice is left until a `thread_time`."""
    return until - thread_time() > SLICE_S


class Stale(Protocol):
    """An object with new data to read."""

    is_awake: bool
    """Whether it is queued."""

    def read_some(self, until: float) -> bool:
        """Read until nothing is left or `thread_time` exceeds `until`; returns whether nothing is left."""
        ...

    def catch_up(self) -> None:
        """Read everything now."""
        ...


class Readings:
    """Reads queued views one after the other, in a thread that starts on demand and ends when idle."""

    def __init__(self, *, idle_s: float = IDLE_S, has_threads: bool = True) -> None:
        self.has_threads = has_threads
        self._idle_s = idle_s
        self._stale: deque[tuple[contextvars.Context, Stale]] = deque()
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None

    def wake(self, stale: Stale) -> None:
        """Queue an object, once until it has been read."""
        stale.is_awake = True
        if self.has_threads:
            with self._changed:
                # The context identifies the kernel message that caused the event.
                self._stale.append((contextvars.copy_context(), stale))
                if self._thread is not None:
                    self._changed.notify_all()
                    return
                self._thread = threading.Thread(target=self._run, name="noetic_nb readings", daemon=True)
                try:
                    self._thread.start()
                    return
                except RuntimeError:  # no thread support
                    self._thread, self.has_threads = None, False
                    self._stale.clear()
        stale.is_awake = False
        stale.read_some(inf)

    def _run(self) -> None:
        while True:
            with self._changed:
                if not self._stale and not self._changed.wait_for(lambda: self._stale, self._idle_s):
                    self._thread = None
                    return
            is_quiet = _others_wait(GATHER_S)
            while not self._slice(thread_time() + (QUIET_S if is_quiet else SLICE_S)):
                is_quiet = any(_others_wait() for _ in range(10))

    def _slice(self, until: float) -> bool:
        """Read until `thread_time` exceeds `until`; returns whether nothing is left."""
        for _ in range(len(self._stale)):
            context, stale = self._stale.popleft()
            # Reset the flag first, so that later events queue it again.
            stale.is_awake = False
            try:
                is_done = context.run(stale.read_some, until)
            except Exception:
                log.exception("Views could not read the new events.")
                continue
            if not is_done and not stale.is_awake:
                stale.is_awake = True
                self._stale.append((context, stale))
        return not self._stale


def _others_wait(pause_s: float = PAUSE_S) -> bool:
    """Pause; returns whether others were waiting at the end."""
    time.sleep(pause_s)
    start = time.process_time()
    time.sleep(LOOK_S)
    return time.process_time() - start < LOOK_S / 2


READINGS: Final = Readings()
"""The reading thread of this kernel."""


class Follows(Protocol):
    """A view that follows a run."""

    def take(self, event: RunEvent) -> None:
        """Store an event to read later."""
        ...

    def read_some(self, until: float) -> bool:
        """Read some of the stored events, as `Stale`."""
        ...

    def catch_up(self) -> None:
        """Read all stored events now."""
        ...


class Follower:
    """Follows one run for all its views, and stores events until they are read.

    Examples
    --------
    >>> from noetic_nb.events import QualityGiven, Where
    >>> from noetic_nb.runs import Run
    >>> class View:
    ...     def __init__(self):
    ...         self.waiting, self.qualities = [], []
    ...     def take(self, event):
    ...         self.waiting.append(event)
    ...     def read_some(self, until):
    ...         self.qualities += [event.quality for event in self.waiting]
    ...         self.waiting.clear()
    ...         return True
    ...     def catch_up(self):
    ...         self.read_some(0)
    >>> run, view = Run(), View()
    >>> follower = follower_of(run)
    >>> leave = follower.join(view, view.take)
    >>> _ = run.append(QualityGiven(Where("t1", "e1", 1), 0.0, 0.5, "user"))
    >>> follower.catch_up()
    >>> view.qualities
    [0.5]
    """

    def __init__(self, run: Any) -> None:
        self.run = run
        self.is_awake = False
        self._cursor: Cursor | None = None
        # Weak references to each view and to its method that receives events.
        self._views: tuple[tuple[weakref.ref[Any], Any], ...] = ()
        # While holding this lock, only call the receivers: a view may be garbage-collected, and leave, at any time.
        self._lock = threading.RLock()
        self._joining = threading.Lock()

    def join(self, view: Follows, take: Callable[[RunEvent], None]) -> Callable[[], object]:
        """Send a view all future events while it exists; returns a function that ends this, safe to call again."""
        entry = (weakref.ref(view), weakref.WeakMethod(take))
        with self._joining:
            with self._lock:
                self.hand_out()  # earlier events are not for this view
                self._views = (*self._views, entry)
            if self._cursor is None:
                self._cursor = self.run._follow(self._woken)

        def leave() -> None:
            with self._lock:
                self._views = tuple([each for each in self._views if each is not entry])
            self.end_if_alone()

        # Do not wait for a lock in a garbage collection, whose thread may hold that of the run.
        weakref.finalize(view, self.end_if_alone).atexit = False
        return leave

    def end_if_alone(self) -> None:
        """Stop following the run if all views have left or were collected."""
        # If another thread is joining, do nothing: garbage collection may close a view during a join.
        if not self.views and self._cursor is not None and self._joining.acquire(blocking=False):
            try:
                if not self.views and self._cursor is not None:
                    cursor, self._cursor = self._cursor, None
                    cursor.leave()
            finally:
                self._joining.release()

    def _woken(self) -> None:  # runs in the agent's thread, so keep it short
        if not self.is_awake:
            READINGS.wake(self)

    @property
    def _behind(self) -> int:
        return 0 if self._cursor is None else self._cursor.behind

    def hand_out(self, most: int | None = None) -> bool:
        """Pass up to `most` waiting events to the views, which store them; returns whether none are left."""
        with self._lock:
            cursor = self._cursor
            if cursor is None:
                return True
            self._views = tuple([entry for entry in self._views if entry[0]() is not None])
            takes = [take for _, found in self._views if (take := found()) is not None]
            for event in cursor.take(most):
                for take in takes:
                    take(event)
            return not cursor.behind

    def read_some(self, until: float) -> bool:
        """Read until nothing is left or `thread_time` exceeds `until`; returns whether nothing is left."""
        while True:
            is_all = self.hand_out(None if self._behind > BACKLOG and has_time(until) else CHUNK)
            if not all([view.read_some(until) for view in self.views]):  # noqa: C419  # all of them, without short-circuiting
                return False
            if is_all:
                self.end_if_alone()
                return True
            if thread_time() >= until:
                return False

    @property
    def views(self) -> list[Any]:
        """The existing views that follow, each once."""
        return list(dict.fromkeys(view for ref, _ in self._views if (view := ref()) is not None))

    def catch_up(self) -> None:
        """Read everything now."""
        self.hand_out()
        for view in self.views:
            view.catch_up()


_FOLLOWERS: Final[weakref.WeakValueDictionary[int, Follower]] = weakref.WeakValueDictionary()
_MAKING: Final = threading.Lock()


def follower_of(run: Any) -> Follower:
    """Return the follower of a run, shared by all its views; it lives as long as any of them."""
    with _MAKING:
        found = _FOLLOWERS.get(id(run))
        if found is None or found.run is not run:
            found = _FOLLOWERS[id(run)] = Follower(run)
        return found


def at_cell_end(*_result: Any) -> None:
    """Let all views read and show everything: an executed notebook accepts updates only until the end of the cell."""
    # Each view once, because one may follow hundreds of runs and read them all when it catches up.
    for view in dict.fromkeys(view for follower in list(_FOLLOWERS.values()) for view in follower.views):
        if view.is_shown:
            view.catch_up()
            view.publish_if_waiting()


def watch_cells() -> None:
    """Call `at_cell_end` after each cell, if there are cells; safe to call again."""
    events = getattr(running_shell(), "events", None)
    if events is not None:
        events.register("post_run_cell", at_cell_end)
