"""Readings, the data that each kind of view takes from a run, and their feed of events. Independent of widgets."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable
from typing import Any, ClassVar, NamedTuple, Protocol

from noetic_nb.errors import NoeticConfigError
from noetic_nb.events import ModelCalled, RunEvent
from noetic_nb.runs._events.event_json import EVENT_TYPES
from noetic_nb.runs._events.event_kinds import kinds_of, places_of
from noetic_nb.runs._events.run_log import numbered
from noetic_nb.runs._regulation.decision_words import DecisionRedaction
from noetic_nb.widgets.base._selection import EVERYTHING, Moment


def changes(before: Any, after: Any) -> dict[str, Any] | None:
    """Return the difference between two JSON values, for a page that has the first; None if they are equal.

    Examples
    --------
    >>> changes({"head": "2 calls", "calls": [7, 9]}, {"head": "2 calls", "calls": [7, 9, 4]})
    {'of': {'head': None, 'calls': {'keep': 2, 'then': [4]}}}
    """
    if before == after:
        return None
    if isinstance(before, dict) and isinstance(after, dict):
        return {"of": {at: changes(before[at], new) if at in before else {"is": new} for at, new in after.items()}}
    if isinstance(before, list) and isinstance(after, list):
        same = [one == other for one, other in zip(before, after, strict=False)]
        keep = same.index(False) if False in same else len(same)
        return {"keep": keep, "then": after[keep:]}
    return {"is": after}


class Place(NamedTuple):
    """The position of an event in its run."""

    seq: int
    """Its number among all events of the run."""
    call: int | None = None
    """For a model call of the agent, its number among these calls; None for other events."""


class Reader(Protocol):
    """A receiver of the events of a feed."""

    @property
    def reads(self) -> frozenset[type[Any]] | None:
        """The event types that `take` uses, None for all."""
        ...

    def take(self, event: RunEvent, place: Place) -> dict[str, Any] | None:
        """Read one event; returns a message about it, or None."""
        ...


class Reading(ABC):
    """The data that one kind of view reads from a run: the base class of all readings, with defaults."""

    reads: ClassVar[frozenset[type[Any]] | None] = None
    """The event types that `take` uses, None for all; skipping the others makes long runs fast."""

    texts: DecisionRedaction | None = None
    """Receives events that only it uses; it gets those of a complete recording all at once."""

    snapshot: dict[str, Any]
    """The initial data of a page, as JSON data: always the same object, extended by `take`."""
    is_followed = False
    """Whether pages follow. Until then, events are read without creating messages or pictures."""
    nothing: str = "This recording has nothing to show."
    """Shown instead of ``snapshot["empty"]`` if there is nothing to show and recording has ended."""

    counted: ClassVar[tuple[str, str] | None] = None
    """The event type that a view of a replayed run counts in the known part, and its plural name."""

    @property
    def has_any(self) -> bool:
        """Whether there is something to show, or a known reason why there is not."""
        return True

    asks: Any = None
    """The reader of the events, for a view that only uses its answers: `take` gets the event and its place."""

    def take(self, event: RunEvent, place: Place) -> dict[str, Any] | None:
        """Read one event; returns the message with the changes, or None if nothing changed."""
        answer = None if self.asks is None else self.asks.take(event, place.seq, place.call)
        return self.changed(answer) if answer else None

    def changed(self, answer: Any) -> dict[str, Any] | None:
        """Handle an answer from `asks`; returns the message with the changes, or None if nothing changed."""
        return None

    def growth(self) -> dict[str, Any] | None:
        """Return one message about all events read since the last call, except what messages of `take` have said."""
        return None

    def begin(self) -> None:
        """Bring the snapshot up to date: from now on pages follow, and each message of `take` is sent."""
        self.is_followed = True

    def answer(self, request: dict[str, Any]) -> Any:
        """Answer a page's request for data beyond the snapshot, as JSON data.

        Raises `NoeticConfigError` for an invalid request; the page shows the error.
        """
        raise NoeticConfigError(
            "UNKNOWN_REQUEST", "This view does not know this message.", given=request, hint="Load the page again."
        )

    def asked_first(self) -> list[dict[str, Any]]:
        """Return the requests that a page makes when it has the snapshot, so that the answers can be sent with it."""
        return []

    def selected(self, fields: dict[str, Any]) -> dict[str, Any] | None:
        """Handle a change of the `Selection`; returns a message for the pages, or None."""
        return None

    @abstractmethod
    def to_html(self) -> str:
        """Return the picture as HTML without scripts."""

    @abstractmethod
    def to_text(self) -> str:
        """Return the picture as plain text."""


class Feed:
    """Passes the events within a moment to a reading, each with its place among all events.

    Examples
    --------
    >>> from noetic_nb.events import QualityGiven, Where
    >>> class Qualities:
    ...     reads, all = frozenset({QualityGiven}), []
    ...     def take(self, event, place):
    ...         self.all.append((place.seq, event.quality))
    >>> feed = Feed(Qualities(), Moment(until=1))
    >>> for turn, quality in ((1, 0.5), (2, 0.4), (0, 0.3)):
    ...     feed.take(QualityGiven(Where("t1", "e1", turn), 0.0, quality, "user"))
    >>> feed.reading.all
    [(0, 0.5)]
    """

    def __init__(self, reading: Reader, moment: Moment) -> None:
        self.reading = reading
        self.moment = moment
        self._is_whole = moment == EVERYTHING
        self._seq = 0
        self._calls = 0
        self._over: set[str] = set()

    def take(self, event: RunEvent) -> dict[str, Any] | None:
        """Pass on one event; returns the message of the reading, or None."""
        call = None
        if isinstance(event, ModelCalled) and event.purpose == "agent":
            call = self._calls
            self._calls += 1
        seq = self._seq
        self._seq += 1
        if not (self._is_whole or self._reaches(event)):
            return None
        reads = self.reading.reads
        return self.reading.take(event, Place(seq, call)) if reads is None or type(event) in reads else None

    def read(self, run: object) -> list[RunEvent]:
        """Pass on the events of a run so far, without messages to pages; returns the events."""
        events, numbers, kinds = numbered(run)
        if numbers is None:
            self.take_all(events, kinds)
        else:
            for event, self._seq, self._calls in zip(events, *numbers, strict=True):
                self.take(event)
        return events

    def take_all(self, events: Iterable[RunEvent], kinds: bytes | None = None) -> None:
        """Pass on many events, without messages to pages and faster than one by one. `kinds` are their kinds, if known."""
        events = list(events)
        take, reads, place, is_whole = self.reading.take, self.reading.reads, tuple.__new__, self._is_whole
        # A limited moment needs all events, and calls are counted; otherwise skip event types that the reading does not use.
        wanted: Collection[type[Any]] = EVENT_TYPES if reads is None or not is_whole else {*reads, ModelCalled}
        kinds, texts = kinds_of(events) if kinds is None else kinds, getattr(self.reading, "texts", None)
        if texts is not None and is_whole:
            wanted = {*wanted} - texts.reads
            texts.extend([events[at] for at in places_of(kinds, texts.reads)])
        for at in places_of(kinds, wanted):
            event, call = events[at], None
            kind = type(event)
            if isinstance(event, ModelCalled) and event.purpose == "agent":
                call = self._calls
                self._calls += 1
            if (is_whole or self._reaches(event)) and (reads is None or kind in reads):
                take(event, place(Place, (self._seq + at, call)))  # twice as fast as its own `__new__`
        self._seq += len(events)

    def _reaches(self, event: RunEvent) -> bool:
        last = self.moment.last
        if last is not None:
            where = event.where
            if where.turn > last:
                self._over.add(where.thread_id)
            # An event outside turns belongs to the turn before it, which is past the moment.
            if where.turn <= 0 and where.thread_id and where.thread_id in self._over:
                return False
        return self.moment.reaches(event)
