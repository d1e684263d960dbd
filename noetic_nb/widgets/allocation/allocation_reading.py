"""Read the token allocation out of a run, and answer requests of pages. Knows nothing of widgets."""

from __future__ import annotations

from typing import Any, Final

from noetic_nb.errors import NoeticConfigError
from noetic_nb.events import (
    ModelCalled,
    RunEvent,
)
from noetic_nb.runs.palette import ink_on, layer_colour
from noetic_nb.runs.plain_text import sendable
from noetic_nb.runs.requests.model_calls import NO_PLANS, Calls
from noetic_nb.runs.requests.prefix_reuse import CacheReader, PrefixReuse
from noetic_nb.runs.requests.recorded_requests import RequestIndex
from noetic_nb.runs.requests.sent_request import RecordedRequest
from noetic_nb.widgets.allocation.allocation_picture import COLUMNS, EMPTY, NOTE, call_data, static_html, static_text
from noetic_nb.widgets.allocation.call_bars import BROKE_PATH, LOOKS, fixed_parts
from noetic_nb.widgets.allocation.call_caching import NO_CACHING, CallCaching, caching_of
from noetic_nb.widgets.allocation.call_items import items_of
from noetic_nb.widgets.allocation.call_strip import add_bar, bar_of, new_strip, strip_of
from noetic_nb.widgets.allocation.what_if import settings_of, what_if_data
from noetic_nb.widgets.base.feed import Place, Reading
from noetic_nb.widgets.base.moment import EVERYTHING, Moment

__all__ = ["AllocationReading"]

# Older calls are fetched when they are looked at; a page without a kernel has these.
CALLS_KEPT: Final = 100
# Inside another view, whose page always has a kernel: those that someone steps back through first.
CALLS_HOSTED: Final = 8


class AllocationReading(Reading):
    """The model calls of a run as the page needs them; those that `moment` shows.

    Examples
    --------
    >>> AllocationReading().to_text()
    'Token allocation. No model call yet. Each call appears here as soon as the agent sends one.'
    """

    reads = RequestIndex.reads
    nothing = "{part} has no model calls."

    def __init__(self, moment: Moment = EVERYTHING, *, calls_kept: int = CALLS_KEPT) -> None:
        """`calls_kept` of the newest calls are drawn before someone looks at them."""
        self.moment = moment
        self._shows_all = moment == EVERYTHING
        self._calls_kept = calls_kept
        # Until pages follow, nothing is drawn: of the older calls of a long run no picture is ever made.
        self._is_followed = False
        self.calls = Calls()
        self.index = RequestIndex()
        self._cache = CacheReader()
        # By the place among the drawn calls; None where the run does not have all of the request.
        self._reuse: list[PrefixReuse | None] = []
        self.shown = -1
        self._next = 0
        # By the place among the drawn calls: that among all requests, and the other way round.
        self._drawn: list[int] = []
        self._at: dict[int, int] = {}
        # By the place among the drawn calls: the number among the agent's model calls, None for one that was never sent.
        self._numbers: list[int | None] = []
        # By execution, the call that is under way.
        self._open: dict[tuple[str, str], int] = {}
        # By the number among the agent's model calls of the run.
        self._by_call: dict[int, int] = {}
        # Everything read so far, grown in place: the widget syncs this very dict.
        self.snapshot: dict[str, Any] = {
            "empty": EMPTY,
            "note": NOTE,
            "looks": LOOKS,
            "fixed": fixed_parts(),
            "columns": list(COLUMNS),
            "broke": BROKE_PATH,
            "layers": [],
            "first": 0,
            "calls": [],
            "strip": new_strip(),
        }

    @property
    def has_any(self) -> bool:
        """Whether there is something to show, or it is known why there is not."""
        return bool(self.calls.all) or self.snapshot["empty"] == NO_PLANS

    def take(self, event: RunEvent, place: Place) -> dict[str, Any] | None:
        """Read one event; returns the message about a new call."""
        found = self.index.take(event, seq=place.seq, call=place.call)
        if isinstance(event, ModelCalled) and place.call is not None:
            self._next = place.call + 1
        reuse = self._cache.read(event, None if found is None else self.index.requests[found])
        if not (self._shows_all or self.moment.shows(event.where)):
            return None
        if not self.calls.read(event):
            if found in self._at and isinstance(event, ModelCalled):
                self._by_call[place.call or 0] = self._at[found]
                self._open.pop((event.where.thread_id, event.where.execution_id), None)
                placed = self._placed(self._at[found], place.call)
                return placed if self.calls.ended is None else self._billed(self.calls.ended, place.call)
            if not self.calls.lacks_plans or self.snapshot["empty"] == NO_PLANS:
                return None
            self.snapshot["empty"] = NO_PLANS
            return {"type": "empty", "text": NO_PLANS}
        assert found is not None
        at = len(self._drawn)
        self._reuse.append(reuse)
        self._at[found] = at
        self._drawn.append(found)
        key = event.where.thread_id, event.where.execution_id
        # A request that was followed by another without an answer was never sent: it is no model call.
        lost, self._open[key] = self._open.get(key), at
        if lost is not None:
            self._placed(lost, None)
        # A page colours layers by their place, so it needs to know new ones before the call that names them.
        # Where several requests are under way, `_placed` mends the number when one has ended.
        self._numbers.append(self._next + self.index.under_way - 1)
        if not self._is_followed:
            return None
        known = len(self.snapshot["layers"])
        fresh = self._layers(known)
        bar = bar_of(self.calls, at)
        self.snapshot["layers"].extend(fresh)
        add_bar(self.snapshot["strip"], bar)
        data = self._drawn_call(at)
        self.snapshot["calls"].append(data)
        if len(self.snapshot["calls"]) > self._calls_kept:
            del self.snapshot["calls"][0]
            self.snapshot["first"] += 1
        message = {"type": "call", "at": at, "layersAt": known, "layers": fresh, "call": data, "bar": bar}
        return message if lost is None else {**message, "lost": lost}

    def begin(self) -> None:
        """Draw the newest calls, and the strip of all: from now on pages follow."""
        self._is_followed = True
        count = len(self._drawn)
        first = max(0, count - self._calls_kept)
        self.snapshot["layers"] = self._layers(0)
        self.snapshot["first"] = first
        self.snapshot["calls"] = [self._drawn_call(at) for at in range(first, count)]
        self.snapshot["strip"] = strip_of(self.calls, 0, count - 1)

    def _drawn_call(self, at: int) -> dict[str, Any]:
        thread = sendable(self.request(at).where.thread_id)
        picture = call_data(self.calls.all[at], self.calls.order, self.caching(at))
        return {"thread": thread, "place": self._numbers[at], **picture}

    def _placed(self, at: int, place: int | None) -> dict[str, Any] | None:
        self._numbers[at] = place
        if not self._is_followed:
            return None
        kept = at - self.snapshot["first"]
        if kept < 0 or self.snapshot["calls"][kept]["place"] == place:
            return None
        self.snapshot["calls"][kept]["place"] = place
        return {"type": "place", "at": at, "place": place}

    def _billed(self, at: int, place: int | None) -> dict[str, Any] | None:
        """Draw a call again, with the tokens it was billed for."""
        self._numbers[at] = place
        if not self._is_followed:
            return None
        kept = at - self.snapshot["first"]
        if kept < 0:
            return None
        before = self.snapshot["calls"][kept]
        self.snapshot["calls"][kept] = data = self._drawn_call(at)
        changed = {name: value for name, value in data.items() if before[name] != value}
        return {"type": "billed", "at": at, "call": changed}

    def _layers(self, known: int) -> list[list[str]]:
        """Return the layers after those that pages know: name, colour, and text colour."""
        fills = {name: layer_colour(number) for name, number in list(self.calls.order.items())[known:]}
        return [[name, fill, ink_on(fill)] for name, fill in fills.items()]

    def request(self, at: int) -> RecordedRequest:
        """Return the request of a drawn call."""
        return self.index.requests[self._drawn[at]]

    def caching(self, at: int) -> CallCaching:
        """Return how caching affects a drawn call; nothing where none is drawn."""
        return caching_of(self._reuse[at], self.calls) if self._reuse else NO_CACHING

    def at_of(self, fields: dict[str, Any]) -> int | None:
        """Return which drawn call someone chose; the first of the turn where only a turn was, None where there is none."""
        call, turn, thread = fields["call"], fields["turn"], fields["thread_id"]
        if call is not None or turn is None:
            return self._by_call.get(call)
        for at in range(len(self._drawn)):
            where = self.request(at).where
            if where.turn == turn and thread in (None, where.thread_id):
                return at
        return None

    def answer(self, request: dict[str, Any]) -> Any:
        """Answer a page: a call, a strip, the items of a call, or the effect of other budgets on it."""
        what, order = request.get("what"), self.calls.order
        if what == "strip":
            first, last = self._whole(request, "first"), self._whole(request, "last")
            return strip_of(self.calls, min(first, last), max(first, last))
        if what in ("call", "items", "settings", "what_if"):
            at = self._whole(request, "at")
            recorded = self.request(at)
            if what == "call":
                return {
                    "thread": sendable(recorded.where.thread_id),
                    "place": recorded.place,
                    **call_data(self.calls.all[at], order, self.caching(at)),
                }
            if what == "items":
                return items_of(recorded, self.calls)
            if what == "settings":
                return settings_of(recorded, self.calls)
            return what_if_data(recorded, self.calls, self.calls.all[at], request)
        return super().answer(request)

    def _whole(self, request: dict[str, Any], name: str) -> int:
        number = request.get(name)
        if isinstance(number, bool) or not isinstance(number, int) or not 0 <= number < len(self._drawn):
            raise NoeticConfigError(
                "UNKNOWN_CALL", "The view shows no such call.", given=number, hint=f"It shows {len(self._drawn)}."
            )
        return number

    def to_html(self) -> str:
        """Return the shown call as HTML without scripts."""
        shown, order, caching = self.shown, self.calls.order, self.caching(self.shown)
        return static_html(self.calls.all, shown, order, self.snapshot["empty"], self.snapshot["strip"], caching)

    def to_text(self) -> str:
        """Return the shown call as plain text."""
        shown, order, caching = self.shown, self.calls.order, self.caching(self.shown)
        return static_text(self.calls.all, shown, order, self.snapshot["empty"], caching)
