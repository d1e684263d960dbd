"""The events of a run while it grows: how they come, who is told of them, and what stays.

Most come as rows, of which events are made when somebody reads. Who listens gets each event as it comes; who follows is told
once that there is news, until events are made. Where a run has a bound, a keeper decides which old turns go.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Sequence
from itertools import compress
from sys import maxsize
from typing import Any, Final, TypeAlias

from noetic_nb.events import RunEvent, TurnCompleted
from noetic_nb.late_events import Row, event_of, place_of
from noetic_nb.redact import safe_logger
from noetic_nb.runs.events.event_codec import PLAIN_TYPES, settled
from noetic_nb.runs.events.kept_events import Keeper
from noetic_nb.runs.events.numbering import Numbering, Numbers
from noetic_nb.runs.events.unread_events import LEAST_PARTS, UnreadEvents
from noetic_nb.runs.turns import TurnBook

__all__ = ["GrowingEvents"]

Listener: TypeAlias = Callable[[RunEvent], None]

_LOG: Final = safe_logger("noetic_nb.runs")


class _Follower:
    """What is woken when an event has come that is the first since events were made, and takes events when they are."""

    __slots__ = ("take", "wake")

    def __init__(self, wake: Callable[[], object], take: Callable[[list[RunEvent]], object]) -> None:
        self.wake, self.take = wake, take


class GrowingEvents:
    """Events in the order in which they were added, from any thread; a `Run` is these with a name, and all that is read of them.

    Parameters
    ----------
    run_id : str
        The name of the run.
    events : list of RunEvent
        What it begins with: settled ones, and the list is its own from now on.

    Examples
    --------
    >>> from noetic_nb.events import QualityGiven, Where
    >>> events = GrowingEvents("demo", [])
    >>> leave = events.subscribe(lambda event: print(event.kind))
    >>> events.append(QualityGiven(Where("t1", "e1", 1), 5.0, 0.25, "grader"))
    quality_given
    0
    """

    def __init__(self, run_id: str, events: list[RunEvent]) -> None:
        self.run_id = run_id
        self._read = events
        # What came since somebody read, in order: events, and rows of events that nobody has made yet.
        self._unread = UnreadEvents()
        self._parts: Final = self._unread.parts
        self._keeper: Keeper | None = None
        # Whether those who follow are to be told of the next event. With so many parts of unread ones there is more to do than
        # to add an event, and with so many there may be as many as its keeper looks at.
        self._is_armed = True
        self._look_at = self._full_at = maxsize
        # Events that came since its keeper looked, and are no rows.
        self._single = 0
        self._listen([])
        self._attached: list[tuple[object, Callable[[], None]]] = []
        # Reentrant, because a listener may read the run it listens to.
        self._lock = threading.RLock()
        self._book = TurnBook()
        self._numbers: Numbering | None = None

    # How they are held

    @property
    def _events(self) -> list[RunEvent]:
        """All events; those that are rows still are made."""
        if self._unread:
            self.make_events()
        return self._read

    def make_events(self, most: int | None = None) -> bool:
        """Make events of rows, of the oldest that nobody has read and so many at most; returns whether none is left."""
        with self._lock:
            # First: of what comes from here on, those who follow are told.
            self._is_armed = True
            self._expect()
            made = self._unread.take(most)
            self._read += made
            for follower in self._followers:
                follower.take(made)
            self._expect()
            return not self._unread

    def _expect(self) -> None:
        """Take note of when something is to be done but to add an event."""
        keeper = self._keeper
        if keeper is not None:
            # Not by counting, which takes as long as what a keeper does: so many of them might be there.
            place, count = self._unread.counted
            most = keeper.look_at - len(self._read) - count
            self._full_at = place + LEAST_PARTS * most - (LEAST_PARTS - 1) * self._single
        if self._told or (self._is_armed and self._followers):
            self._look_at = 0
        elif keeper is None:
            self._look_at = maxsize
        else:
            self._look_at = 0 if keeper.saves else self._full_at - LEAST_PARTS

    def parts(self, start: int) -> list[tuple[Sequence[Any], int]]:
        """Return what it has from an event on, as it is held: lists and a place in each, from which on there is nothing else.

        There are events, and in the last list, which may grow meanwhile, parts of rows that nobody has read. It is for who holds
        the lock of the run, as a keeper does.
        """
        count = len(self._read)
        unread = self._parts, self._unread.place_of(max(0, start - count))
        return [(self._read, start), unread] if start < count else [unread]

    def note_taken(self, count: int, place: int) -> None:
        """Take note that a keeper has taken so many events in all, up to a place in the last of `parts`."""
        self._unread.note(place, count - len(self._read))

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
        return self._add(event, is_numbered=True)

    def note_event(self, event: RunEvent) -> None:
        """Add an event as `append` does, in less time, as what nobody has read need not be counted."""
        self._add(event, is_numbered=False)

    def _add(self, event: RunEvent, *, is_numbered: bool) -> int:
        """Add an event; returns its number, or -1 where nobody asks for it."""
        kind, number = type(event), -1
        if kind not in PLAIN_TYPES:
            event = settled(event)
        with self._lock:
            if is_numbered:
                number = len(self._read) + self._unread.add(event)
            else:
                self._parts.append(event)
            self._single += 1
            self._full_at -= LEAST_PARTS - 1
            self._look_at -= LEAST_PARTS - 1
            keeper = self._keeper
            # What happens in the middle of a turn is looked at when it ends: it is to be recorded quickly.
            if keeper is not None and (
                len(self._parts) >= self._full_at
                or (not keeper.has_room and (kind is TurnCompleted or place_of(event.where) != keeper.middle))
            ):
                self._keep(keeper.take())
                number = len(self._read) + self._unread.count() - 1 if is_numbered else -1
                self._expect()
            told, followers = self._told, self._to_wake()
            if followers:
                self._expect()
        # Called outside the lock: a listener may wait for a thread that appends.
        for listener in told:
            try:
                listener(event)
            except Exception:
                # What watches a run must not break it, and a broken watcher must not fail again at every event.
                _LOG.exception("A listener of %r failed and was removed; the run goes on.", self)
                self._forget(listener)
        for follower in followers:
            follower.wake()
        return number

    def note_row(self, row: Row) -> None:
        """Add an event that is made when somebody reads it; who listens is one who reads. Raises nothing."""
        # Without the lock: the list is always the same, and under it only what stands in front is taken off.
        parts = self._parts
        if len(parts) < self._look_at:  # nearly always
            parts.extend(row)
        else:
            self._note_and_look(row)

    def _note_and_look(self, row: Row) -> None:
        """Add an event where there is more to do than that."""
        try:
            if self._told:
                self.note_event(event_of(row))
                return
            parts, keeper = self._parts, self._keeper
            parts.extend(row)
            if keeper is not None and (len(parts) >= self._full_at or (keeper.saves and row[1] != keeper.middle)):
                with self._lock:
                    # Another thread may have had it taken meanwhile.
                    if len(parts) >= self._full_at or (keeper.saves and row[1] != keeper.middle):
                        self._keep(keeper.take())
                    self._expect()
            if self._is_armed and self._followers:
                with self._lock:
                    followers = self._to_wake()
                    self._expect()
                for follower in followers:
                    follower.wake()
        except Exception:
            _LOG.exception("An event was not recorded; %r goes on without it.", self.run_id)

    def _to_wake(self) -> Sequence[_Follower]:
        """Return those who are to be told of an event that has come: nobody, where they know that there is news."""
        if not self._is_armed:
            return ()
        self._is_armed = False
        return self._followers

    def extend(self, events: Iterable[RunEvent]) -> None:
        """Add events in their order, each as `append` does.

        Raises
        ------
        NoeticConfigError
            ``INVALID_RUN_EVENT`` if one is not an event; then none is added.
        """
        made = [event if type(event) in PLAIN_TYPES else settled(event) for event in events]
        with self._lock:
            if self._keeper is None and not self._listeners:  # nobody looks at one after the other
                self._parts.extend(made)
                return
        for event in made:
            self.append(event)

    # What stays

    def _keep(self, stays: Sequence[bool] | None) -> None:
        """Keep the events that stay, None for all; a new list, so that whoever iterates over the old one loses nothing."""
        self._single = 0
        if stays is not None:
            if self._followers:
                self.make_events()  # who follows has what goes
            if self._numbers is None:
                self._numbers = Numbering()
            # Of what stays, numbers are given when somebody asks for them.
            self._number(bytes(stays).rfind(False) + 1)
            self._numbers.keep(stays)
            # Rows stay rows; what has come meanwhile stays.
            count = len(self._read)
            self._unread.keep(stays[count:])
            self._read = list(compress(self._read, stays))
            self._book = TurnBook()

    def _number(self, most: int | None = None) -> Numbering | None:
        """Give numbers to the events that have none yet, or only to the first so many; where events have numbers."""
        if self._numbers is not None:
            with self._lock:
                for parts, place in self.parts(len(self._numbers.seqs)):
                    # Of the second list none before all of the first have theirs.
                    left = None if most is None else max(0, most - len(self._numbers.seqs))
                    self._numbers.add(parts, place, left)
        return self._numbers

    @property
    def numbers(self) -> Numbering | None:
        """The numbers that the events had when they were added; None while no turns were dropped: then they are their places."""
        return self._number()

    def numbered(self) -> tuple[list[RunEvent], Numbers | None]:
        """Return the events so far with their numbers, as of one moment; None for numbers that are places."""
        with self._lock:
            events, numbers = list(self._events), self._number()
            if numbers is None:
                return events, None
            return events, (tuple(numbers.seqs[: len(events)]), tuple(numbers.calls[: len(events)]))

    @property
    def keeper(self) -> Keeper | None:
        """What decides what is kept, and where; None keeps everything in memory."""
        return self._keeper

    def keep_with(self, keeper: Keeper) -> None:
        """Let something else decide what is kept from now on, and where."""
        with self._lock:
            self._keeper = keeper
            self._keep(keeper.begin(self._events))
            self._expect()

    # Who is told

    def follow(self, wake: Callable[[], object], take: Callable[[list[RunEvent]], object]) -> Callable[[], object]:
        """Have events made later than they come.

        Parameters
        ----------
        wake : callable
            Is called when an event has come, in the thread that adds it: once, until events are made again.
        take : callable
            Takes the events that have come, in order, when somebody reads the run; it must return at once and not raise.

        Returns
        -------
        callable
            Ends this; calling it again changes nothing.
        """
        follower = _Follower(wake, take)
        with self._lock:
            self.make_events()  # what came before is not for this one
            self._listen([*self._listeners, follower])
        return lambda: self._forget(follower)

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
            self._listen([*self._listeners, relay])
        return lambda: self._forget(relay)

    def _forget(self, listener: Listener | _Follower) -> None:
        with self._lock:
            self._listen([each for each in self._listeners if each != listener])

    def _listen(self, listeners: Sequence[Listener | _Follower]) -> None:
        # New lists with every change, so that they can be gone through meanwhile.
        self._listeners = list(listeners)
        self._followers = [each for each in listeners if isinstance(each, _Follower)]
        self._told = [each for each in listeners if not isinstance(each, _Follower)]
        self._expect()

    # Where they come from

    def attach(self, source: object, connect: Callable[[], Callable[[], None]]) -> bool:
        """Connect a source of events once; a source that is connected already is left as it is.

        Parameters
        ----------
        source : object
            What emits, by identity.
        connect : callable
            Starts the stream and returns what ends it.

        Returns
        -------
        bool
            Whether it was connected now.
        """
        with self._lock:
            if any(known is source for known, _ in self._attached):
                return False
            self._attached.append((source, connect()))
            return True

    def stop_recording(self) -> None:
        """Detach every source and close the file of `autosave`; what was recorded stays. May be repeated."""
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
