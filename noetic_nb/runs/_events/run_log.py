"""The event log of a run: one list, appended to under a lock, with listeners and retention.

A listener is called with each event as it comes. A cursor is a place in the list: its reader is woken once there is something
new, and reads when it likes. Where a run has a bound, a keeper decides which old turns go.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from itertools import compress
from sys import maxsize
from typing import Any, Final, TypeAlias

from noetic_nb.errors import NoeticConfigError, NoeticError
from noetic_nb.events import ItemsAppended, RunEvent
from noetic_nb.items import Item
from noetic_nb.redact import safe_logger
from noetic_nb.runs._events.event_json import EVENT_TYPES, PLAIN_TYPES, settled
from noetic_nb.runs._events.event_view import Events, Keeper
from noetic_nb.runs._events.numbering import Numbering, Numbers
from noetic_nb.runs._turns import TurnBook, TurnSummary

Listener: TypeAlias = Callable[[RunEvent], None]

_LOG: Final = safe_logger("noetic_nb.runs")


class Cursor:
    """The place up to which a reader has read a run. Events that the run drops before they are read are read all the same."""

    __slots__ = ("_dropped", "_place", "_run", "wake")

    def __init__(self, run: GrowingEvents, wake: Callable[[], object]) -> None:
        self._run = run
        self.wake = wake
        self._place = len(run._events)
        self._dropped: deque[RunEvent] = deque()

    @property
    def behind(self) -> int:
        """How many events there are to read."""
        return len(self._dropped) + len(self._run._events) - self._place

    def take(self, most: int | None = None) -> list[RunEvent]:
        """Read the next events, so many at most; the reader is woken by the next that comes."""
        with self._run._lock:
            self._run._to_wake.add(self)
            count = maxsize if most is None else most
            found = [self._dropped.popleft() for _ in range(min(count, len(self._dropped)))]
            more = self._run._events[self._place : self._place + count - len(found)]
            self._place += len(more)
            return found + more

    def leave(self) -> None:
        """Read no more; doing it again changes nothing."""
        with self._run._lock:
            self._run._cursors.discard(self)
            self._run._to_wake.discard(self)

    def _dropping(self, events: Sequence[RunEvent], left: int) -> None:
        self._dropped.extend(events[self._place :])
        self._place = left


class GrowingEvents:
    """Events in the order in which they were added, from any thread; a `Run` is these with a name, and all that is read of them.

    The list of settled events that it begins with is its own from then on.
    """

    def __init__(self, run_id: str, events: list[RunEvent]) -> None:
        self.run_id = run_id
        self._events = events
        self._keeper: Keeper | None = None
        self._listeners: tuple[Listener, ...] = ()
        self._cursors: set[Cursor] = set()
        # Those whose readers do not know yet that there is news.
        self._to_wake: set[Cursor] = set()
        self._attached: list[tuple[object, Callable[[], None]]] = []
        # Reentrant, because a listener may read the run it listens to.
        self._lock = threading.RLock()
        self._book = TurnBook()
        self._numbers: Numbering | None = None

    # What comes

    def append(self, event: RunEvent) -> int:
        """Add an event and call the listeners with it.

        Parameters
        ----------
        event : RunEvent
            Any event; its free data (arguments, states, decisions) is frozen, so that later changes do not reach the run.

        Returns
        -------
        int
            Its ``seq``: the position in the run.

        Raises
        ------
        NoeticConfigError
            ``INVALID_RUN_EVENT`` if it is not an event.
        """
        if type(event) not in PLAIN_TYPES:
            event = settled(event)
        with self._lock:
            self._events.append(event)
            if self._numbers is not None:
                self._numbers.add(event)
            if self._keeper is not None and self._keeper.is_due(event, len(self._events)):
                self._keep(self._keeper.take())
            number, listeners, cursors = len(self._events) - 1, self._listeners, self._to_wake
            if cursors:
                self._to_wake = set()
        # Called outside the lock: a listener may wait for a thread that appends.
        for listener in listeners:
            try:
                listener(event)
            except Exception:
                # What watches a run must not break it, and a broken watcher must not fail again at every event.
                _LOG.exception("A listener of %r failed and was removed; the run goes on.", self)
                self._forget(listener)
        for cursor in cursors:
            cursor.wake()
        return number

    def extend(self, events: Iterable[RunEvent]) -> None:
        """Add events in their order, each as `append` does.

        Raises
        ------
        NoeticConfigError
            ``INVALID_RUN_EVENT`` if one is not an event; then none is added.
        """
        for event in [settled(event) for event in events]:
            self.append(event)

    # What stays

    def _keep(self, stays: Sequence[bool] | None) -> None:
        """Keep the events that stay, None for all; a new list, so that an iteration over the old one loses nothing."""
        if stays is not None:
            before = self._events
            if self._numbers is None:
                self._numbers = Numbering(before)
            self._numbers.keep(stays)
            self._events = list(compress(before, stays))
            for cursor in self._cursors:
                cursor._dropping(before, len(self._events))
            self._book = TurnBook()

    def _numbered(self) -> tuple[list[RunEvent], Numbers | None]:
        """Return the events so far with their numbers, as of one moment; None for numbers that are places."""
        with self._lock:
            numbers = self._numbers
            return list(self._events), None if numbers is None else (tuple(numbers.seqs), tuple(numbers.calls))

    def _keep_with(self, keeper: Keeper) -> None:
        """Use another retention policy from now on."""
        with self._lock:
            self._keeper = keeper
            self._keep(keeper.begin(self._events))

    # Reading

    @property
    def events(self) -> Events:
        """Every event so far, oldest first; an event's place is its ``seq``."""
        return Events(lambda: self._events)  # a view, not a copy: a run is read at every event

    def select(self, *event_types: type[Any]) -> tuple[Any, ...]:
        """Return the events of some types, in order; all of them without an argument.

        Raises
        ------
        NoeticConfigError
            ``UNKNOWN_EVENT_TYPE`` for a type that is no event.
        """
        unknown = [kind for kind in event_types if kind not in EVENT_TYPES]
        if unknown:
            raise NoeticConfigError(
                "UNKNOWN_EVENT_TYPE",
                "Only event types can be selected.",
                given=unknown,
                hint=f"Use {', '.join(kind.__name__ for kind in EVENT_TYPES)} from noetic_nb.events.",
            )
        return tuple([event for event in self._events if not event_types or isinstance(event, event_types)])

    @property
    def turns(self) -> tuple[TurnSummary, ...]:
        """Every turn in short, in the order they began; the last may still be running."""
        with self._lock:
            return self._book.read(self._events)

    @property
    def threads(self) -> tuple[str, ...]:
        """Every thread that has an event, in order of first appearance; an edited rule belongs to none."""
        return tuple(dict.fromkeys([event.where.thread_id for event in self._events if event.where.thread_id]))

    def log(self, thread_id: str) -> list[Item]:
        """Return the items of a thread, rebuilt from the recorded events; positions are those the events refer to.

        Parameters
        ----------
        thread_id : str
            One of `threads`. Of a thread's executions the outermost recorded ones count.

        Returns
        -------
        list of Item
            A new list.

        Raises
        ------
        NoeticConfigError
            ``UNKNOWN_THREAD`` if the run has no such thread.
        NoeticError
            ``tape_missing`` if recording began after items had been appended.
        """
        threads = self.threads
        if thread_id not in threads:
            raise NoeticConfigError(
                "UNKNOWN_THREAD",
                "The run has no such thread.",
                given=thread_id,
                hint=f"It has {', '.join(map(repr, threads)) or 'none yet'}.",
            )
        here = [event for event in self.select(ItemsAppended) if event.where.thread_id == thread_id]
        depth = min((event.where.depth for event in here), default=0)
        items: list[Item] = []
        for event in here:
            if event.where.depth > depth:  # a child's log of its own
                continue
            if event.start > len(items):
                raise NoeticError(
                    "tape_missing",
                    f"Items {len(items)} to {event.start - 1} of thread {thread_id!r} were not recorded.",
                    hint="Attach the run before the thread's first turn; turns that it has dropped are in its "
                    'meta["dropped"].',
                    thread_id=thread_id,
                )
            items[event.start :] = event.items
        return items

    # Who is told

    def _follow(self, wake: Callable[[], object]) -> Cursor:
        """Return a cursor at the end of the run.

        `wake` is called when an event has come, in the thread that adds it: once, until the cursor is read again.
        """
        with self._lock:
            cursor = Cursor(self, wake)
            self._cursors.add(cursor)
            self._to_wake.add(cursor)
        return cursor

    def subscribe(self, listener: Listener) -> Callable[[], None]:
        """Call a function with every event to come, in the thread that appends it.

        Parameters
        ----------
        listener : callable
            Takes the event. If it raises, the error is logged and the listener removed.

        Returns
        -------
        callable
            Ends the subscription; calling it again changes nothing.
        """

        def relay(event: RunEvent) -> None:  # one per subscription: the same function may subscribe twice
            listener(event)

        with self._lock:
            self._listeners = (*self._listeners, relay)
        return lambda: self._forget(relay)

    def _forget(self, listener: Listener) -> None:
        with self._lock:
            self._listeners = tuple([each for each in self._listeners if each != listener])

    # Where they come from

    def _attach(self, source: object, connect: Callable[[], Callable[[], None]]) -> bool:
        """Connect a source of events once and tell whether it was connected now; `connect` returns what ends the stream."""
        with self._lock:
            if any(known is source for known, _ in self._attached):
                return False
            self._attached.append((source, connect()))
            return True

    def stop_recording(self) -> None:
        """Detach every source and close the file of `autosave`; recorded events stay. May be repeated."""
        with self._lock:
            attached, self._attached = self._attached, []
        for _, disconnect in attached:
            disconnect()
        if self._keeper is not None:
            with self._lock:
                self._keeper.close()

    @property
    def is_recording(self) -> bool:
        """Whether something is attached that may add events."""
        return bool(self._attached)
