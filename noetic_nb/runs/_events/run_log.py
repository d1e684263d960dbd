"""The event log of a run: one list, appended to under a lock, with subscribers and retention.

A subscriber is called with each new event. A cursor is a position in the list: its reader is woken once when there are
new events, and reads them when it likes. If the run has a size limit, a keeper decides which old turns to drop. An
event keeps its number for good: views and linked selections refer to decisions and calls by number.
"""

from __future__ import annotations

import threading
from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import compress
from sys import maxsize
from typing import Any, Final, Protocol, TypeAlias, overload

from noetic_nb._core.cards import Card, Table, card_line, card_of, with_card
from noetic_nb.errors import NoeticConfigError, NoeticError
from noetic_nb.events import ItemsAppended, ModelCalled, RunEvent
from noetic_nb.items import Item
from noetic_nb.items._origins import MODEL, Origin, with_origin
from noetic_nb.redact import safe_logger
from noetic_nb.runs._events.event_json import EVENT_TYPES, PLAIN_TYPES, settled
from noetic_nb.runs._events.event_kinds import kinds_of, places_of
from noetic_nb.runs._turns import TurnBook, TurnSummary


class Keeper(Protocol):
    """A retention policy: keeps a run below its size limit, and saves it as it grows."""

    @property
    def problem(self) -> str | None:
        """Why the newest events could not be saved."""
        ...

    def begin(self, events: Sequence[RunEvent], /) -> Sequence[bool] | None:
        """Read the events of the run; returns for each whether to keep it, or None to keep all."""
        ...

    def is_due(self, event: RunEvent, count: int, /) -> bool:
        """Tell whether to call `take` now, after this event, as number `count`, was added."""
        ...

    def take(self) -> Sequence[bool] | None:
        """Read the events added since the last call; must not raise. Returns the same as `begin`."""
        ...

    def close(self) -> None:
        """Save the remaining events, and close the file."""
        ...


@with_card(shown="as HTML")
class Events(Sequence[RunEvent]):
    """The events of a run, read-only; grows with the run. Equal to any sequence of the same events."""

    __slots__ = ("_find",)
    __hash__ = None  # type: ignore[assignment]  # it grows

    def __init__(self, find: Callable[[], list[RunEvent]]) -> None:
        # Looked up each time: a bounded run has a new list after dropping turns.
        self._find = find

    @property
    def _items(self) -> list[RunEvent]:
        return self._find()

    def __len__(self) -> int:
        return len(self._items)

    def __iter__(self) -> Iterator[RunEvent]:
        return iter(self._items)

    @overload
    def __getitem__(self, index: int) -> RunEvent: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[RunEvent, ...]: ...
    def __getitem__(self, index: int | slice) -> RunEvent | tuple[RunEvent, ...]:
        return tuple(self._items[index]) if isinstance(index, slice) else self._items[index]

    def __eq__(self, other: object) -> bool:
        if isinstance(other, Events):
            return self._items == other._items
        if isinstance(other, list | tuple):
            return self._items == list(other)
        return NotImplemented

    def __repr__(self) -> str:
        return f"<{len(self)} events>"

    def _card(self) -> Card:
        rows = (
            (seq, event.kind, event.where.thread_id, event.where.turn, _said(event)) for seq, event in enumerate(self)
        )
        table = Table(("seq", "kind", "thread", "turn", "what"), rows, len(self), "no events yet")
        return Card("Events", facts=[("", f"{len(self):,} event{'' if len(self) == 1 else 's'}")], table=table)


def origin_of_items(event: ItemsAppended) -> Origin | None:
    """Return the origin of logged items if their roles do not imply it, else None."""
    return {"model": MODEL, "step": MODEL, "layer": Origin("layer", event.layer_id)}.get(event.origin)


def named_items(event: ItemsAppended) -> tuple[Item, ...]:
    """Return logged items with explicit origins where their roles do not imply it, for logs that store only the items."""
    origin = origin_of_items(event)
    if origin is None:
        return event.items
    # Calls, answers and reasoning come from a model in any log.
    owned = ("function_call_output",) if event.origin == "model" else ("message", "function_call_output")
    return tuple([with_origin(item, origin) if item["type"] in owned else item for item in event.items])


def _said(event: RunEvent) -> str:
    facts = [fact for fact in card_of(event).facts if fact[0] not in ("where", "t_ms")]
    return card_line(Card("", facts=facts))[1:-1]


Numbers: TypeAlias = tuple[Sequence[int], Sequence[int]]
"""The numbers of some events, and how many calls came before each."""


class Numbering:
    """For each event of a run, in order: its number, and how many of the agent's model calls came before it."""

    def __init__(self, events: Iterable[RunEvent] = ()) -> None:
        self.seqs: list[int] = []
        self.calls: list[int] = []
        self._next = self._calls = 0
        for event in events:
            self.add(event)

    def add(self, event: RunEvent) -> None:
        self.seqs.append(self._next)
        self.calls.append(self._calls)
        self._next += 1
        self._calls += _is_of_agent(event)

    def keep(self, stays: Sequence[bool]) -> None:
        """Remove the events that are dropped; makes new lists, like the event list."""
        self.seqs = [*compress(self.seqs, stays)]
        self.calls = [*compress(self.calls, stays)]

    def place_of(self, seq: int) -> int | None:
        """Return the index of the event with a number, or None if it was dropped or does not exist yet."""
        place = bisect_left(self.seqs, seq)
        return place if place < len(self.seqs) and self.seqs[place] == seq else None


def numbered(run: object) -> tuple[list[RunEvent], Numbers | None, bytes]:
    """Return the events of a run, their sequence numbers, and their kinds; the numbers are None if they equal the indices."""
    of_run = getattr(run, "_numbered", None)
    if of_run is not None:
        return of_run()  # type: ignore[no-any-return]
    events = list(run.events)  # type: ignore[attr-defined]  # any object that holds a run
    return events, None, kinds_of(events)


def placed(run: object, *kinds: type[Any]) -> list[tuple[int, Any]]:
    """Return the events of some kinds in a run, each with its index."""
    events, _, known = numbered(run)
    return [(place, events[place]) for place in places_of(known, kinds)]


def place_of(run: object, seq: int, event: RunEvent | None = None) -> int | None:
    """Return the index of an event, given its sequence number; None if it was dropped or another event is there."""
    events = run.events  # type: ignore[attr-defined]  # any object that holds a run
    numbers: Numbering | None = getattr(run, "_numbers", None)
    place = seq if numbers is None else numbers.place_of(seq)
    if place is None or not 0 <= place < len(events):
        return None
    return place if event is None or events[place] is event else None


def number_at(run: object, place: int) -> int:
    """Return the sequence number of the event at an index of the run."""
    numbers: Numbering | None = getattr(run, "_numbers", None)
    return place if numbers is None else numbers.seqs[place]


def call_at(run: object, place: int) -> int | None:
    """Return the number of the agent's model call that an event belongs to: the last call of its execution up to it."""
    events = run.events  # type: ignore[attr-defined]  # any object that holds a run
    numbers: Numbering | None = getattr(run, "_numbers", None)
    about = events[place].where
    for at in range(place, -1, -1):
        where = events[at].where
        same = (where.execution_id, where.thread_id) == (about.execution_id, about.thread_id)
        if same and _is_of_agent(events[at]):
            return sum(map(_is_of_agent, events[:at])) if numbers is None else numbers.calls[at]
    return None


def _is_of_agent(event: RunEvent) -> bool:
    return isinstance(event, ModelCalled) and event.purpose == "agent"


Listener: TypeAlias = Callable[[RunEvent], None]

_LOG: Final = safe_logger("noetic_nb.runs")


class Cursor:
    """A reader's position in a run. If the run drops events before they are read, the reader still gets them."""

    __slots__ = ("_dropped", "_place", "_run", "wake")

    def __init__(self, run: GrowingEvents, wake: Callable[[], object]) -> None:
        self._run = run
        self.wake = wake
        self._place = len(run._events)
        self._dropped: deque[RunEvent] = deque()

    @property
    def behind(self) -> int:
        """How many events are unread."""
        return len(self._dropped) + len(self._run._events) - self._place

    def take(self, most: int | None = None) -> list[RunEvent]:
        """Read up to `most` of the next events; the next new event wakes the reader again."""
        with self._run._lock:
            self._run._to_wake.add(self)
            count = maxsize if most is None else most
            found = [self._dropped.popleft() for _ in range(min(count, len(self._dropped)))]
            more = self._run._events[self._place : self._place + count - len(found)]
            self._place += len(more)
            return found + more

    def leave(self) -> None:
        """Stop reading; safe to call again."""
        with self._run._lock:
            self._run._cursors.discard(self)
            self._run._to_wake.discard(self)

    def _dropping(self, events: Sequence[RunEvent], left: int) -> None:
        self._dropped.extend(events[self._place :])
        self._place = left


class GrowingEvents:
    """Events in the order of their addition, from any thread; takes ownership of a given list."""

    def __init__(self, run_id: str, events: list[RunEvent]) -> None:
        self.run_id = run_id
        self._events = events
        self._keeper: Keeper | None = None
        self._listeners: tuple[Listener, ...] = ()
        self._cursors: set[Cursor] = set()
        self._to_wake: set[Cursor] = set()  # cursors whose readers do not know about the new events yet
        self._attached: list[tuple[object, Callable[[], None]]] = []
        self._lock = threading.RLock()  # reentrant, because a subscriber may read the run
        self._book = TurnBook()
        self._numbers: Numbering | None = None
        self._kinds = bytearray()

    # Adding events

    def append(self, event: RunEvent) -> int:
        """Add an event and call the subscribers with it.

        Parameters
        ----------
        event : RunEvent
            Any event; its free data (arguments, states, decisions) is frozen, so that later changes do not affect the run.

        Returns
        -------
        int
            Its ``seq``: the position in the run.

        Raises
        ------
        NoeticConfigError
            ``INVALID_RUN_EVENT`` if the object is not an event.
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
        # Called outside the lock: a subscriber may wait for a thread that appends.
        for listener in listeners:
            try:
                listener(event)
            except Exception:
                # A failing subscriber must not break the run, nor fail again at every event.
                _LOG.exception("A listener of %r failed and was removed; the run goes on.", self)
                self._forget(listener)
        for cursor in cursors:
            cursor.wake()
        return number

    def extend(self, events: Iterable[RunEvent]) -> None:
        """Add events in order, as `append` does.

        Raises
        ------
        NoeticConfigError
            ``INVALID_RUN_EVENT`` if an object is not an event; then none is added.
        """
        for event in [settled(event) for event in events]:
            self.append(event)

    # Retention

    def _keep(self, stays: Sequence[bool] | None) -> None:
        """Drop all other events (None: keep all); makes a new list, so that iterations over the old one stay complete."""
        if stays is not None:
            before = self._events
            if self._numbers is None:
                self._numbers = Numbering(before)
            self._numbers.keep(stays)
            self._events = list(compress(before, stays))
            for cursor in self._cursors:
                cursor._dropping(before, len(self._events))
            self._book = TurnBook()
            self._kinds = bytearray()

    def _numbered(self) -> tuple[list[RunEvent], Numbers | None, bytes]:
        """Return a consistent snapshot of the events, their numbers and kinds; the numbers are None if they equal the indices."""
        with self._lock:
            self._kinds += kinds_of(self._events[len(self._kinds) :])
            numbers = None if self._numbers is None else (tuple(self._numbers.seqs), tuple(self._numbers.calls))
            return list(self._events), numbers, bytes(self._kinds)

    def _keep_with(self, keeper: Keeper) -> None:
        with self._lock:
            self._keeper = keeper
            self._keep(keeper.begin(self._events))

    # Reading

    @property
    def events(self) -> Events:
        """Every event so far, oldest first; the index of an event is its ``seq``."""
        return Events(lambda: self._events)  # a view, because copying at every event would be slow

    def select(self, *event_types: type[Any]) -> tuple[Any, ...]:
        """Return the events of some types, in order; without arguments, all events.

        Raises
        ------
        NoeticConfigError
            ``UNKNOWN_EVENT_TYPE`` for a type that is not an event.
        """
        unknown = [kind for kind in event_types if kind not in EVENT_TYPES]
        if unknown:
            hint = f"Use {', '.join(kind.__name__ for kind in EVENT_TYPES)} from noetic_nb.events."
            raise NoeticConfigError("UNKNOWN_EVENT_TYPE", "Only event types can be selected.", given=unknown, hint=hint)
        return tuple([event for _, event in placed(self, *(event_types or EVENT_TYPES))])

    @property
    def turns(self) -> tuple[TurnSummary, ...]:
        """A summary of every turn, in starting order; the last turn may still be running."""
        with self._lock:
            return self._book.read(self._events)

    @property
    def threads(self) -> tuple[str, ...]:
        """Every thread with events, in order of first appearance; the edit of a rule belongs to none."""
        return tuple(dict.fromkeys([event.where.thread_id for event in self._events if event.where.thread_id]))

    def log(self, thread_id: str) -> list[Item]:
        """Return the items of a thread, rebuilt from the recorded events; events refer to these positions.

        Parameters
        ----------
        thread_id : str
            One of `threads`. Only the outermost recorded executions of the thread count.

        Returns
        -------
        list of Item
            A new list. Items that a layer or a step wrote in another role say so in ``origin``.

        Raises
        ------
        NoeticConfigError
            ``UNKNOWN_THREAD`` if the run has no such thread.
        NoeticError
            ``tape_missing`` if recording began after items had been appended.
        """
        threads = self.threads
        if thread_id not in threads:
            hint = f"It has {', '.join(map(repr, threads)) or 'none yet'}."
            raise NoeticConfigError("UNKNOWN_THREAD", "The run has no thread of this name.", given=thread_id, hint=hint)
        here = [event for event in self.select(ItemsAppended) if event.where.thread_id == thread_id]
        depth = min((event.where.depth for event in here), default=0)
        items: list[Item] = []
        for event in here:
            if event.where.depth > depth:  # a child has its own log
                continue
            if event.start > len(items):
                raise NoeticError(
                    "tape_missing",
                    f"Items {len(items)} to {event.start - 1} of thread {thread_id!r} were not recorded.",
                    hint="Attach the run before the thread's first turn; turns that it has dropped are in its "
                    'meta["dropped"].',
                    thread_id=thread_id,
                )
            items[event.start :] = named_items(event)
        return items

    # Subscribers

    def _follow(self, wake: Callable[[], object]) -> Cursor:
        """Return a cursor at the end of the run; `wake` is called once, in the adding thread, when there are new events."""
        with self._lock:
            cursor = Cursor(self, wake)
            self._cursors.add(cursor)
            self._to_wake.add(cursor)
        return cursor

    def subscribe(self, listener: Listener) -> Callable[[], None]:
        """Call a function with every future event, in the thread that appends it.

        Parameters
        ----------
        listener : callable
            Called with the event. If it raises, the error is logged and the listener removed.

        Returns
        -------
        callable
            Ends the subscription; safe to call again.
        """

        def relay(event: RunEvent) -> None:  # one per subscription: the same function may subscribe twice
            listener(event)

        with self._lock:
            self._listeners = (*self._listeners, relay)
        return lambda: self._forget(relay)

    def _forget(self, listener: Listener) -> None:
        with self._lock:
            self._listeners = tuple([each for each in self._listeners if each != listener])

    # Sources

    def _attach(self, source: object, connect: Callable[[], Callable[[], None]]) -> bool:
        """Connect a source of events once; returns whether this call did it. `connect` returns the disconnect function."""
        with self._lock:
            if any(known is source for known, _ in self._attached):
                return False
            self._attached.append((source, connect()))
            return True

    def stop_recording(self) -> None:
        """Detach every source and close the file of `autosave`; recorded events stay. Safe to call again."""
        with self._lock:
            attached, self._attached = self._attached, []
        for _, disconnect in attached:
            disconnect()
        if self._keeper is not None:
            with self._lock:
                self._keeper.close()

    @property
    def is_recording(self) -> bool:
        """Whether any source is attached."""
        return bool(self._attached)
