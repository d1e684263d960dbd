"""Schedule the reading of events: beside the agent, a little at a time while it works, the rest as soon as it waits.

An event only tells that there is news. One thread reads it, for all views of a kernel: some 1 % of the time while
others keep the processor busy, and without a pause once they do not. A long backlog is read as a run is opened. Whoever asks
a view for something reads first what it has not read yet, and so does the end of a cell. Where there are no threads, events
are read as they come.
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

# Events that follow each other closely are read together, and nobody sees a picture that is so much late.
GATHER_S: Final = 0.03
# While others keep the processor busy: so long of this thread's own time, then pauses until they wait, ten at most.
SLICE_S: Final = 0.002
PAUSE_S: Final = 0.018
# Others are taken to wait when they use less than half of so long a moment.
LOOK_S: Final = 0.002
# A thread that has nothing to read for so long ends; the next news start another.
IDLE_S: Final = 5.0
# So many events are handed to all views before the next ones, so that no view runs ahead.
CHUNK: Final = 32
# Once others wait, a longer backlog is read as a run is opened: in a quarter of the time, and pages are sent everything once.
BACKLOG: Final = 1_000
# Enough of this thread's own time for a whole backlog.
QUIET_S: Final = 10.0


def has_time(until: float) -> bool:
    """Tell whether a moment of `thread_time` leaves more than a slice."""
    return until - thread_time() > SLICE_S


class Stale(Protocol):
    """Something that has news to read."""

    is_awake: bool
    """Whether it is in line to be read."""

    def read_some(self, until: float) -> bool:
        """Read until there is no more, or `thread_time` is past a moment; returns whether there is no more."""
        ...

    def catch_up(self) -> None:
        """Read everything now."""
        ...


class Readings:
    """Reads stale views one after the other, in one thread that starts when it is needed and ends when it is idle."""

    def __init__(self, *, idle_s: float = IDLE_S, has_threads: bool = True) -> None:
        self.has_threads = has_threads
        self._idle_s = idle_s
        self._stale: deque[tuple[contextvars.Context, Stale]] = deque()
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None

    def wake(self, stale: Stale) -> None:
        """Put something in line, once until it has been read."""
        stale.is_awake = True
        if self.has_threads:
            with self._changed:
                # The context says which message of the kernel the news belong to.
                self._stale.append((contextvars.copy_context(), stale))
                if self._thread is not None:
                    self._changed.notify_all()
                    return
                self._thread = threading.Thread(target=self._run, name="noetic_nb readings", daemon=True)
                try:
                    self._thread.start()
                    return
                except RuntimeError:  # no threads here
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
            time.sleep(GATHER_S)
            is_quiet = False
            while not self._slice(thread_time() + (QUIET_S if is_quiet else SLICE_S)):
                is_quiet = any(_others_wait() for _ in range(10))

    def _slice(self, until: float) -> bool:
        """Read until `thread_time` is past a moment; returns whether there is no more."""
        for _ in range(len(self._stale)):
            context, stale = self._stale.popleft()
            # First: what comes from here on puts it in line again.
            stale.is_awake = False
            try:
                is_done = context.run(stale.read_some, until)
            except Exception:
                log.exception("What views have not read could not be read.")
                continue
            if not is_done and not stale.is_awake:
                stale.is_awake = True
                self._stale.append((context, stale))
        return not self._stale


def _others_wait() -> bool:
    """Pause; returns whether others waited at the end of it."""
    time.sleep(PAUSE_S)
    start = time.process_time()
    time.sleep(LOOK_S)
    return time.process_time() - start < LOOK_S / 2


READINGS: Final = Readings()
"""Those of this kernel."""


class Follows(Protocol):
    """A view that follows a run."""

    def take(self, event: RunEvent) -> None:
        """Take an event that is to be read later."""
        ...

    def read_some(self, until: float) -> bool:
        """Read some of the pending events, as `Stale`."""
        ...

    def catch_up(self) -> None:
        """Read all that was taken now."""
        ...


class Follower:
    """Follows one run for all views of it, whose events wait here until they are read.

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
        # Of views that may be collected while they follow: the view itself, and what takes events for it.
        self._views: tuple[tuple[weakref.ref[Any], Any], ...] = ()
        # Under this one nothing is called but what takes an event: a view may be collected, and leave, anywhere.
        self._lock = threading.RLock()
        self._joining = threading.Lock()

    def join(self, view: Follows, take: Callable[[RunEvent], None]) -> Callable[[], object]:
        """Send a view all future events until it is gone; returns a function that ends this, which may be called again."""
        entry = (weakref.ref(view), weakref.WeakMethod(take))
        with self._joining:
            with self._lock:
                self.hand_out()  # what came before is not for this one
                self._views = (*self._views, entry)
            if self._cursor is None:
                self._cursor = self.run._follow(self._woken)

        def leave() -> None:
            with self._lock:
                self._views = tuple([each for each in self._views if each is not entry])
            self.end_if_alone()

        ended = weakref.finalize(view, leave)
        ended.atexit = False
        return ended

    def end_if_alone(self) -> None:
        """Follow the run no longer where all views have left."""
        # Whoever finds someone joining leaves it: a view may be collected, and close, in the middle of that.
        if not self._views and self._cursor is not None and self._joining.acquire(blocking=False):
            try:
                if not self._views and self._cursor is not None:
                    cursor, self._cursor = self._cursor, None
                    cursor.leave()
            finally:
                self._joining.release()

    def _woken(self) -> None:  # all that an agent waits for
        if not self.is_awake:
            READINGS.wake(self)

    @property
    def _behind(self) -> int:
        return 0 if self._cursor is None else self._cursor.behind

    def hand_out(self, most: int | None = None) -> bool:
        """Hand waiting events, so many at most, to the views, which do not read them yet; returns whether these are all."""
        with self._lock:
            cursor = self._cursor
            if cursor is None:
                return True
            takes = [take for _, found in self._views if (take := found()) is not None]
            for event in cursor.take(most):
                for take in takes:
                    take(event)
            return not cursor.behind

    def read_some(self, until: float) -> bool:
        """Read until there is no more, or `thread_time` is past a moment; returns whether there is no more."""
        while True:
            is_all = self.hand_out(None if self._behind > BACKLOG and has_time(until) else CHUNK)
            if not all([view.read_some(until) for view in self.views]):  # noqa: C419  # each of them
                return False
            if is_all:
                self.end_if_alone()
                return True
            if thread_time() >= until:
                return False

    @property
    def views(self) -> list[Any]:
        """The views that follow and are still there, each once."""
        return list(dict.fromkeys(view for ref, _ in self._views if (view := ref()) is not None))

    def catch_up(self) -> None:
        """Read everything now."""
        self.hand_out()
        for view in self.views:
            view.catch_up()


_FOLLOWERS: Final[weakref.WeakValueDictionary[int, Follower]] = weakref.WeakValueDictionary()
_MAKING: Final = threading.Lock()


def follower_of(run: Any) -> Follower:
    """Return the follower of a run, one for all its views; it lives as long as one of them does."""
    with _MAKING:
        found = _FOLLOWERS.get(id(run))
        if found is None or found.run is not run:
            found = _FOLLOWERS[id(run)] = Follower(run)
        return found


def at_cell_end(*_result: Any) -> None:
    """Have all views read and show everything: the end of a cell is the last moment at which an executed notebook takes it."""
    # Each once: one that follows hundreds of runs reads them all when it catches up.
    for view in dict.fromkeys(view for follower in list(_FOLLOWERS.values()) for view in follower.views):
        if view.is_shown:
            view.catch_up()
            view.publish_if_waiting()


def watch_cells() -> None:
    """Call `at_cell_end` where there are cells; a second time changes nothing."""
    events = getattr(running_shell(), "events", None)
    if events is not None:
        events.register("post_run_cell", at_cell_end)
