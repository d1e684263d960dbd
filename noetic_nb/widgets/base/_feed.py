"""The readings of views: the data that one kind of view takes from a run, and how events reach it. Knows nothing of widgets."""

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
    """Return how JSON data became others, for a page that has the former; None if they are equal.

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
    """Where an event stands in its run."""

    seq: int
    """Its number among all events of the run, 0 for the first."""
    call: int | None = None
    """For a model call of the agent: its number among these, 0 for the first. None for all other events."""


class Reader(Protocol):
    """A receiver of the events of a feed."""

    @property
    def reads(self) -> frozenset[type[Any]] | None:
        """The types of the events that `take` has a use for, None for all."""
        ...

    def take(self, event: RunEvent, place: Place) -> dict[str, Any] | None:
        """Read one event; returns a message about it, or None if there is none."""
        ...


class Reading(ABC):
    """The data that one kind of view reads out of a run: the base of all readings, and their defaults."""

    reads: ClassVar[frozenset[type[Any]] | None] = None
    """The types of the events that `take` has a use for, None for all: most events of a long run are of no use to one view."""

    texts: DecisionRedaction | None = None
    """What takes events of no other use to it; of a recording that is there it has them all at once."""

    snapshot: dict[str, Any]
    """What a page needs at first, as JSON data: always the same object, grown by `take`."""
    is_followed = False
    """Whether pages follow. Until they do, events are read without messages, and no picture is made that nobody sees."""
    nothing: str = "This recording has nothing to show."
    """What is shown instead of ``snapshot["empty"]`` where nothing is there and nothing more is recorded."""

    counted: ClassVar[tuple[str, str] | None] = None
    """The kind of events that a view of a replayed run counts in the part that is known, and their name in the plural."""

    @property
    def has_any(self) -> bool:
        """Whether there is something to show, or it is known why there is not."""
        return True

    asks: Any = None
    """What reads the events where the view only asks for its answers: `take` with the event and its place."""

    def take(self, event: RunEvent, place: Place) -> dict[str, Any] | None:
        """Read one event; returns the message with the changes, or None if nothing changed."""
        answer = None if self.asks is None else self.asks.take(event, place.seq, place.call)
        return self.changed(answer) if answer else None

    def changed(self, answer: Any) -> dict[str, Any] | None:
        """Take an answer of what it `asks`; returns the message with the changes, or None if nothing changed."""
        return None

    def begin(self) -> None:
        """Bring the snapshot up to date: from now on pages follow, and each message of `take` is sent."""
        self.is_followed = True

    def answer(self, request: dict[str, Any]) -> Any:
        """Answer a request of a page beyond the snapshot, as JSON data.

        Raises `NoeticConfigError` for a request that cannot be answered, which the page shows.
        """
        raise NoeticConfigError(
            "UNKNOWN_REQUEST", "This view does not know this message.", given=request, hint="Load the page again."
        )

    def asked_first(self) -> list[dict[str, Any]]:
        """Return the requests that a page makes as soon as it has the snapshot, so that the answers can go with it."""
        return []

    def selected(self, fields: dict[str, Any]) -> dict[str, Any] | None:
        """Take a choice of `Selection`; returns a message for the pages, or None if there is none."""
        return None

    @abstractmethod
    def to_html(self) -> str:
        """Return the picture as HTML without scripts."""

    @abstractmethod
    def to_text(self) -> str:
        """Return the picture as plain text."""


class Feed:
    """Hands a reading the events that its moment reaches, each with its place among all events.

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
        """Hand over one event; returns the message of the reading, or None if it has none."""
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
        """Hand over the events of a run so far, of which no page is told; returns them."""
        events, numbers, kinds = numbered(run)
        if numbers is None:
            self.take_all(events, kinds)
        else:
            for event, self._seq, self._calls in zip(events, *numbers, strict=True):
                self.take(event)
        return events

    def take_all(self, events: Iterable[RunEvent], kinds: bytes | None = None) -> None:
        """Hand over many events, of which no page is told: quicker than one by one. `kinds` are theirs, where known."""
        events = list(events)
        take, reads, place, is_whole = self.reading.take, self.reading.reads, tuple.__new__, self._is_whole
        # A moment is told by events of all kinds, calls are counted, and nothing else is looked at that nobody reads.
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
                take(event, place(Place, (self._seq + at, call)))  # in half the time that its own `__new__` takes
        self._seq += len(events)

    def _reaches(self, event: RunEvent) -> bool:
        last = self.moment.last
        if last is not None:
            where = event.where
            if where.turn > last:
                self._over.add(where.thread_id)
            # What is outside of turns belongs to the turn before it, which is past the moment.
            if where.turn <= 0 and where.thread_id and where.thread_id in self._over:
                return False
        return self.moment.reaches(event)
