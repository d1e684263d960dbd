"""What one kind of view reads out of a run, and how the events of a moment get there. Knows nothing of widgets."""

from __future__ import annotations

from typing import Any, NamedTuple

from noetic_nb.errors import NoeticConfigError
from noetic_nb.events import ModelCalled, RunEvent
from noetic_nb.widgets.base.moment import EVERYTHING, Moment

__all__ = ["Feed", "Place", "Reading"]


class Place(NamedTuple):
    """Where an event stands in its run."""

    seq: int
    """Its number among all events of the run, 0 for the first."""
    call: int | None = None
    """For a model call of the agent: its number among these, 0 for the first. None for all other events."""


class Reading:
    """What one kind of view reads out of a run: the base of all readings, and their defaults."""

    snapshot: dict[str, Any]
    """What a page needs at first, as JSON data: always the same object, grown by `take`."""
    nothing: str = "This recording has nothing to show."
    """What is shown instead of ``snapshot["empty"]`` where nothing is there and nothing more is recorded."""

    @property
    def has_any(self) -> bool:
        """Whether there is something to show, or it is known why there is not."""
        return True

    def take(self, event: RunEvent, place: Place) -> dict[str, Any] | None:
        """Read one event; returns the message about what is new, None where nothing is."""
        raise NotImplementedError

    def begin(self) -> None:
        """Bring the snapshot up to date: from now on pages follow, and each message of `take` is sent."""

    def answer(self, request: dict[str, Any]) -> Any:
        """Answer what a page asks beyond the snapshot, as JSON data.

        Raises `NoeticConfigError` for a request that cannot be answered, which the page shows.
        """
        raise NoeticConfigError(
            "UNKNOWN_REQUEST", "This view does not answer that.", given=request, hint="Load the page again."
        )

    def selected(self, fields: dict[str, Any]) -> dict[str, Any] | None:
        """Take a choice of `Selection`; returns a message for the pages, None where there is none."""
        return None

    def to_html(self) -> str:
        """Return the picture as HTML without scripts."""
        raise NotImplementedError

    def to_text(self) -> str:
        """Return the picture as plain text."""
        raise NotImplementedError


class Feed:
    """Hands a reading the events that its moment reaches, each with its place among all events.

    Examples
    --------
    >>> from noetic_nb.events import QualityGiven, Where
    >>> class Qualities(Reading):
    ...     snapshot = {"all": []}
    ...     def take(self, event, place):
    ...         self.snapshot["all"].append((place.seq, event.quality))
    >>> feed = Feed(Qualities(), Moment(until=1))
    >>> for turn, quality in ((1, 0.5), (2, 0.4), (0, 0.3)):
    ...     feed.take(QualityGiven(Where("t1", "e1", turn), 0.0, quality, "user"))
    >>> feed.reading.snapshot
    {'all': [(0, 0.5)]}
    """

    def __init__(self, reading: Reading, moment: Moment) -> None:
        self.reading = reading
        self.moment = moment
        self._is_whole = moment == EVERYTHING
        self._seq = 0
        self._calls = 0
        self._over: set[str] = set()

    def take(self, event: RunEvent) -> dict[str, Any] | None:
        """Hand over one event; returns the message of the reading, None where it has none."""
        if isinstance(event, ModelCalled) and event.purpose == "agent":
            place = Place(self._seq, self._calls)
            self._calls += 1
        else:
            place = Place(self._seq)
        self._seq += 1
        return self.reading.take(event, place) if self._is_whole or self._reaches(event) else None

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
