"""The model calls of a run as data for the page and the static form of the allocation."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from typing import Any, Final

from noetic_nb.errors import NoeticConfigError
from noetic_nb.events import ModelCalled, RunEvent
from noetic_nb.markup import escape, heading
from noetic_nb.plots._context_scene import ContextScene, calls_a_column, columns_of, context_scene, largest
from noetic_nb.plots._item_ribbons import RIBBONS, SERIES, ribbon_scene
from noetic_nb.plots._scene.scene import PAD_PX, Scene, series_data
from noetic_nb.plots._scene.svg import legend_html, to_html
from noetic_nb.runs._palette import ink_on, layer_colour
from noetic_nb.runs._plain_text import count, plain, sendable
from noetic_nb.runs._requests.context_parts import REST, ContextParts, kind_of
from noetic_nb.runs._requests.item_lives import Compactions, ItemLife, compactions_of, context_of, item_lives
from noetic_nb.runs._requests.model_calls import NO_PLANS, Calls
from noetic_nb.runs._requests.prefix_reuse import CacheReader, PrefixReuse
from noetic_nb.runs._requests.recorded_requests import RequestIndex
from noetic_nb.runs._requests.sent_request import RecordedRequest
from noetic_nb.widgets._allocation.allocation_picture import EMPTY, NOTE, call_data, call_html, call_table, call_text
from noetic_nb.widgets._allocation.call_bars import (
    CALL,
    CALL_PX,
    LOOKS,
    NO_CACHING,
    CallCaching,
    caching_of,
    looks_of,
)
from noetic_nb.widgets._allocation.call_changes import (
    OtherBudgets,
    handles_of,
    rows_data,
    rows_of,
    settings_of,
    what_if_data,
)
from noetic_nb.widgets._transcript.call_content import ShownRows
from noetic_nb.widgets.base._feed import Place, Reading
from noetic_nb.widgets.base._selection import EVERYTHING, Moment
from noetic_nb.widgets.base._table import keyed, table

# Calls sent initially: a page requests older ones, a page without a kernel only has these.
CALLS_KEPT: Final = 100
# For pages with a kernel, as inside another view: enough for the first steps back.
CALLS_HOSTED: Final = 8


class AllocationReading(Reading):
    """The model calls of a run within `moment`, as data for a page.

    Examples
    --------
    >>> AllocationReading().to_text()
    'Token allocation. No model call yet. Each call appears here as soon as the agent sends one.'
    """

    counted = "view_assembled", "requests"
    reads = RequestIndex.reads
    nothing = "{part} has no model calls."

    def __init__(self, moment: Moment = EVERYTHING, *, calls_kept: int = CALLS_KEPT, run: Any = None) -> None:
        """Draw `calls_kept` of the newest calls initially; `run` has data beyond the events."""
        self.moment = moment
        self._shows_all = moment == EVERYTHING
        self._calls_kept = calls_kept
        self.calls = Calls()
        self.index = RequestIndex()
        self.run = run
        self.parts = ContextParts(getattr(run, "meta", None))
        self._cache = CacheReader()
        # The rows requested last, because a page opens some of their texts.
        self._rows: tuple[Any, ShownRows] | None = None
        self._bands: Sequence[str] = ()  # of the picture on the page
        self._lives: tuple[Any, list[ItemLife]] | None = None
        # By index of the drawn call; None if the run lacks part of the request. Read when the first call is shown.
        self._reuse: list[PrefixReuse | None] = []
        self._unread: list[tuple[RunEvent, RecordedRequest, bool]] = []
        self.shown = -1
        self._next = 0
        # Maps the index of a drawn call to that among all requests, and back.
        self._drawn: list[int] = []
        self._at: dict[int, int] = {}
        # By index of the drawn call, its number among the agent's model calls; None for a call that was never sent.
        self._numbers: list[int | None] = []
        # By execution, the running call.
        self._open: dict[tuple[str, str], int] = {}
        # By number among the agent's model calls of the run.
        self._by_call: dict[int, int] = {}
        # The first drawn call, or call without a plan, that is new or changed since pages were told.
        self._grown: int | None = None
        # All data read so far, updated in place: the widget syncs this very dict.
        self.snapshot: dict[str, Any] = {
            "empty": EMPTY,
            "note": NOTE,
            "looks": series_data(LOOKS),
            "layer": series_data(dict(zip(("layer", "yielded"), looks_of("$"), strict=True))),
            "layers": [],
            "call": {"key": CALL, "height": CALL_PX},
            "first": 0,
            "calls": [],
            "plain": 0,  # requests of a run without plans
            "picture": None,
            "is_new": False,  # whether the picture has all calls
        }

    @property
    def has_any(self) -> bool:
        return bool(self.calls.all) or self.snapshot["empty"] == NO_PLANS

    def take(self, event: RunEvent, place: Place) -> None:
        """Read one event."""
        found = self.index.take(event, seq=place.seq, call=place.call)
        self.snapshot["is_new"] &= found is None
        if isinstance(event, ModelCalled) and place.call is not None:
            self._next = place.call + 1
        is_shown = self._shows_all or self.moment.shows(event.where)
        is_call = is_shown and self.calls.read(event)
        if found is not None:
            self._unread.append((event, self.index.requests[found], is_call))
        if not is_shown:
            return
        if not is_call:
            if found in self._at and isinstance(event, ModelCalled):
                self._by_call[place.call or 0] = self._at[found]
                self._open.pop((event.where.thread_id, event.where.execution_id), None)
                self._ended(self._at[found], place.call)
            elif found is not None and self.calls.lacks_plans:
                self._grown = self._by_call[place.call or 0] = self.snapshot["plain"]
                self.snapshot["plain"] += 1
                self.snapshot["empty"] = NO_PLANS
            return
        assert found is not None
        at = len(self._drawn)
        if self.snapshot["plain"]:  # an agent continues an imported run: show its own calls
            self.snapshot["plain"] = 0
            self._by_call.clear()
            self.parts = ContextParts(getattr(self.run, "meta", None))
        self._at[found] = at
        self._drawn.append(found)
        key = event.where.thread_id, event.where.execution_id
        # A request that was followed by another without an answer was never sent, so it is not a model call.
        lost, self._open[key] = self._open.get(key), at
        if lost is not None:
            self._ended(lost, None)
        # If several requests are running, `_ended` corrects this number when one ends.
        self._numbers.append(self._next + self.index.under_way - 1)
        self._changed(at)

    def growth(self) -> dict[str, Any] | None:
        """Return the new and changed calls, with the colours of new layers."""
        if self._grown is None or not self.is_followed:
            return None
        data, at, self._grown = self.snapshot, self._grown, None
        if data["plain"]:
            return {"type": "plain", "count": data["plain"], "text": NO_PLANS}
        known = len(data["layers"])
        at = max(at, data["first"])
        del data["calls"][at - data["first"] :]
        self._draw(at)
        at = max(at, data["first"])
        calls = data["calls"][at - data["first"] :]
        return {"type": "calls", "at": at, "layersAt": known, "layers": data["layers"][known:], "calls": calls}

    def begin(self) -> None:
        super().begin()
        self._grown = None
        self.snapshot |= {"picture": self.picture(range(self.total)), "is_new": True}
        kept = CALLS_HOSTED if self.snapshot["calls"] else self._calls_kept  # an open page requests older calls
        self.snapshot["calls"].clear()
        self._draw(len(self._drawn) - kept)

    def _draw(self, first: int) -> None:
        """Add the calls from an index on, and the colours of their layers, to the snapshot, which keeps only the newest calls."""
        calls, count, layers = self.snapshot["calls"], len(self._drawn), self.snapshot["layers"]
        fills = [layer_colour(number) for number in range(len(layers), len(self.calls.order))]
        layers += [[fill, ink_on(fill)] for fill in fills]
        calls += [self._drawn_call(at) for at in range(max(0, first), count)]
        del calls[: -self._calls_kept]
        self.snapshot["first"] = count - len(calls)

    def _drawn_call(self, at: int) -> dict[str, Any]:
        thread = sendable(self.request(at).where.thread_id)
        picture = call_data(self.calls.all[at], self.calls.order, self.caching(at))
        return {"thread": thread, "place": self._numbers[at], **picture}

    def _ended(self, at: int, place: int | None) -> None:
        """Note the number of a call among the sent calls, and that its billed tokens are known."""
        self._numbers[at] = place
        self._changed(at)

    def _changed(self, at: int) -> None:
        self._grown = at if self._grown is None else min(self._grown, at)

    def request(self, at: int) -> RecordedRequest:
        return self.index.requests[self._drawn[at]]

    def caching(self, at: int) -> CallCaching:
        """Return how caching affects a drawn call; `NO_CACHING` if none is drawn."""
        for event, request, is_call in self._unread:
            reuse = self._cache.read(event, request)
            if is_call:
                self._reuse.append(reuse)
        self._unread.clear()
        return caching_of(self._reuse[at], self.calls) if self._reuse else NO_CACHING

    def at_of(self, fields: dict[str, Any]) -> int | None:
        """Return the index of the selected drawn call; for a selected turn its first call, or None if there is none."""
        call, turn, thread = fields["call"], fields["turn"], fields["thread_id"]
        if call is not None or turn is None:
            return self._by_call.get(call)
        for at, request in enumerate(self.requests()):
            where = request.where
            if where.turn == turn and thread in (None, where.thread_id):
                return at
        return None

    def answer(self, request: dict[str, Any]) -> Any:
        """Answer a page: calls over time, ribbons of items, a call, its table, items or one of their texts, or other budgets."""
        what = request.get("what")
        if what in ("picture", "ribbons", "drag", "known_until"):
            part = range(self._whole(request, "first"), self._whole(request, "last") + 1)
            if what == "picture":
                return self.picture(part)
            if what != "ribbons":
                return self._dragged(part, request)
            return self.ribbons(self._whole(request, "at"), part, request.get("parts"), request.get("item")).data()
        if what in ("call", "table", "items", "text", "settings", "what_if"):
            at = self._whole(request, "at")
            recorded = self.requests()[at]
            if what == "call" and self.snapshot["plain"]:
                return {"thread": sendable(recorded.where.thread_id), "place": recorded.place, "plain": self._plain(at)}
            if what == "call":
                return self._drawn_call(at)
            if what == "table":
                return [keyed("table", call_table(self.calls.all[at], self.calls.order, self.caching(at)))]
            if what == "items":
                unfolded = [key for key in request.get("open") or () if isinstance(key, int)]
                return rows_data(self._shown_rows(at, request), unfolded)
            if what == "text" and (text := self._shown_rows(at, request).text_of(request.get("key"))) is not None:
                return text
            if what == "settings":
                return settings_of(recorded, self.calls)
            if what == "what_if":
                return what_if_data(recorded, self.calls, self.calls.all[at], request)
        return super().answer(request)

    def _dragged(self, part: range, request: dict[str, Any]) -> dict[str, Any]:
        """Return the bands of the drawn calls with other budgets, or up to which call the run is known with them."""
        requests, drag = self.requests(), OtherBudgets(self.calls, request)
        if request["what"] == "drag":
            drawn = [requests[largest(requests, places)] for places in columns_of(part)]
            if request.get("prepare"):
                return {"known": sum([each.can_replan for each in drawn])}
            return drag.rows(drawn, self.parts, self._bands)
        at, is_late = drag.known_until(requests)
        if at is None:
            return {"at": None, "text": "Every call would be sent the same items: known to the end."}
        first = f"call {at + 1} (turn {requests[at].where.turn})"
        if is_late:
            return {"at": at, "text": f"Known at least up to {first}, so far the calls were looked at."}
        said = f"Known up to {first}: there the agent is sent something else, and later calls are those of the old way."
        return {"at": at, "text": said}

    def _shown_rows(self, at: int, request: dict[str, Any]) -> ShownRows:
        parts = [part for part in request.get("parts") or () if isinstance(part, str | int)]
        if self._rows is None or self._rows[0] != (at, parts):
            recorded = self.requests()[at]
            found = rows_of(recorded, getattr(self.run, "meta", {}), self.calls, parts, self._compactions)
            self._rows = (at, parts), found
        return self._rows[1]

    def _whole(self, request: dict[str, Any], name: str) -> int:
        number = request.get(name)
        if isinstance(number, bool) or not isinstance(number, int) or not 0 <= number < self.total:
            raise NoeticConfigError(
                "UNKNOWN_CALL", "The view does not show this call.", given=number, hint=f"It shows {self.total}."
            )
        return number

    def requests(self) -> list[RecordedRequest]:
        """Return the shown requests, including those of imported runs."""
        found = self.index.requests
        return [found[at] for at in self._places()]

    @property
    def total(self) -> int:
        return len(self._drawn) or self.snapshot["plain"]

    @property
    def _compactions(self) -> Compactions:
        return [] if self.run is None else compactions_of(self.run)

    def scene(self, part: range | None = None) -> ContextScene:
        """Return the picture of the context over time, for all requests or a range of them."""
        points = getattr(self.run, "known_until", None)
        return context_scene(self.parts, self.requests(), self._compactions, self.calls.numbers(), part, points)

    def lives(self) -> list[ItemLife]:
        """Return the lives of the run's items, recomputed after new calls."""
        known = len(self.index.requests), len(self.index.places)
        if self._lives is None or self._lives[0] != known:
            self._lives = known, item_lives(self.index.requests, self._compactions)
        return self._lives[1]

    def ribbons(self, at: int, part: range | None = None, parts: Any = None, item: Any = None) -> Scene:
        """Return the ribbons of log items in some parts; if there are many, those around a shown call.

        `item` is the position of an item to draw in any case; without `parts` it is drawn alone, and without both all
        items are drawn. Without `part`, the calls begin with the first that knew one of the items.
        """
        shown, request = self._places(), self.requests()[at]
        context, is_imported = context_of(request.where), request.view is None
        own = [(life, kind_of(life.item, is_imported)) for life in self.lives() if life.context == context]
        wanted = [pair for pair in own if (parts is None and item is None) or pair[1] in (parts or ())]
        later = sum([life.known > shown[at] for life, _ in wanted])
        wanted = wanted[: max(len(wanted) - later, RIBBONS)][-RIBBONS:]
        wanted += [pair for pair in own if pair[0].position == item and pair not in wanted]
        name = " and ".join(map(str, parts)) if parts else "the log"
        if part is None:
            first = min([life.known for life, _ in wanted], default=0)
            part = range(bisect_left(shown, first), len(shown))
        return ribbon_scene([life for life, _ in wanted], [kind for _, kind in wanted], shown, part, name)

    def states(self, position: Any, thread_id: str | None) -> list[tuple[str, int | None, int, bool, str | None]]:
        """Return thread, call, turn, whether it was sent, and why not, for each call that knew an item of a thread."""
        if thread_id is None and self.total:
            thread_id = self.requests()[self.shown].where.thread_id
        lives = [life for life in self.lives() if life.context == (thread_id, "") and life.position == position]
        if not lives or isinstance(position, bool):
            hint = "Name it by its place in the log; one that no call knew has no place here."
            raise NoeticConfigError("UNKNOWN_ITEM", "The log has no such item.", given=position, hint=hint)
        life = lives[-1]
        found: list[tuple[str, int | None, int, bool, str | None]] = []
        for at in range(life.known, life.last + 1):
            request = self.index.requests[at]
            if context_of(request.where) == life.context and request.place is not None:
                is_sent = any(first <= at <= last for first, last in life.sent)
                why = None if is_sent else [reason for since, reason in life.dropped if since <= at][-1]
                found.append((life.context[0], request.place, request.where.turn, is_sent, why))
        return found

    def _places(self) -> Sequence[int]:
        """Return the indices of the shown requests among all requests of the run."""
        if self._drawn or self._shows_all:
            return self._drawn or range(len(self.index.requests))
        return [at for at, each in enumerate(self.index.requests) if self.moment.shows(each.where)]

    def picture(self, part: range) -> dict[str, Any]:
        """Return the context over time for a page, with the first call, the calls per column and the parts per band."""
        scene, numbers = self.scene(part), self.calls.numbers()
        self._bands = scene.bands
        last = self.requests()[part[-1]] if part else None
        handles = {} if last is None else handles_of(last, self.calls)
        keys = [numbers[band[6:]] if band.startswith("layer:") else band for band in scene.bands]
        folded = [number for number in numbers.values() if number not in keys]
        bands = [[key, *(folded if key == REST else ())] for key in keys]
        looks = {"series": series_data({**scene.series, **SERIES}), "pad": PAD_PX}
        about = {"start": part.start, "size": calls_a_column(part), "bands": bands, "handles": handles}
        return {**about, **looks, **scene.data()}

    def rows(self) -> list[tuple[int | None, str, int, bool]]:
        """Return call, part, tokens and whether they are estimated, for every request."""
        compactions = self._compactions
        calls = [self.parts.call(request, compactions) for request in self.requests()]
        return [
            (call.request.place, part, tokens, call.estimated) for call in calls for part, tokens in call.parts.items()
        ]

    def _plain(self, at: int) -> str:
        """Return the parts of a call without a plan, in lines."""
        ((*_, words),) = self.scene(range(at, at + 1)).stops
        return words

    def to_html(self) -> str:
        scene, head = self.scene(), heading("Token allocation")
        if scene.panels:
            head += f"{legend_html(scene)}{to_html(scene)}"
            if (ribbons := self.ribbons(self.shown % self.total)).panels:
                head += f"<details><summary>Items of the log</summary>{to_html(ribbons)}</details>"
        if self.calls.all:
            return head + call_html(self.calls.all[self.shown], self.calls.order, self.caching(self.shown))
        if not self.snapshot["plain"]:
            return f'{head}<p class="nn-empty">{self.snapshot["empty"]}</p>'
        at = self.shown % self.total
        parts = self.parts.call(self.requests()[at], self._compactions).parts
        cells = ([escape(plain(name)), count(tokens)] for name, tokens in parts.items())
        head += f'<p class="nn-sub">{escape(self._plain(at).splitlines()[0])}</p>'
        head += table("", ("Part", "Tokens"), cells, caption="Tokens by part")
        return f'{head}<p class="nn-note">{self.snapshot["empty"]}</p>'

    def to_text(self) -> str:
        said = self.snapshot["empty"]
        if self.calls.all:
            said = call_text(self.calls.all[self.shown], self.calls.order, self.caching(self.shown))
        elif self.snapshot["plain"]:
            said += f"\n{self._plain(self.shown % self.total)}"
        return f"Token allocation. {said}"
