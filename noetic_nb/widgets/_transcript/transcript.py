"""The live view of requests: the exact request of a model call, item by item, and its outcome."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import replace
from typing import Any, Final, TypeAlias

import traitlets

from noetic_nb.errors import NoeticConfigError
from noetic_nb.events import ModelCalled, RunEvent, ViewAssembled
from noetic_nb.redact import Redaction
from noetic_nb.runs._plain_text import sendable
from noetic_nb.runs._regulation.decision_words import DecisionRedaction
from noetic_nb.runs._requests.recorded_requests import CallBook, RequestIndex
from noetic_nb.runs._requests.sent_request import RecordedRequest
from noetic_nb.runs._run_source import run_of
from noetic_nb.runtime._planning.least_budget import LeastBudget
from noetic_nb.widgets._transcript.call_content import ShownCall, title_of
from noetic_nb.widgets._transcript.call_outcome import CallLabels
from noetic_nb.widgets._transcript.request_rows import DiffRow, RequestRow, budget_parts, request_diff, request_rows
from noetic_nb.widgets._transcript.transcript_picture import (
    EMPTY,
    entry_row,
    line_row,
    quiet_words,
    static_html,
    static_text,
)
from noetic_nb.widgets.base._feed import Place, Reading
from noetic_nb.widgets.base._run_view import RunView
from noetic_nb.widgets.base._selection import EVERYTHING, Moment, Selection

# Rows per page; a page requests further ones.
PAGE_ROWS: Final = 100
# Comparing means going back and forth between a few calls.
KEPT_CALLS: Final = 6
# For how many items the frame of a long conversation computes the smallest budgets.
MOST_BUDGETS: Final = 200

_Read: TypeAlias = tuple[RecordedRequest, list[RequestRow], dict[Any, LeastBudget | None]]


class TranscriptReading(Reading):
    """The agent's model calls of a run: a light index of all, and each call in full on demand.

    Parameters
    ----------
    moment : Moment, optional
        The calls to show.
    meta : mapping, optional
        The meta of the run; for imported runs, its ``policy`` replaces the instructions.

    Examples
    --------
    >>> TranscriptReading().to_text()
    'Transcript. No model call yet. Each call appears here as soon as the agent has made one.'
    """

    counted = "model_called", "model calls"
    reads = CallBook.reads | RequestIndex.reads
    nothing = "{part} has no model calls."

    def __init__(self, moment: Moment = EVERYTHING, meta: Any = None) -> None:
        self.moment = moment
        self._shows_all = moment == EVERYTHING
        self.meta = {} if meta is None else meta
        self.book = CallBook()
        self.texts = self.book.words
        self.index = RequestIndex()
        self.layers: dict[str, int] = {}
        self._grown = 0
        self.shown = -1
        self.compared: Any = None
        self._requests: list[int] = []
        self._threads: dict[str, int] = {}
        self._kept: OrderedDict[int, _Read] = OrderedDict()
        self.snapshot: dict[str, Any] = {
            "empty": EMPTY,
            "threads": [],
            "calls": [],
            "at": -1,
        }
        self.labels = CallLabels(None, None)

    @property
    def has_any(self) -> bool:
        return bool(self.book.calls)

    def take(self, event: RunEvent, place: Place) -> dict[str, Any] | None:
        """Read one event; returns the message about a new call, or about a call with additions."""
        kind = type(event)
        if kind in DecisionRedaction.reads:  # half of the events, which say nothing about calls
            if self._shows_all or self.moment.shows(event.where):
                self.book.words.take(event)
            return None
        request = None
        if kind in RequestIndex.reads:  # a third of the events
            request = self.index.take(event, seq=place.seq, call=place.call)
        if isinstance(event, ViewAssembled):
            for layer in event.layers:
                self.layers.setdefault(layer.layer_id, len(self.layers))
        if not (self._shows_all or self.moment.shows(event.where)):
            return None
        at = self.book.take(event, place.seq, place.call)
        if at is None:
            return None
        if not isinstance(event, ModelCalled):
            self._grown += 1
            self.snapshot["changed"] = {"at": at, "times": self._grown}
            return {"type": "more", "changed": self.snapshot["changed"]}
        assert request is not None
        self._requests.append(request)
        record = self.book.calls[at]
        where = record.where
        known = len(self._threads)
        thread = self._threads.setdefault(where.thread_id, known)
        fresh = [_sendable(where.thread_id)] if thread == known else []
        self.snapshot["threads"] += fresh
        row = [record.number, where.turn, thread]
        self.snapshot["calls"].append(row)
        return {"type": "call", "at": at, "threadsAt": known, "threads": fresh, "call": row}

    def begin(self) -> None:
        """Check texts for secrets as they arrive from now on."""
        super().begin()
        self.book.words.grows = True

    def answer(self, request: dict[str, Any]) -> Any:
        """Answer a page: one call, or the whole of one of its texts."""
        match request:
            case {"what": "call", "at": int(at)}:
                return self._page(self.call(at, request.get("against")), at, request)
            case {"what": "budget", "at": int(at), "key": int(key)}:
                call = self.call(at, request.get("against"))
                if 0 <= key < len(call.rows):
                    return entry_row(call, key, call.remedy(key))
            case {"what": "outcome", "at": int(at)}:
                return self._outcome(self.call(at))
            case {"what": "label", "at": int(at), "name": int(name), "value": int() | None as value}:
                return self.labels.give(self.call(at).record, name, value)
            case {"what": "labels", "at": int(at)}:
                return self.labels.of(self.call(at).record)
            case {"what": "first"}:
                return self.labels.first_look()
            case {"what": "text", "at": int(at), "key": key}:
                text = self.call(at, request.get("against")).text_of(key)
                if text is not None:
                    return text
        return super().answer(request)

    def asked_first(self) -> list[dict[str, Any]]:
        """Return the page's request for the shown call, in the form of its script."""
        last = len(self.book.calls) - 1
        at = self.shown if 0 <= self.shown <= last else last
        asked = {"what": "call", "at": at, "against": self.compared, "only": True, "open": [], "first": None}
        return [asked] if at >= 0 else []

    def _page(self, call: ShownCall, at: int, request: dict[str, Any]) -> dict[str, Any]:
        wanted = call.place_of(request.get("item"))
        only_changes = bool(request.get("only"))
        unfolded = [key for key in request.get("open") or () if isinstance(key, int)]
        if wanted >= 0:
            unfolded.append(call.run_of(wanted, only_changes=only_changes))
        entries = call.entries(only_changes=only_changes, unfolded=unfolded)
        first = request.get("first")
        if not isinstance(first, int) or isinstance(first, bool):
            listed = [place for place, entry in enumerate(entries) if entry == wanted]
            first = listed[0] // PAGE_ROWS * PAGE_ROWS if listed else 0
        first = max(0, min(first, (len(entries) - 1) // PAGE_ROWS * PAGE_ROWS))
        rows = entries[first : first + PAGE_ROWS]
        return {
            "at": at,
            "number": call.record.number,
            "where": [_sendable(call.record.where.thread_id), call.record.where.turn],
            "title": title_of(call.record),
            "headline": call.headline,
            "settings": call.settings,
            "unknown": call.unknown,
            "difference": call.difference,
            "first": first,
            "total": len(entries),
            "page": PAGE_ROWS,
            "rows": [entry_row(call, each, call.known_remedy(each)) for each in rows],
            "wanted": wanted if wanted >= 0 else None,
            "open": unfolded,
            "labels": self.labels.of(call.record),
            **self._outcome(call),
        }

    @staticmethod
    def _outcome(call: ShownCall) -> dict[str, Any]:
        quiet = sum([line.is_quiet for line in (*call.before, *call.outcome)])
        return {
            "answer": call.answer,
            "before": [line_row(f"b{place}", line) for place, line in enumerate(call.before)],
            "after": [line_row(f"a{place}", line) for place, line in enumerate(call.outcome)],
            "quiet": quiet_words(quiet) if quiet else "",
        }

    def call(self, at: int, against: Any = None) -> ShownCall:
        """Return one of the shown calls, compared with another one.

        Parameters
        ----------
        at : int
            Its index among the shown calls.
        against : int or "previous", optional
            A call by its number, or the previous one of those shown.

        Raises
        ------
        NoeticConfigError
            ``UNKNOWN_CALL``.
        """
        if isinstance(at, bool) or not 0 <= at < len(self.book.calls):
            raise self._unknown(at)
        record = self.book.shown(at)
        request, rows, budgets = self._read(at)
        other = self._other(at, against)
        if other is None:
            return ShownCall([DiffRow(row) for row in rows], self.layers, record, request, budgets)
        found = request_diff(rows, self._read(other)[1])
        return ShownCall(found, self.layers, record, request, budgets, against=self.book.shown(other))

    def _other(self, at: int, against: Any) -> int | None:
        if against == "previous":
            # Prefer the same execution: a child's request is a different conversation from its parent's.
            own = self.book.calls[at].where.execution_id
            earlier = range(at - 1, -1, -1)
            same = next((place for place in earlier if self.book.calls[place].where.execution_id == own), None)
            return same if same is not None else at - 1 if at else None
        return None if against is None else self.find_number(against)

    def _read(self, at: int) -> _Read:
        read = self._kept.get(at)
        if read is None:
            # A copy, so that its computed values are freed with it: a run may have thousands of calls.
            request = replace(self.index.requests[self._requests[at]])
            read = self._kept[at] = request, request_rows(request, self.meta), {}
            while len(self._kept) > KEPT_CALLS:
                self._kept.popitem(last=False)
        self._kept.move_to_end(at)
        return read

    def find(self, call: Any) -> int:
        """Return the index among the shown calls of a call given as in `Transcript`.

        Raises
        ------
        NoeticConfigError
            ``UNKNOWN_CALL``.
        """
        whole = isinstance(call, int) and not isinstance(call, bool)
        places = self.index.places
        if whole and (call < 0 or self.moment.thread_id is not None) and -len(places) <= call < len(places):
            call = self.index.requests[places[call]].called
        elif whole and (call < 0 or self.moment.thread_id is not None):
            raise self._unknown(call)
        return self.find_number(call)

    def find_number(self, call: Any) -> int:
        """Return the index among the shown calls of a call given by its number in the run, or by its event.

        Raises
        ------
        NoeticConfigError
            ``UNKNOWN_CALL``.
        """
        records = list(enumerate(self.book.calls))
        same: list[int] = []
        if isinstance(call, ModelCalled):
            # Compare by identity first: two calls may be equal.
            same = [at for at, record in records if record.event is call]
            same += [at for at, record in records if record.event == call]
        elif isinstance(call, int) and not isinstance(call, bool):
            same = [at for at, record in records if record.number == call]
        if not same:
            raise self._unknown(call)
        return same[0]

    def _unknown(self, call: Any) -> NoeticConfigError:
        return NoeticConfigError(
            "UNKNOWN_CALL",
            "There is no such call of the agent's model here.",
            given=call,
            hint=f"{len(self.book.calls)} are shown: pass the position of one, from 0, or pass its ModelCalled event.",
        )

    def place_of(self, fields: dict[str, Any]) -> int | None:
        """Return the index of the selected call, or None if it is not among the shown ones."""
        calls = self.book.calls
        if fields["call"] is not None:
            return next((place for place, record in enumerate(calls) if record.number == fields["call"]), None)
        if fields["decision"] is not None:
            return self.book.of_decision(fields["decision"])
        if fields["turn"] is None:
            return None
        thread = fields["thread_id"]
        of_turn = [
            place
            for place, record in enumerate(calls)
            if record.where.turn == fields["turn"] and (thread is None or record.where.thread_id == thread)
        ]
        return of_turn[-1] if of_turn else None

    def current(self) -> ShownCall | None:
        """Return the shown call and the call it is compared with, or None if there is none yet."""
        calls = len(self.book.calls)
        if not calls:
            return None
        at = self.shown if 0 <= self.shown < calls else calls - 1
        return self.call(at, self.compared)

    def rows(self) -> list[tuple[Any, ...]]:
        """Return the items of the shown call as table rows with the columns `COLUMNS`, secrets replaced."""
        call = self.current()
        if call is None:
            return []
        rule = Redaction()
        own = [at for at, found in enumerate(call.rows) if found.own]
        absent = [at for at in own if call.rows[at].row.absent is not None]
        budgets = {at: call.budget(at) for at in absent[-MOST_BUDGETS:]}
        return [self._frame_row(place, call.rows[at].row, budgets.get(at), rule) for place, at in enumerate(own)]

    @staticmethod
    def _frame_row(place: int, row: RequestRow, budget: LeastBudget | None, rule: Redaction) -> tuple[Any, ...]:
        tokens, of = (None, None) if budget is None else budget_parts(budget)
        named = (place, rule.text(row.source), rule.text(row.role), rule.text(row.tool))
        return (*named, row.tokens, row.is_sent, row.reason or None, tokens, of, rule.text(row.whole or row.text))

    def to_html(self) -> str:
        return static_html(self.current(), self.snapshot["empty"])

    def to_text(self) -> str:
        return static_text(self.current(), self.snapshot["empty"])


def _sendable(thread_id: str) -> str | None:
    """Return a thread id as a page uses it for selections; None if a message cannot hold it as text."""
    try:
        thread_id.encode()
    except UnicodeEncodeError:
        return None
    return sendable(thread_id)


COLUMNS: Final = {
    "place": "int64",
    "origin": "object",
    "role": "object",
    "tool": "object",
    "tokens": "float64",
    "sent": "bool",
    "reason": "object",
    "smallest_budget": "float64",
    "budget_of": "object",
    "text": "object",
}


class Transcript(RunView):
    """Show the exact request that a model call sent, item by item, and its outcome.

    Parameters
    ----------
    run : Run or object with a ``run``
        A growing run, or one that was loaded or replayed.
    call : int or ModelCalled, optional
        The call to show: its index among the agent's model calls of the run, or of the thread if `thread_id` is given;
        negative from the end. By default the newest call, also when further calls follow.
    thread_id : str, optional
        Show only this thread.
    turn : int, optional
        Show only this turn, counted from 1 in each thread.
    until : int, optional
        Show the turns up to this one, inclusive.
    selection : Selection, optional
        The selection shared with other views: a call or an item that is selected elsewhere is shown here.
    by : str, optional
        A rater who labels calls here, by digit keys, with the values in the run's codebook.

    Attributes
    ----------
    follow : bool
        Whether to show the newest call.
    position : int
        The index of the shown call among those in the view, if it is not the newest.
    compare_with : int, "previous" or None
        The call to compare with: its index among the agent's model calls of the run.

    Raises
    ------
    NoeticConfigError
        ``NOT_A_RUN``; ``UNKNOWN_CALL``; ``INVALID_TURN`` if `turn` or `until` is not a whole number of at least 0;
        ``INVALID_THREAD``; ``NOT_A_SELECTION``; ``NO_CODEBOOK`` if `by` is given but there are no labels for calls.

    References
    ----------
    .. [1] docs/behaviour/views.md, "Transcript".

    Examples
    --------
    >>> from noetic_nb.runs import Run
    >>> with Transcript(Run()) as view:
    ...     view
    Transcript. No model call yet. Each call appears here as soon as the agent has made one.
    """

    follow = traitlets.Bool(True).tag(sync=True)
    # Not synced: during quick navigation, late replies would make the picture jump back.
    position = traitlets.Int(-1)
    compare_with = traitlets.Any(None, allow_none=True).tag(sync=True)
    scripts = ("base/rows", "transcript/transcript_parts", "transcript/transcript")
    _announces = True

    def __init__(
        self,
        run: Any,
        *,
        call: Any = None,
        thread_id: str | None = None,
        turn: int | None = None,
        until: int | None = None,
        selection: Selection | None = None,
        by: str | None = None,
    ) -> None:
        moment = Moment(thread_id, turn, until)
        self._transcript = TranscriptReading(moment, getattr(run_of(run), "meta", None))
        self._transcript.labels = CallLabels(run_of(run), by)
        self._transcript.snapshot["labels"] = self._transcript.labels.data
        super().__init__(run, self._transcript, moment=moment, selection=selection)
        self.observe(self._move, ["follow", "position", "compare_with"])
        try:
            if call is not None:
                self._show(self._transcript.find(call))
        except NoeticConfigError:
            self.close()
            raise
        if call is None:
            self._show(self._transcript.place_of(self.selection.fields))

    def to_frame(self) -> Any:
        """Return the request of the shown call as a table.

        Returns
        -------
        pandas.DataFrame
            One row per item, in the order sent, with absent items in their places: ``place``, ``origin`` (``system``,
            ``tools``, ``history``, ``tool``, ``guidance``, ``layer:<id>``), ``role``, ``tool``, ``tokens``, ``sent``,
            ``reason`` (why it was not sent), ``smallest_budget`` (the smallest that would have admitted it, in tokens),
            ``budget_of`` (``total``, ``layer:<id>`` for its maximum, ``window``, which counts items, or several of
            them) and ``text``. If many items are absent, the last 200 have a smallest budget.
        """
        import pandas

        with self.up_to_date():
            rows = self._transcript.rows()
        return pandas.DataFrame(
            {
                name: pandas.Series([row[at] for row in rows], dtype=dtype)
                for at, (name, dtype) in enumerate(COLUMNS.items())
            }
        )

    @traitlets.validate("compare_with")
    def _known_call(self, proposal: Any) -> Any:
        value = proposal["value"]
        if value is not None and value != "previous":
            self._transcript.find_number(value)
        return value

    def _selected(self, fields: dict[str, Any]) -> None:
        with self.up_to_date():
            place = self._transcript.place_of(fields)
            self._announces = False
            self._show(place)
            self._announces = True
        super()._selected(fields)
        # A page resolves a selected call itself; anything else is resolved here and sent last, so that a page that
        # still has to draw an earlier selection does not go back to it.
        if place is not None and fields["call"] is None:
            self.send({"type": "show", "at": self._transcript.shown})

    def _show(self, place: int | None) -> None:
        if place is not None:
            self.set_trait("position", place)
            self.set_trait("follow", False)

    def _move(self, change: Any) -> None:
        reading = self._transcript
        if change.name == "position":
            self.set_trait("follow", False)
        # A page saved with another run may name a call that does not exist.
        is_there = not self.follow and 0 <= self.position < len(reading.book.calls)
        reading.shown = reading.snapshot["at"] = self.position if is_there else -1
        reading.compared = self.compare_with
        if change.name == "position" and self._announces:
            self.send({"type": "show", "at": reading.shown})
